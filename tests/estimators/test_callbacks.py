"""Callbacks of scikit-learn, and functions: what they hear, and what they may end."""

import pickle

import numpy as np
import pytest
from examples import regression_data
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dvip.estimators.callbacks
from dvip import DVIPRegressor

X, Y = regression_data(80)
STEPS = 1_600


def small(**settings):
    return DVIPRegressor.paper(n_layers=1, n_prior_samples=5, **{"max_iter": STEPS, **settings})


@pytest.fixture(scope="module")
def plain():
    return small().fit(X, Y)


class Noting:
    """A callback that notes what it is told, and ends a training where it is asked to."""

    def __init__(self, last=None):
        self.last, self.told = last, []

    def setup(self, estimator, context):
        self.told.append("setup")

    def teardown(self, estimator, context):
        self.told.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.told.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.told.append(("end", context.task_name, context.task_id))
        if fitted_estimator is not None:
            self.score = fitted_estimator.score(X, y)
        return context.task_name == "stretch" and context.task_id == self.last


def test_functions_hear_of_all_steps_and_change_nothing(plain):
    heard = []
    model = small().set_callbacks(lambda *told: heard.append(told)).fit(X, Y)
    steps, totals, bounds = zip(*heard, strict=True)
    assert list(steps) == sorted(steps)
    assert steps[-1] == STEPS
    assert set(totals) == {STEPS}
    assert np.isfinite(bounds).all()
    assert np.array_equal(model.predict(X), plain.predict(X))


def test_a_function_ends_a_training():
    model = small(max_iter=20_000).set_callbacks(lambda steps, *_: steps >= 1_000).fit(X, Y)
    assert 1_000 <= model.n_iter_ < 3_000
    assert np.isfinite(model.predict(X)).all()


def test_what_is_no_callback():
    for given in (3, "bar", Noting, type):
        with pytest.raises(TypeError, match="is no callback"):
            small().set_callbacks(given)


def test_functions_do_without_callbacks_of_scikit_learn(monkeypatch):
    monkeypatch.setattr(dvip.estimators.callbacks, "_has_callbacks", lambda: False)
    heard = []
    small(max_iter=60).set_callbacks(lambda *told: heard.append(told)).fit(X, Y)
    assert heard
    with pytest.raises(TypeError, match=r"scikit-learn 1\.9"):
        small().set_callbacks(Noting())


class TestWithScikitLearn:
    @pytest.fixture(autouse=True)
    def _needed(self):
        pytest.importorskip("sklearn.callback", reason="needs scikit-learn 1.9")

    def test_stretches_are_told_one_after_the_other(self, plain):
        noting = Noting()
        model = small().set_callbacks(noting).fit(X, Y)
        stretches = [("begin", "stretch", n) for n in range(100)]
        assert [told for told in noting.told if told[:2] == ("begin", "stretch")] == stretches
        assert noting.told[:2] == ["setup", ("begin", "fit", 0)]
        assert noting.told[-2:] == [("end", "fit", 0), "teardown"]
        assert noting.score == pytest.approx(plain.score(X, Y))
        assert np.array_equal(model.predict(X), plain.predict(X))
        assert not [name for name in model.__dict__ if "ctx" in name or "context" in name]

    def test_one_ends_a_training(self):
        noting = Noting(last=4)
        model = small(max_iter=20_000).set_callbacks(noting).fit(X, Y)
        assert model.n_iter_ < 4_000

    def test_they_are_let_go_after_an_error(self):
        noting = Noting()
        with pytest.raises(ValueError, match="max_iter"):
            small(max_iter=-1).set_callbacks(noting).fit(X, Y)
        assert noting.told[-1] == "teardown"

    @pytest.mark.slow
    def test_an_estimator_that_chooses_and_its_parts(self):
        noting = Noting()
        model = DVIPRegressor(prior="bnn", max_iter=60, n_prior_samples=5)
        model.set_callbacks(noting).fit(X, Y)
        assert ("end", "stretch", 99) in noting.told
        assert not any(hasattr(part, "_skl_callbacks") for part in model.parts_)
        model.set_callbacks()
        assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))

    def test_one_progress_bar_not_two(self, capsys):
        from sklearn.callback import ProgressBar

        small(max_iter=60, verbose=True).set_callbacks(ProgressBar()).fit(X, Y)
        told = capsys.readouterr()
        assert (told.out + told.err).count("100%") == 1
        assert "training" not in told.out + told.err

    def test_scores_of_searches_and_pipelines(self):
        from sklearn.callback import ScoringMonitor

        monitor = ScoringMonitor(scoring="r2")
        model = clone(small(max_iter=60).set_callbacks(monitor)).fit(X, Y)
        (row,) = monitor.get_logs().data
        assert row["r2"] == pytest.approx(model.score(X, Y))
        noting = Noting()
        pipeline = make_pipeline(StandardScaler(), small(max_iter=60).set_callbacks(noting))
        pipeline.fit(X, Y)
        search = GridSearchCV(pipeline, {"dvipregressor__alpha": [0.0]}, cv=2).fit(X, Y)
        assert np.isfinite(search.best_score_)
        assert noting.told.count("setup") == noting.told.count("teardown") == 4
