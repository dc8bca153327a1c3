"""The Gaussian process in closed form, against formulas that are computed directly."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from dvip import closed_form, sum_kernel
from dvip.closed_form import ClosedFormGP, conditioned, fit_closed_form
from dvip.sampled_gp import SampledGP, fit_sampled, hamiltonian_samples
from dvip.sum_kernel import GPData, SumKernel, loss_of_parameters

LEAST_NOISE = sum_kernel.LEAST_NOISE


def make_data(num_rows=40, num_inputs=2, num_outputs=1, seed=0, *, known=False, factors=False):
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(num_rows, num_inputs))
    clean = np.sin(2 * inputs[:, :1] + np.arange(num_outputs)) + 0.5 * inputs[:, -1:]
    return GPData(
        inputs,
        clean + 0.1 * random.normal(size=clean.shape),
        random.integers(1, 4, num_rows).astype(float),
        random.uniform(0, 0.2, num_rows) if known else None,
        random.uniform(0.5, 2, num_rows) if factors else None,
    )


def make_kernel(num_inputs=2, seed=0):
    usual = SumKernel.usual(num_inputs).parameters
    return SumKernel(usual + 0.3 * np.random.default_rng(seed).normal(size=usual.shape))


def direct_kernel(kernel, first, second):
    """The sum, from differences of rows."""
    rough, smooth, linear = kernel.parts
    differences = first[:, None] - second[None]
    distance = np.sqrt(3 * np.square(differences * rough[1]).sum(axis=-1))
    total = rough[0] * (1 + distance) * np.exp(-distance)
    total += smooth[0] * np.exp(-0.5 * np.square(differences * smooth[1]).sum(axis=-1))
    products = (first[:, None] * linear[1]) * (second[None] * linear[1])
    return total + linear[0] * (1 + products.sum(axis=-1))


def direct_posterior(kernel, data, inputs):
    """Mean and covariance of f by the textbook's formula: rows of weight w have noise / w."""
    factors = 1.0 if data.factors is None else data.factors
    errors = 0.0 if data.errors is None else data.errors
    noise = (kernel.noise * factors + LEAST_NOISE) / data.weights + errors
    covariance = direct_kernel(kernel, data.inputs, data.inputs) + np.diag(noise)
    cross = direct_kernel(kernel, inputs, data.inputs)
    solved = np.linalg.solve(covariance, np.hstack([data.targets, cross.T]))
    mean, explained = np.split(solved, [data.targets.shape[1]], axis=1)
    return cross @ mean, direct_kernel(kernel, inputs, inputs) - cross @ explained


def test_the_kernel_is_the_sum_of_three():
    kernel, random = make_kernel(3), np.random.default_rng(1)
    first, second = random.normal(size=(7, 3)), random.normal(size=(5, 3))
    np.testing.assert_allclose(kernel(first, second), direct_kernel(kernel, first, second))
    np.testing.assert_allclose(kernel.variances(first), np.diag(kernel(first, first)))


def test_slopes_are_those_of_the_kernel():
    """E[f'(x)²] by differences of a smooth function: ∂²k(x, x')/∂x∂x' at x = x'."""
    parameters = make_kernel(2).parameters.copy()
    parameters[1] = -40  # no Matérn kernel, whose derivative has no such difference
    kernel, step = SumKernel(parameters), 1e-4
    middle, expected = np.array([[0.3, -0.2]]), []
    for axis in range(2):
        moved = middle + step * np.eye(2)[axis]
        both = np.vstack([middle, moved])
        expected.append(np.array([-1, 1]) @ kernel(both, both) @ np.array([-1, 1]) / step**2)
    np.testing.assert_allclose(np.square(kernel.slopes), expected, rtol=1e-4)


@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("options", [{}, {"known": True}, {"known": True, "factors": True}])
def test_gradient_of_the_loss(num_outputs, options):
    data = make_data(25, 2, num_outputs, **options)
    parameters = make_kernel().parameters
    expected = approx_fprime(parameters, lambda values: loss_of_parameters(values, data)[0], 1e-6)
    np.testing.assert_allclose(
        loss_of_parameters(parameters, data)[1], expected, rtol=1e-4, atol=1e-4
    )


