"""Prediction: seconds a row, with R = 100 samples where a model needs samples.

The deep GPs have three layers. The exact GP is conditioned on 2,000 rows; it needs no samples. How
well the models are trained does not matter here.
"""

import numpy as np

from contestants import DEEP_GP, DVIP, EXACT_GP, make
from measurements import Options
from measurements.interleaving import Contest, rounds_to_do, run_rounds
from results_file import ResultsFile
from tables import INPUTS, power_like

SAMPLES = 100
ROWS = {DVIP: 10_000, DEEP_GP: 1_000, EXACT_GP: 10_000}
SETTINGS = {
    DVIP: {"max_iter": 200, "n_predictive_samples": SAMPLES},
    DEEP_GP: {"seconds": 1.0, "n_predictive_samples": SAMPLES},
    EXACT_GP: {"max_rows": 2_000, "optimise": False},
}


def measure(results: ResultsFile, options: Options) -> None:
    names = tuple(ROWS) if options.peers else (DVIP,)
    scale = 10 if options.quick else 1
    keys = [
        {
            "contestant": name,
            "rows": ROWS[name] // scale,
            "samples": 1 if name == EXACT_GP else SAMPLES,
        }
        for name in names
    ]
    rounds = rounds_to_do(results, keys, options)
    if rounds:
        run_rounds(results, [_contest(key) for key in keys], rounds)


def _contest(key: dict) -> Contest:
    split = power_like()
    model = make(key["contestant"], SETTINGS[key["contestant"]]).fit(split.inputs, split.targets)
    new = np.random.default_rng(1).standard_normal((key["rows"], INPUTS))
    return Contest(key, lambda: model.predict_dist(new), key["rows"])
