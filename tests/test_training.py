"""The training loop: reproducible, equal to plain Adam, and safe where the bound breaks down."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examples import TINY, RandomWaves, make_network, random_key, regression_data

from dvip import DVIPRegressor, Gaussian, ImplicitProcess, TrainingDiverged
from dvip.batches import ALL
from dvip.objectives import DeepModel, bound
from dvip.parameters import combine, split_trainable
from dvip.runtime import precision
from dvip.training import ArrayData, TrainingSettings, progress, train
from dvip.training.placement import PARTS
from dvip.training.step import MAX_GRADIENT, _noise, _shrunk

X, Y = regression_data()


def settings(**changes):
    values = dict(max_iter=20, batch_size=8, learning_rate=0.02, alpha=0.0, num_samples=1, seed=3)
    return TrainingSettings(**{**values, **changes})


def array_data(num_rows=60, dtype=np.float32):
    inputs = (X[:num_rows] - X.mean(axis=0)) / X.std(axis=0)
    targets = ((Y[:num_rows] - Y.mean()) / Y.std())[:, None]
    weights = np.linspace(0.5, 1.5, num_rows)
    return ArrayData(*(array.astype(dtype) for array in (inputs, targets, weights)))


def model(*widths, dtype="float32", **options):
    with precision(dtype):
        inputs = array_data(dtype=dtype).inputs
        return DeepModel(make_network(inputs, widths, **options), Gaussian().initialise(widths[-1]))


def leaves(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model)]


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(leaves(first), leaves(second), strict=True))


# The order of the rows.


@pytest.mark.parametrize(("num_rows", "batch_size"), [(12, 4), (10, 4), (7, 7), (5, 1)])
def test_every_row_once_an_epoch(num_rows, batch_size):
    rows = np.arange(num_rows, dtype=float)
    data = ArrayData(rows[:, None], 10 * rows[:, None], 100 * rows)
    num_epochs = 3 * batch_size  # so that steps and epochs end together
    num_steps = num_epochs * num_rows // batch_size
    batches = data.batches(0, 0, num_steps, batch_size)
    assert batches.inputs.shape == (num_steps, batch_size, 1)
    assert np.array_equal(batches.targets, 10 * batches.inputs)
    assert np.array_equal(batches.weights, 100 * batches.inputs[..., 0])
    epochs = batches.inputs.reshape(num_epochs, num_rows)
    assert np.array_equal(np.sort(epochs, axis=1), np.tile(rows, (num_epochs, 1)))
    assert len(np.unique(epochs, axis=0)) > 2 or num_rows == 1


def test_batches_depend_on_seed_and_position_alone():
    data = array_data()
    whole = data.batches(5, 0, 30, 8).inputs
    for first, count in ((0, 1), (7, 9), (29, 1)):
        assert np.array_equal(data.batches(5, first, count, 8).inputs, whole[first : first + count])
    assert not np.array_equal(data.batches(6, 0, 30, 8).inputs, whole)


# What a training does.


def plain_adam(start, data, config, num_steps):
    """The trained arrays after that many steps of Adam with a cosine decay, written out.

    For one layer, which has nothing random but its batches.
    """
    trained, rest = split_trainable(start)
    parameters, tree = jax.tree.flatten(trained)
    parameters = [np.asarray(leaf) for leaf in parameters]

    @jax.jit
    def slopes(parameters, batch, kl_weight):
        def loss(parameters):
            moved = combine(jax.tree.unflatten(tree, parameters), rest)
            key = random_key(0)
            noise = moved.network.draw_sample_noise(key, 1, len(batch.inputs))
            options = {"num_data": float(len(X)), "kl_weight": kl_weight}
            return -bound(moved, batch, noise, key, **options) / len(X)

        return jax.grad(loss)(parameters)

    batches = data.batches(config.seed, 0, num_steps, config.batch_size)
    first, second = ([np.zeros_like(leaf) for leaf in parameters] for _ in range(2))
    for step in range(num_steps):
        batch = jax.tree.map(lambda a, s=step: jnp.asarray(a[s]), batches)
        warm_up = config.kl_warm_up * config.max_iter
        gradient = slopes(parameters, batch, min(step / warm_up, 1.0) if warm_up else 1.0)
        rate = config.learning_rate * 0.5 * (1 + np.cos(np.pi * step / config.max_iter))
        for i, slope in enumerate(map(np.asarray, gradient)):
            first[i] = 0.9 * first[i] + 0.1 * slope
            second[i] = 0.999 * second[i] + 0.001 * slope**2
            mean = first[i] / (1 - 0.9 ** (step + 1))
            square = second[i] / (1 - 0.999 ** (step + 1))
            parameters[i] = parameters[i] - rate * mean / (np.sqrt(square) + 1e-8)
    return parameters


def assert_trained(model, expected):
    for ours, theirs in zip(leaves(split_trainable(model)[0]), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)


def test_the_kl_has_its_weight_in_time_where_a_training_is_shortened():
    config = settings(max_iter=1_000, kl_warm_up=0.5)
    steps = np.array([0, 50, 100, 250, 500])
    np.testing.assert_allclose(config.kl_weights(steps, 1_000), [0, 0.1, 0.2, 0.5, 1])
    np.testing.assert_allclose(config.kl_weights(steps, 200), [0, 0.5, 1, 1, 1])


@pytest.mark.parametrize(("max_iter", "kl_warm_up"), [(1, 0.0), (401, 0.3)])
def test_against_plain_adam(max_iter, kl_warm_up):
    """401 steps are not a whole number of the loop's pieces."""
    start, data = model(1, dtype="float64"), array_data(dtype=np.float64)
    config = settings(max_iter=max_iter, kl_warm_up=kl_warm_up)
    with precision("float64"):
        result = train(start, data, config)
        assert_trained(result.model, plain_adam(start, data, config, max_iter))