def test_the_loss_in_blocks_is_that_of_all_rows_together(monkeypatch):
    data, parameters = (
        make_data(25, num_outputs=2, known=True, factors=True),
        make_kernel().parameters,
    )
    together = loss_of_parameters(parameters, data)
    monkeypatch.setattr(sum_kernel, "ROWS_OF_BLOCK", 7)
    in_blocks = loss_of_parameters(parameters, data)
    np.testing.assert_allclose(in_blocks[0], together[0], rtol=1e-12)
    np.testing.assert_allclose(in_blocks[1], together[1], rtol=1e-9, atol=1e-9)


def test_the_loss_is_the_marginal_likelihood_and_a_prior():
    data, kernel = make_data(15, num_outputs=2, known=True), make_kernel()
    noise = (kernel.noise + LEAST_NOISE) / data.weights + data.errors
    covariance = direct_kernel(kernel, data.inputs, data.inputs) + np.diag(noise)
    _, log_determinant = np.linalg.slogdet(covariance)
    fit = np.sum(data.targets * np.linalg.solve(covariance, data.targets)) + 2 * log_determinant
    moved = kernel.parameters - SumKernel.usual(2).parameters
    moved[0] /= sum_kernel.ANY_FUNCTION.spread
    moved[1:] /= sum_kernel.PRIOR_STD
    expected = 0.5 * (fit + moved @ moved)
    np.testing.assert_allclose(loss_of_parameters(kernel.parameters, data)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"known": True}, {"known": True, "factors": True}])
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_with_few_rows_the_posterior_is_exact(options, num_outputs):
    data, kernel = make_data(30, num_outputs=num_outputs, **options), make_kernel()
    inputs = 2 * np.random.default_rng(5).normal(size=(20, 2))
    model, _ = conditioned(kernel, data, [], data.inputs)
    found = model.moments(inputs)
    mean, covariance = direct_posterior(kernel, data, inputs)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.noise[:, 0], kernel.noise + LEAST_NOISE)


def test_a_weight_of_two_is_the_row_twice():
    data = make_data(20, known=True)
    data = data._replace(errors=None)
    repeated = np.repeat(np.arange(20), data.weights.astype(int))
    twice = data._replace(weights=np.ones(20)).chosen(repeated)
    kernel, inputs = make_kernel(), np.random.default_rng(5).normal(size=(9, 2))
    weighted = conditioned(kernel, data, [], data.inputs)[0].moments(inputs)
    of_twice = conditioned(kernel, twice, [], data.inputs)[0].moments(inputs)
    np.testing.assert_allclose(weighted.mean, of_twice.mean, atol=1e-3)
    np.testing.assert_allclose(weighted.variance, of_twice.variance, rtol=1e-2, atol=1e-5)


def test_left_out_folds_are_as_refitted_without_them():
    """With the same kernel and inducing points; rows of no fold always count."""
    data, kernel = make_data(40, known=True), make_kernel()
    folds, inducing = np.split(np.arange(30), 3), data.inputs[::2]
    _, left_out = conditioned(kernel, data, folds, inducing)
    for fold, found in zip(folds, left_out, strict=True):
        rest = data.chosen(np.setdiff1d(np.arange(40), fold))
        refitted, _ = conditioned(kernel, rest, [], inducing)
        expected = refitted.moments(data.inputs[fold])
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-4)


