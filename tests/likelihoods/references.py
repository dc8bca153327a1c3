"""What each likelihood of the registry is: log p(y | f) in plain NumPy, and examples of it.

A new likelihood gets an entry in `REFERENCES`; the tests of the protocol do the rest.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from examples import perturbed
from scipy import stats
from scipy.special import log_ndtr

from dvip import (
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    LogNormal,
    NegativeBinomial,
    Poisson,
    Probit,
    RobustMax,
    Softmax,
    StudentT,
)
from dvip.likelihoods import Likelihood
from dvip.registry import LIKELIHOODS

NUM_ROWS = 4


class Example(NamedTuple):
    likelihood: Likelihood  # with parameters, away from where they start
    targets: np.ndarray  # outputs x rows, on the scale of the model
    num_units: int
    # log p(y | f) of a likelihood, targets and values of f, draws x units x rows.
    reference: Callable[[Likelihood, np.ndarray, np.ndarray], np.ndarray]

    def log_prob(self, values, targets=None):
        """log p(y | f), draws x rows."""
        return self.reference(self.likelihood, self.targets if targets is None else targets, values)


def gaussian(num_targets, variance):
    return Gaussian(jnp.full(num_targets, np.log(variance)))


def gaussian_log_prob(likelihood, targets, values):
    variance = np.exp(np.asarray(likelihood.log_variance))[:, None]
    squares = np.square(targets - values) / variance
    return -0.5 * (squares + np.log(2 * np.pi * variance)).sum(axis=1)


def varied_log_variance(likelihood, values):
    """log σ² of input-dependent noise, draws x targets x rows, and the values of f."""
    values, noise = np.split(values, 2, axis=1)
    gain, log_variance = (
        np.asarray(array)[:, None] for array in (likelihood.gain, likelihood.log_variance)
    )
    return log_variance + 4 * np.tanh(gain * noise / 4), values


def heteroscedastic_log_prob(likelihood, targets, values):
    log_variance, values = varied_log_variance(likelihood, values)
    return stats.norm.logpdf(targets, values, np.exp(log_variance / 2)).sum(axis=1)


def student_t_log_prob(likelihood, targets, values):
    scale = np.exp(np.asarray(likelihood.log_variance) / 2)[:, None]
    freedom = np.asarray(likelihood.freedom)[:, None]
    return stats.t.logpdf(targets, freedom, values, scale).sum(axis=1)


def heteroscedastic_student_t_log_prob(likelihood, targets, values):
    log_variance, values = varied_log_variance(likelihood, values)
    freedom = np.asarray(likelihood.freedom)[:, None]
    return stats.t.logpdf(targets, freedom, values, np.exp(log_variance / 2)).sum(axis=1)


def rates(likelihood, values):
    offset, scale = (np.asarray(part)[:, None] for part in likelihood.link.value)
    return np.exp(offset + scale * values)


def poisson_log_prob(likelihood, targets, values):
    return stats.poisson.logpmf(targets, rates(likelihood, values)).sum(axis=1)


def negative_binomial_log_prob(likelihood, targets, values):
    k = np.asarray(likelihood.concentration)[:, None]
    return stats.nbinom.logpmf(targets, k, k / (k + rates(likelihood, values))).sum(axis=1)


def initialised(likelihood, num_targets):
    """Its parameters away from where they start, its link not the identity."""
    offset, scale = np.linspace(1.0, 2.0, num_targets), np.linspace(0.5, 0.8, num_targets)
    return perturbed(likelihood.initialise(num_targets).linked(offset, scale), size=0.2)


def numbers(likelihood, log_prob):
    """Examples of a likelihood of numbers: one target and several."""
    several = np.random.default_rng(1).normal(size=(3, NUM_ROWS))
    return {
        f"{name} target{'s' * (name != 'one')}": lambda targets=targets: Example(
            initialised(likelihood, len(targets)),
            targets,
            likelihood.num_latents(len(targets)),
            log_prob,
        )
        for name, targets in (("one", np.array([[0.0, 1.0, -2.0, 0.3]])), ("three", several))
    }


def counts(likelihood, log_prob):
    """The same for counts."""
    few, many = [[0.0, 1.0, 7.0, 2.0]], [[0.0, 1.0, 25.0, 3.0], [2.0, 4.0, 6.0, 0.0]]
    return {
        f"{name} target{'s' * (name != 'one')}": lambda targets=targets: Example(
            initialised(likelihood, len(targets)), np.array(targets), len(targets), log_prob
        )
        for name, targets in (("one", few), ("two", many))
    }


def probit_log_prob(likelihood, targets, values):
    return log_ndtr((2 * targets - 1) * values).sum(axis=1)


def robustmax_log_prob(likelihood, targets, values):
    hit = values.argmax(axis=1) == targets[0]
    miss = likelihood.error / (values.shape[1] - 1)
    return np.log(np.where(hit, 1 - likelihood.error, miss))


def softmax_log_prob(likelihood, targets, values):
    chosen = np.take_along_axis(values, targets.astype(int)[None], axis=1)
    return (chosen - np.log(np.exp(values).sum(axis=1, keepdims=True)))[:, 0]


# By the names of the registry; of a regression there is an example of one target and of several.
REFERENCES: dict[str, dict[str, Callable[[], Example]]] = {
    "gaussian": {
        "one target": lambda: Example(
            perturbed(gaussian(1, 0.3)),
            np.array([[0.0, 1.0, -2.0, 0.3]]),
            1,
            gaussian_log_prob,
        ),
        "three targets": lambda: Example(
            perturbed(gaussian(3, 0.3)),
            np.random.default_rng(1).normal(size=(3, NUM_ROWS)),
            3,
            gaussian_log_prob,
        ),
    },
    "heteroscedastic": numbers(HeteroscedasticGaussian(), heteroscedastic_log_prob),
    "student-t": numbers(StudentT(), student_t_log_prob),
    "heteroscedastic-student-t": numbers(
        HeteroscedasticStudentT(), heteroscedastic_student_t_log_prob
    ),
    "log-normal": numbers(LogNormal(), gaussian_log_prob),
    "poisson": counts(Poisson(), poisson_log_prob),
    "negative-binomial": counts(NegativeBinomial(), negative_binomial_log_prob),
    "probit": {
        "two classes": lambda: Example(
            Probit(), np.array([[0.0, 1.0, 1.0, 0.0]]), 1, probit_log_prob
        ),
    },
    "robustmax": {
        "three classes": lambda: Example(
            RobustMax(error=0.05), np.array([[0.0, 1.0, 2.0, 0.0]]), 3, robustmax_log_prob
        ),
        "ten classes": lambda: Example(
            RobustMax(error=0.01), np.array([[0.0, 9.0, 5.0, 0.0]]), 10, robustmax_log_prob
        ),
    },
    "softmax": {
        "two classes": lambda: Example(
            Softmax(), np.array([[0.0, 1.0, 1.0, 0.0]]), 2, softmax_log_prob
        ),
        "ten classes": lambda: Example(
            Softmax(), np.array([[0.0, 9.0, 5.0, 0.0]]), 10, softmax_log_prob
        ),
    },
}

EXAMPLES = {
    f"{name}, {variant}": make
    for name in LIKELIHOODS
    for variant, make in REFERENCES.get(name, {}).items()
}


# Several targets of every family are much the same, and so are few and many classes: those of one
# are enough where time counts. The last of the families has the noise of the two before it.
SLOW = {
    *(name for name in EXAMPLES if name.endswith("targets") and not name.startswith("gaussian")),
    "heteroscedastic-student-t, one target",
    "robustmax, ten classes",  # test_many_classes.py
    "softmax, two classes",  # test_softmax.py
} - {"heteroscedastic-student-t, three targets"}
PARAMETERS = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in EXAMPLES]


def of_task(task):
    """The examples of a task, "regression" or "classification"."""
    pairs = zip(EXAMPLES, PARAMETERS, strict=True)
    return [given for name, given in pairs if LIKELIHOODS[name.split(",")[0]].task == task]
