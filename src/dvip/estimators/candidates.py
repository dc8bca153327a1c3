"""What the default tries on a table of which size: settings that a user could give as well."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dvip.processes.bnn import BayesianNeuralNetwork
from dvip.processes.linear import Linear

__all__ = [
    "CONSTANT",
    "GP",
    "MANY_ROWS",
    "SAMPLED_GP",
    "Candidate",
    "candidates_of_prior",
    "classification_candidates",
    "regression_candidates",
]

# From so many rows on there are no folds: members leave out a part.
MANY_ROWS = 5_000
# Below these numbers of rows, networks learn nothing that a Gaussian process does not, and an
# unconstrained prior over-fits.
FEW_ROWS, SOME_ROWS = 150, 250
# Candidates in closed form: with the most probable kernel, with samples of it, which few rows need
# (and more would make large), and one that learns nothing, where others may have learned too much.
GP, SAMPLED_GP, CONSTANT = "gp", "sampled gp", "constant"
EXACT = {"inference": "exact"}
MAX_ROWS_SAMPLED = 400

# Deep candidates: two layers, or one with wide networks, which many rows are learned from faster.
# (Four hidden layers of SiLU units have an NLL of -2.0 on kin40k where three of tanh have -1.4,
# after 6,000 steps each. Three samples in training instead of one cost twice as much and are no
# better on left-out rows.)
CONSTRAINED, FREE = BayesianNeuralNetwork(), BayesianNeuralNetwork(constrained=False)
DEEP = {
    "inference": "vi",
    "n_layers": 2,
    "alpha": 1.0,
    "n_prior_samples": 20,
    "n_training_samples": 1,
}
WIDE = {
    "inference": "vi",
    "n_layers": 1,
    "alpha": 1.0,
    "n_prior_samples": 10,
    "prior": BayesianNeuralNetwork(hidden=(50, 50, 50, 50), activation="silu", constrained=False),
    "learning_rate": 0.005,
}
# One layer with a prior that was given, and says much of the functions.
PLAIN = {"inference": "vi", "n_layers": 1, "alpha": 0.0}
STEPS_FOR_SOME, STEPS = 1_500, 3_000
# Targets and classes share the functions of the last layer, and are no more different than these
# let them: so many for each, but so many at most. (Ten digits: left-out rows have a log-likelihood
# of -0.65 with 10 functions, of -0.11 with 20.)
FUNCTIONS_FOR_EACH, MOST_FUNCTIONS = 2, 60
# Lines that a candidate of lines has at most, and its steps.
MAX_LINES, STEPS_OF_LINES = 150, 1_000
# Training steps for 10,000 rows; as their square root, up to so many rows.
STEPS_FOR_MANY, MOST_ROWS = 8_000, 160_000


class Candidate(NamedTuple):
    """A setting of the parameters, under a name."""

    name: str
    settings: Mapping[str, Any]


def regression_candidates(
    num_rows: int, num_targets: int = 1, *, closed_form: bool
) -> list[Candidate]:
    """With Gaussian processes in closed form, where they fit what a user gave."""
    closed = [Candidate(name, EXACT) for name in _closed_forms(num_rows)] if closed_form else []
    if num_rows < FEW_ROWS and closed:
        return closed
    if num_rows < MANY_ROWS:
        return [*closed, *_with_functions(_deep(num_rows), num_targets)]
    steps = _steps_for(num_rows)
    heavy = {**WIDE, "likelihood": "student-t", "max_iter": steps}
    varying = {**WIDE, "likelihood": "heteroscedastic-student-t", "max_iter": steps // 2}
    wide = [Candidate("wide bnn", heavy), Candidate("wide bnn, varying noise", varying)]
    return [*closed, *_with_functions(wide, num_targets)]


def classification_candidates(
    num_rows: int, num_inputs: int, num_classes: int, tried: list[Candidate] | None = None
) -> list[Candidate]:
    """With softmax for several classes, whose probabilities are smooth."""
    candidates = tried
    if candidates is None and num_rows < MANY_ROWS:
        candidates = [*_lines(num_inputs), *_with_functions(_deep(num_rows), num_classes)]
    elif candidates is None:
        wide = Candidate("wide bnn", {**WIDE, "max_iter": _steps_for(num_rows)})
        candidates = _with_functions([wide], num_classes)
    likelihood = "softmax" if num_classes > 2 else "probit"
    return [Candidate(name, {**given, "likelihood": likelihood}) for name, given in candidates]


def candidates_of_prior(num_rows: int) -> list[Candidate]:
    """The prior that was given, in one layer."""
    steps = STEPS if num_rows < MANY_ROWS else _steps_for(num_rows)
    return [Candidate("prior", {**PLAIN, "max_iter": steps})]


def _closed_forms(num_rows: int) -> list[str]:
    limits = {GP: np.inf, SAMPLED_GP: MAX_ROWS_SAMPLED, CONSTANT: SOME_ROWS - 1}
    return [name for name, most in limits.items() if num_rows <= most]


def _deep(num_rows: int) -> list[Candidate]:
    """For tables of which folds are left out."""
    if num_rows < SOME_ROWS:
        return [Candidate("bnn", {**DEEP, "prior": CONSTRAINED, "max_iter": STEPS_FOR_SOME})]
    return [
        Candidate("deep bnn", {**DEEP, "prior": FREE, "max_iter": STEPS}),
        Candidate("wide bnn", {**WIDE, "max_iter": STEPS}),
    ]


def _with_functions(candidates: list[Candidate], number: int) -> list[Candidate]:
    """The same with enough functions for so many targets or classes."""
    wanted = min(FUNCTIONS_FOR_EACH * number, MOST_FUNCTIONS)
    return [
        Candidate(name, {**given, "n_prior_samples": max(wanted, given["n_prior_samples"])})
        for name, given in candidates
    ]


def _lines(num_inputs: int) -> list[Candidate]:
    """Log-odds that are lines, where their number is not large: enough functions for each slope."""
    number = 2 * (num_inputs + 1)
    if number > MAX_LINES:
        return []
    lines = {"prior": Linear(), "n_prior_samples": max(20, number), "max_iter": STEPS_OF_LINES}
    return [Candidate("linear", {**PLAIN, **lines})]


def _steps_for(num_rows: int) -> int:
    return int(STEPS_FOR_MANY * np.sqrt(min(num_rows, MOST_ROWS) / 10_000))