def test_left_out_rows_are_predicted_by_the_others():
    """With all rows as inducing points: the textbook's formula without the fold."""
    data, kernel = make_data(30), make_kernel()
    fold = np.arange(6)
    _, (found,) = conditioned(kernel, data, [fold], data.inputs)
    mean, covariance = direct_posterior(kernel, data.chosen(np.arange(6, 30)), data.inputs[fold])
    np.testing.assert_allclose(found.mean, mean, atol=1e-4)
    np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_function_draws_have_the_moments_of_the_posterior(num_outputs):
    data, kernel = make_data(12, num_outputs=num_outputs), make_kernel()
    model, _ = conditioned(kernel, data, [], data.inputs)
    inputs = np.random.default_rng(5).normal(size=(6, 2))
    mean, covariance = direct_posterior(kernel, data, inputs)
    # A set of waves is shared by the functions of a draw: several draws.
    values = np.concatenate([model.draw_functions(500, seed)(inputs) for seed in range(8)])
    assert values.shape == (4000, 6, num_outputs)
    spread = np.sqrt(np.diag(covariance))[:, None]
    assert np.all(np.abs(values.mean(axis=0) - mean) < 5 * spread / np.sqrt(4000))
    for output in range(num_outputs):
        found = np.cov(values[..., output].T)
        np.testing.assert_allclose(found, covariance, atol=0.08 * covariance.max())
    if num_outputs == 2:  # whose errors have nothing to do with each other
        between = np.cov(values[:, 0, 0], values[:, 0, 1])
        assert abs(between[0, 1]) < 0.08 * between[0, 0]


def test_function_draws_are_functions_and_of_their_seed():
    data = make_data(12)
    model, _ = conditioned(make_kernel(), data, [], data.inputs)
    functions, inputs = model.draw_functions(3, 1), np.random.default_rng(5).normal(size=(6, 2))
    np.testing.assert_allclose(functions(inputs)[:, 2:4], functions(inputs[2:4]))
    np.testing.assert_array_equal(functions(inputs), model.draw_functions(3, 1)(inputs))
    assert not np.allclose(functions(inputs), model.draw_functions(3, 2)(inputs))
    assert functions(inputs[:0]).shape == (3, 0, 1)


def test_fewer_inducing_points_stay_sensible():
    """Means near those of the exact posterior, variances not below them by much."""
    data = make_data(200)._replace(weights=np.ones(200))
    kernel = make_kernel()
    inputs = np.random.default_rng(5).normal(size=(50, 2))
    mean, covariance = direct_posterior(kernel, data, inputs)
    variance = np.diag(covariance)
    for number, worst in ((100, 0.5), (30, 1.5), (5, 4.0)):
        found = conditioned(kernel, data, [], data.inputs[:number])[0].moments(inputs)
        assert np.all(found.variance > 0.5 * variance)
        errors = np.square(found.mean - mean)[:, 0]
        assert np.mean(errors / found.variance) < worst
        assert np.all(found.variance <= kernel.variances(inputs) * 1.0001)


def test_rows_in_pieces_are_predicted_alike(monkeypatch):
    data, kernel = make_data(40), make_kernel()
    inputs = np.random.default_rng(5).normal(size=(30, 2))
    whole = conditioned(kernel, data, [], data.inputs[:20])[0].moments(inputs)
    monkeypatch.setattr(closed_form, "ROWS_AT_ONCE", 7)
    pieces = conditioned(kernel, data, [], data.inputs[:20])[0].moments(inputs)
    np.testing.assert_allclose(pieces.mean, whole.mean, atol=1e-5)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-4)


def noisy_rows(std, num_rows=200, seed=0):
    random = np.random.default_rng(seed)
    inputs = random.uniform(-1.7, 1.7, size=(num_rows, 1))
    noise = std(inputs[:, 0]) * random.normal(size=num_rows)
    targets = (np.sin(2 * inputs[:, 0]) + noise)[:, None]
    return GPData(inputs, targets, np.ones(num_rows)), np.array_split(np.arange(num_rows), 5)


@pytest.fixture(scope="module")
def varying():
    data, folds = noisy_rows(lambda x: np.exp(x - 1.5))
    return fit_closed_form(data, folds, 0)[0]


