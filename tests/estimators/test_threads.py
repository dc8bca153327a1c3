"""Several estimators at work in threads of one process do not disturb each other."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from examples import TINY, regression_data

from dvip import DVIPClassifier, DVIPRegressor, load


def work(task):
    number, folder = task
    inputs, targets = regression_data(60)
    kind = DVIPClassifier if number == 2 else DVIPRegressor
    precision = ("float32", "float64", "float32")[number]
    model = kind(**TINY | {"precision": precision, "random_state": number, "max_iter": 60})
    model.fit(inputs, targets > targets.mean() if number == 2 else targets)
    model.save(folder / str(number))
    predicted = [load(folder / str(number)).predict(inputs), model.predict(inputs)]
    model.partial_fit(inputs, targets > targets.mean() if number == 2 else targets)
    return [*predicted, model.predict(inputs)]


@pytest.mark.slow
def test_two_precisions_and_two_tasks_at_the_same_time(tmp_path):
    tasks = [(number, tmp_path) for number in range(3)]
    alone = [work(task) for task in tasks]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(work, tasks * 2))
    for expected, found in zip(alone * 2, together, strict=True):
        assert np.array_equal(expected[0], expected[1])
        for one, other in zip(expected, found, strict=True):
            assert np.array_equal(one, other)