@pytest.fixture(scope="module")
def deep():
    return model(3, 1)


@pytest.fixture(scope="module")
def trained(deep):
    return train(deep, array_data(), settings(max_iter=250))


def adam_after(count, scales):
    """Adam's state after so many random gradients, a scale for each parameter."""
    gradients = scales * np.random.default_rng(0).normal(size=(count, len(scales)))
    adam = optax.scale_by_adam()

    @jax.jit
    def updated(gradients):
        start = adam.init(jnp.zeros(len(scales)))
        step = lambda state, gradient: (adam.update(gradient, state)[1], None)  # noqa: E731
        return jax.lax.scan(step, start, gradients)[0]

    return updated(jnp.asarray(gradients, jnp.float32))


shrunk_by = jax.jit(_shrunk)


def test_gradients_far_beyond_the_usual_are_shrunk():
    scales = np.array([1e-6, 1.0, 1e3, 1e6])
    state = adam_after(1_000, scales)
    usual = 5 * jnp.asarray(scales)
    assert np.array_equal(shrunk_by(usual, state), usual)
    # Their direction stays.
    np.testing.assert_allclose(
        shrunk_by(300 * jnp.asarray(scales), state), MAX_GRADIENT * scales, rtol=0.1
    )
    one = jnp.asarray(scales).at[0].multiply(1e5)
    shrunk = shrunk_by(one, state)
    np.testing.assert_allclose(shrunk / one, shrunk[0] / one[0])
    np.testing.assert_allclose(shrunk[0], MAX_GRADIENT * 2 * scales[0], rtol=0.1)  # 1 of 4


def test_gradients_are_not_shrunk_before_their_size_is_known_or_where_they_are_nothing():
    scales = np.ones(3)
    early = adam_after(20, scales)
    large = jnp.full(3, 1e9)
    assert np.array_equal(shrunk_by(large, early), large)
    nothing = adam_after(200, np.array([1.0, 1.0, 0.0]))  # one had no gradient so far
    noise = jnp.array([1.0, -1.0, 1e-15])
    assert np.array_equal(shrunk_by(noise, nothing), noise)
    assert np.array_equal(shrunk_by(jnp.zeros(3), nothing), jnp.zeros(3))


def test_same_seed_same_model(deep, trained):
    again = train(deep, array_data(), settings(max_iter=250))
    assert same(trained.model, again.model)
    assert np.array_equal(trained.bounds, again.bounds)


def test_other_seed_other_model(deep, trained):
    other = train(deep, array_data(), settings(max_iter=250, seed=4))
    assert not same(trained.model, other.model)