def test_noise_that_varies_is_found(varying):
    inputs = np.linspace(-1.5, 1.5, 7)[:, None]
    found = np.sqrt(varying.moments(inputs).noise @ varying.moments(inputs).weights)
    ratios = found / np.exp(inputs[:, 0] - 1.5)
    assert varying.noise_mean is not None
    assert found[-1] > 5 * found[0]
    assert np.all((ratios > 0.5) & (ratios < 2))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_noise_that_does_not_vary_stays_constant(seed):
    data, folds = noisy_rows(lambda x: np.full_like(x, 0.3), seed=seed)
    model, left_out = fit_closed_form(data, folds, 0)
    noise = model.moments(np.linspace(-1.5, 1.5, 7)[:, None]).noise @ left_out[0].weights
    assert noise.max() < 1.5 * noise.min()
    np.testing.assert_allclose(np.sqrt(noise), 0.3, rtol=0.2)


def test_left_out_rows_are_predicted_as_sure_as_is_right(varying):
    data, _ = noisy_rows(lambda x: np.exp(x - 1.5), seed=9)
    moments = varying.moments(data.inputs)
    std = np.sqrt(moments.variance + moments.noise @ moments.weights)
    scores = (data.targets - moments.mean)[:, 0] / std
    assert 0.7 < np.mean(np.square(scores)) < 1.4


def test_arrays_make_the_same_process(varying):
    constant, _ = conditioned(make_kernel(), make_data(10, num_outputs=2), [], np.eye(2))
    for model, shape in ((varying, (1, 1)), (constant, (2, 2))):
        again = ClosedFormGP.from_arrays(model.arrays(), *shape)
        inputs = np.random.default_rng(0).normal(size=(9, shape[0]))
        for one, other in zip(model.moments(inputs), again.moments(inputs), strict=True):
            np.testing.assert_array_equal(one, other)
        one, other = (each.draw_functions(4, 3)(inputs) for each in (model, again))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name", ["parameters", "inducing", "factor", "mean", "noise_parameters", "noise_mean", "spread"]
)
def test_arrays_that_do_not_fit_are_refused(varying, name):
    arrays = varying.arrays()
    wrong = {**arrays, name: np.zeros((3, 1, 2))}
    with pytest.raises(ValueError, match=r"expected|shape"):
        ClosedFormGP.from_arrays(wrong, 1, 1)
    other_type = {**arrays, name: arrays[name].astype(np.float16)}
    with pytest.raises(ValueError, match="expected"):
        ClosedFormGP.from_arrays(other_type, 1, 1)
    if name != "noise_mean":  # without it the noise does not vary
        with pytest.raises(KeyError):
            ClosedFormGP.from_arrays({key: arrays[key] for key in arrays if key != name}, 1, 1)
    with pytest.raises(ValueError, match="expected"):
        ClosedFormGP.from_arrays(arrays, 2, 1)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 12])
def test_few_rows(num_rows):
    data = make_data(num_rows)
    model, _ = fit_closed_form(data, [], 0)
    moments = model.moments(np.vstack([data.inputs, [[100.0, -100.0]]]))
    assert all(np.isfinite(part).all() for part in moments)
    assert np.all(moments.variance > 0)


