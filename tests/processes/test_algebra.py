"""Priors put together: sums, products, unions, columns, warps, and text that says so."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from examples import noise_of, perturbed, random_key, started, values_of

from dvip import (
    Additive,
    BayesianNeuralNetwork,
    Constant,
    GaussianProcess,
    Linear,
    Monotone,
    OnColumns,
    Periodic,
    PriorProduct,
    PriorSum,
    PriorUnion,
    WarpedInput,
)
from dvip.processes import DataUnits
from dvip.processes.expressions import parsed_prior

pytestmark = pytest.mark.usefixtures("double")

MANY = 20_000
X = np.random.default_rng(0).normal(size=(2, 5))


def functions(process, inputs=X, number=MANY, seed=1):
    return np.asarray(_functions(process, jnp.asarray(inputs), number, seed))


@eqx.filter_jit
def _functions(process, inputs, number, seed):
    made = process.initialise(len(inputs), random_key(0))
    return made(made.draw_noise(random_key(seed), number), inputs)


def assert_covariance(values, expected):
    """Within five standard errors, entry by entry; of zero-mean functions."""
    products = values[:, :, None] * values[:, None]
    error = products.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(products.mean(axis=0) - expected) < 5 * error + 1e-12).all()


LINES = 1 + X.T @ X / 2  # the covariance of lines where they start


def test_lines_and_constants_have_the_covariance_that_they_should():
    assert_covariance(functions(Linear()), LINES)
    assert_covariance(functions(Constant()), np.ones((5, 5)))


def test_covariances_of_sums_add_and_of_products_multiply():
    both = (Linear(), Constant())
    assert_covariance(functions(both[0] + both[1]), LINES + 1)
    assert_covariance(functions(Linear() * Linear()), LINES**2)
    assert_covariance(functions(both[0] + both[1] * Linear()), 2 * LINES)


def test_a_union_has_equal_shares_of_each():
    values = functions(Linear() | Constant(), number=7)
    constant = (values == values[:, :1]).all(axis=1)
    assert constant.sum() == 3
    assert not constant[:4].any()
    assert functions(Linear() | Constant() | Linear(), number=2).shape == (2, 5)


def test_sums_and_unions_are_flat():
    process = Linear() + Constant() + Linear()
    assert isinstance(process, PriorSum)
    assert len(process.processes) == 3
    mixed = Linear() + Constant() * Linear() | Linear()
    assert isinstance(mixed, PriorUnion)
    assert isinstance(mixed.processes[0].processes[1], PriorProduct)
    with pytest.raises(TypeError):
        Linear() + "gp"


def test_terms_of_a_sum_add_up_to_it():
    process = started(Linear() + Linear() + Additive(GaussianProcess(num_frequencies=4)), 2)
    weights = np.random.default_rng(2).normal(size=(2, 3))

    @eqx.filter_jit
    def evaluated(process, inputs):
        noise = process.draw_noise(random_key(1), 3)
        terms = process.terms(noise, inputs)
        combined = process.combined(noise, jnp.asarray(weights), inputs)
        return list(terms), list(terms.values()), combined, process(noise, inputs)

    names, terms, combined, values = evaluated(process, jnp.asarray(X))
    assert names == ["linear", "linear #2", "column 0", "column 1"]
    np.testing.assert_allclose(np.sum(terms, axis=0), values, rtol=1e-12)
    np.testing.assert_allclose(combined, weights @ np.asarray(values), rtol=1e-9)


def test_a_column_alone_matters():
    process = perturbed(started(GaussianProcess(num_frequencies=4).on(1), 2))
    noise = noise_of(process, 3)
    values, same, other = (
        values_of(process, noise, X + np.array([[first], [second]]))
        for first, second in ((0.0, 0.0), (5.0, 0.0), (0.0, 1.0))
    )
    assert np.array_equal(values, same)
    assert not np.allclose(values, other)


def test_additive_functions_have_no_interactions():
    process = perturbed(started(Additive(), 2))
    corners = jnp.asarray([[0.0, 0, 1, 1], [0, 1, 0, 1]])
    values = np.asarray(values_of(process, noise_of(process, 3), corners))
    np.testing.assert_allclose(values[:, 0] + values[:, 3], values[:, 1] + values[:, 2], rtol=1e-9)


UNITS = DataUnits((2,), ("time", "x"), np.array([2000.0, 1.0]), np.array([12.0, 0.5]), (5.0, 2.0))


@pytest.mark.parametrize("learned", [False, True])
def test_a_period_is_in_the_unit_of_the_column(learned):
    process = Periodic(period=3, learned=learned).on("time").for_data(UNITS)
    process = started(process, 2)
    noise = noise_of(process, 4)
    period = np.array([[3 / 12], [0]])
    values, later, half = (
        values_of(process, noise, X + share * period) for share in (0.0, 1.0, 0.5)
    )
    np.testing.assert_allclose(later, values, rtol=1e-9)
    assert not np.allclose(half, values)


@pytest.mark.slow
def test_seasons_have_the_covariance_of_the_periodic_kernel():
    """Of all functions together: they share their frequencies."""
    inputs = np.linspace(0, 1, 6)[None]
    process = Periodic(period=1.0, num_frequencies=500, lengthscale=0.8)
    values = functions(process, inputs, 4_000)
    distance = inputs[0][:, None] - inputs[0]
    expected = np.exp(-2 * np.sin(np.pi * distance) ** 2 / 0.8**2)
    np.testing.assert_allclose(values.T @ values / 4_000, expected, atol=0.1)


def test_monotone_networks_are_monotone_in_the_columns_that_are_named():
    process = Monotone(hidden=(6, 5), increasing="x", decreasing=["time"]).for_data(UNITS)
    process = perturbed(started(process, 2))
    line = np.linspace(-3, 3, 50)
    for column, sign in ((0, -1), (1, 1)):
        inputs = np.zeros((2, 50))
        inputs[column] = line
        values = values_of(process, noise_of(process, 20), inputs)
        assert (sign * np.diff(values, axis=1) > 0).all()
    free = started(Monotone(hidden=(6, 5), increasing=[0]), 2)
    along = np.stack([np.zeros(50), line])
    steps = np.diff(values_of(free, noise_of(free, 20), along), axis=1)
    assert (steps > 0).any()
    assert (steps < 0).any()


def test_a_warp_is_increasing():
    process = perturbed(started(GaussianProcess().warped(), 2), size=1.0)
    assert isinstance(process, WarpedInput)
    line = jnp.asarray(np.tile(np.linspace(-4, 4, 200), (2, 1)))
    assert (np.diff(eqx.filter_jit(process.warp)(line), axis=1) > 0).all()


def test_columns_by_name_and_number():
    assert UNITS.indices_of(["x", 0]) == (1, 0)
    names = ("age", "age is missing", "sex = f", "sex = m")
    units = DataUnits((4,), names, np.zeros(4), np.ones(4))
    assert units.indices_of(["sex", "age"]) == (2, 3, 0, 1)
    assert units.only([2, 0]).places == (2, 0)
    assert units.only([2, 3]).only([1]).places == (3,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gp", GaussianProcess()),
        ("linear + periodic(period=1) + gp", Linear() + Periodic(period=1) + GaussianProcess()),
        ("bnn | gp * linear", BayesianNeuralNetwork() | GaussianProcess() * Linear()),
        ("periodic(period=0.5, on='time')", Periodic(period=0.5).on("time")),
        ("gp.on(['a', 1]).warped()", GaussianProcess().on(["a", 1]).warped()),
        ("additive(gp(kernel='matern52'))", Additive(GaussianProcess("matern52"))),
        ("bnn(hidden=(20, 20), activation='relu')", BayesianNeuralNetwork((20, 20), "relu")),
        ("periodic(period=31536000)", Periodic(period=31_536_000)),
        ("monotone(increasing=['dose'])", Monotone(increasing=("dose",))),
    ],
)
def test_text_as_priors(text, expected):
    assert repr(parsed_prior(text)) == repr(expected)


def test_names_with_hyphens():
    process = parsed_prior("warped-gp + neural-sampler(hidden=[5])")
    assert [part.label for part in process.processes] == ["warped-gp", "neural-sampler"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic", "prior='magic' is not known: use one of additive"),
        ("gp + magic", "prior='magic' is not known"),
        ("gp +", "cannot be read"),
        ("gp - linear", "which is no prior"),
        ("2 * gp", "has '2', which is no prior"),
        ("gp(size=3)", "gp has no option 'size'; it has kernel, num_frequencies"),
        ("gp(kernel=__import__('os'))", "which is no value"),
        ("gp.__class__", "which is no prior"),
        ("gp.save('x')", r"there are .on\(columns\) and .warped\(\)"),
        ("(lambda: gp)()", "which is no prior"),
        ("gp(**{})", "not understood"),
        ("gp(num_frequencies=10000000)", "too large"),
        ("periodic(period=0)", "period=0: give a positive number"),
        ("periodic(period='year')", "period='year': give a positive number"),
        ("gp(1, 2, 3, 4, 5, 6, 7, 8)", "options that do not fit|kernel=1"),
        ("curves(past.csv)", "CurvePrior.read"),
        ("gp + " * 300 + "gp", "too long"),
        ("gp.on(1.5)", "names of columns, or their numbers"),
        ("(" * 400 + "gp" + ")" * 400, "cannot be read|no prior"),
    ],
)
def test_text_that_is_no_prior(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parsed_prior(text)
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Periodic(period=-1), "period=-1"),
        (lambda: Periodic(period=float("nan")), "period=nan"),
        (lambda: Periodic(lengthscale=0), "lengthscale=0"),
        (lambda: Monotone(activation="cos"), "not increasing"),
        (lambda: Monotone(activation="silu"), "not increasing"),
        (lambda: Linear().on([]), "on="),
        (lambda: Linear().on(True), "on="),
        (lambda: OnColumns(Linear(), ("x", None)), "on="),
        (lambda: Linear().on("z").for_data(UNITS), "no such column. The inputs are 'time', 'x'"),
        (lambda: Linear().on(2).for_data(UNITS), "number from 0 to 1"),
        (
            lambda: Monotone(increasing="x", decreasing=1).for_data(UNITS),
            "have a column in common",
        ),
        (lambda: WarpedInput(Linear(), 0), "num_steps=0"),
    ],
)
def test_bad_options_of_parts(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_functions_of_a_sum_differ_by_their_own_noise():
    process = started(Linear() + Linear(), 2)
    first, second = noise_of(process, 3)
    assert not np.allclose(first, second)
    assert not any(jnp.array_equal(a, b) for a, b in zip(first, second, strict=True))