def test_bound_improves(trained):
    assert np.isfinite(trained.bounds).all()
    assert len(trained.bounds) == -(-250 // trained.steps_per_bound) > 1
    assert trained.bounds[-1] > trained.bounds[0] + 10


def test_caller_keeps_the_model(deep, trained):
    """The loop donates its buffers; they are not those of the caller."""
    assert same(deep, model(3, 1))


def test_only_trained_arrays_change(deep, trained):
    before, after = split_trainable(deep), split_trainable(trained.model)
    assert same(before[1], after[1])
    assert not any(
        np.array_equal(a, b) for a, b in zip(leaves(before[0]), leaves(after[0]), strict=True)
    )


def test_one_compilation_for_all_pieces_and_for_any_number_of_rows():
    compiled = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            compiled.append(event)

    start = model(1, process=RandomWaves())
    train(start, array_data(), settings(max_iter=150))
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        train(start, array_data(), settings(max_iter=450))  # three pieces of as many steps
        train(start, array_data(num_rows=41), settings(max_iter=150))
        train(start, array_data(), settings(max_iter=150, learning_rate=0.1, seed=7))
        assert compiled == []
        train(start, array_data(), settings(max_iter=398))  # pieces of another length
        assert len(compiled) == 2  # the noise and the steps
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("num_parts", [2, pytest.param(4, marks=pytest.mark.slow), 5])
def test_a_row_has_the_same_noise_however_many_parts_share_a_batch(deep, num_parts):
    """A thousand rows have four blocks of noise; two parts draw two each, five parts all."""
    key, first = jax.random.key(3), jnp.int32(400)
    num_steps, num_samples, num_rows = 3, 2, 1_000
    whole = _noise(deep, key, first, (num_steps, num_samples, num_rows)).inner
    assert whole.shape == (num_steps, num_samples, sum(deep.network.inner_widths), num_rows)
    assert len(np.unique(whole)) > 0.99 * whole.size
    shape = (num_steps, num_samples, num_rows // num_parts)
    part = lambda _: _noise(deep, key, first, shape, num_parts).inner  # noqa: E731
    parts = jax.vmap(part, axis_name=PARTS)(jnp.arange(num_parts))
    np.testing.assert_array_equal(np.concatenate(list(parts), axis=-1), whole)


def test_progress_is_reported(deep):
    heard = []
    result = train(
        deep,
        array_data(),
        settings(max_iter=250),
        lambda steps, bound: heard.append((steps, bound)),
    )
    steps, bounds = zip(*heard, strict=True)
    assert steps[-1] == 250
    assert list(steps) == sorted(set(steps))
    assert np.array_equal(bounds, result.bounds)


def test_without_a_terminal_there_is_a_line_a_minute(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 40.0, 70.0, 100.0, 130.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress.progress_bar(6_000, shown=True) as report:
        for steps in (1_000, 1_500, 2_000, 2_500, 3_000):  # the first may be a checkpoint's
            report(steps, -1234.56)
    assert capsys.readouterr().err == (
        "2,000 of 6,000 steps, bound -1,234.6, about 4 min left\n"
        "3,000 of 6,000 steps, bound -1,234.6, about 3 min left\n"
    )
    with progress.progress_bar(6_000, shown=False) as report:
        report(1, 0.0)
    assert capsys.readouterr().err == ""


def test_own_source_of_data(deep, trained):
    """Anything that has rows and gives batches can be trained on."""

    class Doubling:
        num_rows = len(X)
        num_columns = X.shape[1] + 2

        fingerprint = array_data().fingerprint

        def batches(self, seed, step, num_steps, batch_size, part=ALL):
            batches = array_data().batches(seed, step, num_steps, batch_size, part)
            return batches._replace(targets=2 * batches.targets)

    other = train(deep, Doubling(), settings(max_iter=250))
    assert not same(other.model, trained.model)


# A bound that is not finite.


class BreaksDown(ImplicitProcess):
    """Functions whose bound falls without end in a parameter that must stay positive."""

    margin: jax.Array | None = None
    start: float = eqx.field(static=True, default=1.0)

    def initialise(self, num_inputs, key):
        return BreaksDown(jnp.asarray(self.start), self.start)

    def draw_noise(self, key, num_samples):
        return jax.random.normal(key, (num_samples, 1))

    def __call__(self, noise, inputs):
        # Smaller functions suit the data; below zero there are none.
        return noise * (jnp.sum(inputs, axis=0) + 30 * jnp.sqrt(self.margin))


def test_training_stops_where_the_bound_is_not_finite():
    estimator = DVIPRegressor.paper(
        **{**TINY, "prior": BreaksDown(), "n_layers": 1, "max_iter": 300, "learning_rate": 0.1}
    )
    with pytest.raises(TrainingDiverged, match=r"step \d+.*learning_rate") as caught:
        estimator.fit(X, Y)
    stopped = caught.value
    assert 0 < stopped.step < 300
    assert f"step {stopped.step}:" in str(stopped)
    assert estimator.n_iter_ == stopped.step
    # The parameters are the last finite ones, and the estimator can be used.
    assert all(np.isfinite(leaf).all() for leaf in leaves(estimator.model_))
    assert same(estimator.model_, stopped.result.model)
    mean, std = estimator.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_parameters_are_kept_where_the_first_bound_is_not_finite():
    start = model(1, process=BreaksDown(start=-1.0))
    with pytest.raises(TrainingDiverged, match="step 0:") as caught:
        train(start, array_data(), settings(max_iter=500))
    assert caught.value.step == 0
    assert same(caught.value.result.model, start)


def test_kept_parameters_are_those_of_the_last_finite_bound():
    """The bound of step 5 is not finite, here because of its data: step 4 has the last one."""

    class Breaking:
        """From step 5 on, targets whose squares no float can hold."""

        num_rows = len(X)
        num_columns = X.shape[1] + 2

        fingerprint = array_data().fingerprint

        def batches(self, seed, step, num_steps, batch_size, part=ALL):
            batches = array_data(dtype=np.float64).batches(seed, step, num_steps, batch_size, part)
            batches.targets[max(0, 5 - step) :] = 1e200
            return batches

    start, config = model(1, dtype="float64"), settings(max_iter=400)
    with precision("float64"):
        with pytest.raises(TrainingDiverged, match="step 5:") as caught:
            train(start, Breaking(), config)
        assert caught.value.step == 5
        assert_trained(caught.value.result.model, plain_adam(start, Breaking(), config, 4))


def test_absurd_learning_rate():
    """The step that leads to no finite bound is taken back, and predictions are finite."""
    estimator = DVIPRegressor.paper(**{**TINY, "n_layers": 1, "learning_rate": 1e6})
    with pytest.raises(TrainingDiverged):
        estimator.fit(X, Y)
    mean, std = estimator.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