@pytest.mark.parametrize("change", ["same rows", "constant inputs", "constant targets", "far rows"])
def test_odd_rows(change):
    data = make_data(60)
    match change:
        case "same rows":
            data = data.chosen(np.arange(60) // 6)
        case "constant inputs":
            data = data._replace(inputs=np.zeros((60, 2)))
        case "constant targets":
            data = data._replace(targets=np.zeros((60, 1)))
        case "far rows":
            data.inputs[:3] *= 1e6
    folds = np.array_split(np.arange(60), 5)
    model, left_out = fit_closed_form(data, folds, 0)
    for moments in (model.moments(data.inputs), *left_out):
        assert all(np.isfinite(part).all() for part in moments)
        assert np.all(moments.noise > 0)


def test_the_same_seed_gives_the_same_process():
    data, folds = make_data(40), np.array_split(np.arange(40), 4)
    first, second = (fit_closed_form(data, folds, 3)[0].arrays() for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_a_constant_predicts_the_mean_and_the_spread_everywhere():
    random = np.random.default_rng(0)
    inputs, targets = random.normal(size=(30, 2)), random.normal(2.0, 3.0, size=(30, 1))
    targets = targets - targets.mean()
    folds = np.array_split(np.arange(30), 3)
    data = GPData(inputs, targets, np.ones(30))
    model, left_out = closed_form.fit_constant(data, folds)
    moments = model.moments(np.array([[0.0, 0.0], [50.0, -50.0]]))
    np.testing.assert_allclose(moments.mean, 0, atol=0.05)
    total = moments.variance + moments.noise[:, 0]
    np.testing.assert_allclose(total, targets.var(), rtol=0.1)
    assert len(left_out) == 3


def test_samples_have_the_moments_of_their_density():
    """Of a Gaussian whose variables have other scales and depend on each other."""
    factor = np.array([[1.0, 0.0], [0.8, 0.5]])
    precision = np.linalg.inv(factor @ factor.T)
    centre = np.array([1.0, -2.0])

    def loss(values):
        apart = values - centre
        return 0.5 * apart @ precision @ apart, precision @ apart

    random = np.random.default_rng(0)
    samples = np.array(hamiltonian_samples(loss, np.zeros(2), random, 10_000))
    np.testing.assert_allclose(samples.mean(axis=0), centre, atol=0.1)
    np.testing.assert_allclose(np.cov(samples.T), factor @ factor.T, atol=0.1)


def test_samples_stay_where_the_density_is():
    """Half of a normal distribution: elsewhere it is zero."""

    def loss(values):
        return (0.5 * values @ values, values) if values[0] > 0 else (np.inf, values)

    samples = hamiltonian_samples(loss, np.ones(1), np.random.default_rng(0), 10_000)
    assert np.min(samples) > 0
    np.testing.assert_allclose(np.mean(samples), np.sqrt(2 / np.pi), atol=0.08)


def test_folds_of_sampled_kernels_do_not_see_their_rows():
    data, folds = make_data(40, 1), [np.arange(0, 20), np.arange(20, 40)]
    (model, before), other = fit_sampled(data, folds, 0), data.targets.copy()
    other[:20] += 100
    changed, after = fit_sampled(data._replace(targets=other), folds, 0)
    assert len(model.members) == len(changed.members) == 8
    far = [np.abs(np.mean([m.mean for m in each], axis=0)).max() for each in (*before, *after)]
    assert max(far[:3]) < 10  # the first fold is predicted by the others, which did not change
    assert far[3] > 20


def test_a_sampled_process_is_the_mixture_of_its_members():
    data = make_data(30, 2)
    model, _ = fit_sampled(data, [], 0)
    inputs = make_data(5, 2, seed=1).inputs
    means = np.array([member.moments(inputs).mean[:, 0] for member in model.members])
    variances = np.array([member.moments(inputs).variance for member in model.members])
    values = model.draw_functions(8_000, 0)(inputs)[..., 0]
    expected = variances.mean(axis=0) + means.var(axis=0)
    atol = 5 * np.sqrt(expected.max() / 8_000)
    np.testing.assert_allclose(values.mean(axis=0), means.mean(axis=0), atol=atol)
    np.testing.assert_allclose(values.var(axis=0), expected, rtol=0.2)
    again = SampledGP.from_arrays(model.arrays(), 2, 1)
    np.testing.assert_array_equal(
        again.members[3].moments(inputs).mean, model.members[3].moments(inputs).mean
    )
    for name in ("parameters", "factor"):
        with pytest.raises(ValueError, match="samples"):
            SampledGP.from_arrays({**model.arrays(), name: model.arrays()[name][1:]}, 2, 1)


def test_a_smooth_function_has_hardly_a_rough_part():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(60, 1))
    targets = np.sin(3 * inputs) + 0.1 * random.normal(size=(60, 1))
    data = sum_kernel.GPData(inputs, targets, np.ones(60), None)

    def share(prior):
        (rough, _), (smooth, _), _ = sum_kernel.fitted_kernel(data, np.arange(60), prior).parts
        return rough / smooth

    assert share(sum_kernel.SMOOTH_FUNCTION) < 1e-2 < share(sum_kernel.ANY_FUNCTION)
