"""Simulators and past curves as processes: what they give, and what is told when they fail."""

import time

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from examples import random_key
from scipy import stats

from dvip import CurvePrior, JaxSimulatorPrior, Linear, SimulatorPrior
from dvip.estimators.simulations import CarriedInputs, Simulations
from dvip.processes import DataUnits
from dvip.processes.expressions import parsed_prior
from dvip.processes.simulator import Carried, simulators_of

pytestmark = pytest.mark.usefixtures("double")

ROWS = np.random.default_rng(0).uniform(0, 5, size=(30, 2))
UNITS = DataUnits((2,), ("time", "x"), np.array([2.0, 1.0]), np.array([3.0, 0.5]), (5.0, 2.0))


def decay(inputs, rng):
    return rng.normal() * np.exp(-rng.gamma(2) * inputs[:, 0])


def told(prior):
    return simulators_of(prior.for_data(UNITS))


# Simulators in NumPy.


def test_a_seed_is_a_function():
    simulator = SimulatorPrior(decay)
    values = simulator.run(ROWS, (3, 0, 1))
    rng = np.random.default_rng((3, 0, 1))
    np.testing.assert_array_equal(values, decay(ROWS, rng))
    np.testing.assert_array_equal(simulator.run(ROWS[4:9], (3, 0, 1)), values[4:9])
    assert not np.allclose(simulator.run(ROWS, (3, 0, 2)), values)


def test_parameters_are_drawn_from_their_distributions():
    prior = SimulatorPrior(
        lambda inputs, a, b: a + b * inputs[:, 0],
        {"a": stats.norm(3, 2), "b": stats.gamma(2, scale=0.5)},
    )
    at = np.array([[0.0], [1.0]])
    values = np.array([prior.run(at, (0, 0, number)) for number in range(800)])
    assert stats.kstest(values[:, 0], stats.norm(3, 2).cdf).pvalue > 1e-3
    slopes = values[:, 1] - values[:, 0]
    assert stats.kstest(slopes, stats.gamma(2, scale=0.5).cdf).pvalue > 1e-3


def test_it_reads_the_columns_that_it_is_on():
    prior = (SimulatorPrior(lambda inputs, rng: inputs.sum(axis=1)).on("x") + Linear()).for_data(
        UNITS
    )
    (simulator,) = simulators_of(prior)
    np.testing.assert_array_equal(simulator.run(ROWS, (0,)), ROWS[:, 1])


def test_values_are_carried_behind_the_inputs_in_the_unit_of_the_model():
    simulators = told(SimulatorPrior(decay) + SimulatorPrior(decay).on("x") + Linear())
    simulations = Simulations.of(simulators, ROWS, 4, 7, UNITS.target)
    scaled = (ROWS - UNITS.offset) / UNITS.scale
    carried = np.asarray(CarriedInputs(scaled, ROWS, simulations, simulators))
    assert carried.shape == (30, 2 + 2 * 4)
    third = simulators[0].run(ROWS, (7, 0, 3))
    np.testing.assert_allclose(carried[:, 2 + 2], (third - 5) / 2)

    process = Carried(
        (SimulatorPrior(decay) + SimulatorPrior(decay).on("x") + Linear()).for_data(UNITS), 2, 4
    ).initialise(2, random_key(0))
    noise = process.draw_noise(random_key(1), 3)
    values = process(noise, jnp.asarray(carried.T))
    line = process.process.processes[2](noise[2], jnp.asarray(scaled.T))
    np.testing.assert_allclose(values, line + carried[:, 2:5].T + carried[:, 6:9].T, rtol=1e-9)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3)))
    combined = process.combined(noise, weights, jnp.asarray(carried.T))
    np.testing.assert_allclose(combined, weights @ values, rtol=1e-9)
    with pytest.raises(ValueError, match="4 were simulated: set n_prior_samples=9"):
        process.draw_noise(random_key(1), 9)


def test_each_function_is_run_once_for_many_rows_and_remembered(monkeypatch):
    calls = []

    def counting(inputs, rng):
        calls.append(len(inputs))
        return rng.normal() + inputs[:, 0]

    simulators = told(SimulatorPrior(counting))
    simulations = Simulations.of(simulators, ROWS, 6, 0, None)
    assert calls == [30] * 6 + [5]  # and once more at a few rows
    calls.clear()
    carried = CarriedInputs(ROWS, ROWS, simulations, simulators)
    np.asarray(carried)
    assert calls == []
    # Other rows come in blocks of bounded size, each function once a block.
    monkeypatch.setattr("dvip.estimators.simulations.MAX_NUMBERS", 6 * 20)
    others = np.random.default_rng(1).uniform(size=(50, 2))
    carried = CarriedInputs(others, others, simulations, simulators)
    pieces = np.concatenate([carried[start : start + 7] for start in range(0, 50, 7)])
    assert calls == [25] * 12 + [15] * 6
    at_once = np.stack([simulators[0].run(others, (0, 0, number + 1)) for number in range(6)], 1)
    offset, scale, _ = simulations.numbers
    np.testing.assert_allclose(pieces[:, 2:], (at_once - offset) / scale)


CHANGING = iter(range(10_000))


def slow(inputs, rng):
    time.sleep(30)


def raising(inputs, rng):
    return 1 / 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising, r"failed with the seed .* at 30 rows of inputs from \[.*ZeroDivisionError"),
        (lambda inputs, rng: inputs, r"shape \(30, 2\) .* must be \(30,\)"),
        (lambda inputs, rng: 1.0, r"shape \(\) "),
        (lambda inputs, rng: np.where(inputs[:, 0] > 2, np.nan, 0), r"gave nan for .*inputs=\["),
        (lambda inputs, rng: ["a"] * len(inputs), "gave list, no numbers"),
        (lambda inputs, rng: None, "gave"),
        (lambda inputs, rng: np.full(len(inputs), float(next(CHANGING))), "and now"),
        (lambda inputs, rng: rng.normal(size=len(inputs)), "not depend on other rows"),
        (lambda inputs, rng: inputs[:, 0] - inputs[:, 0].mean(), "not depend on other rows"),
        (lambda inputs: inputs[:, 0], "failed.*TypeError"),
    ],
)
def test_simulators_that_fail_are_told_with_the_inputs(function, message):
    with pytest.raises(ValueError, match=message) as caught:
        Simulations.of(told(SimulatorPrior(function)), ROWS, 3, 0, None)
    assert len(str(caught.value)) < 450


def test_a_simulator_that_hangs_ends_at_its_time_limit():
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"more than time_limit=0.2 s with the seed"):
        SimulatorPrior(slow, time_limit=0.2).run(ROWS, (0,))
    assert time.monotonic() - started < 5
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        SimulatorPrior(raising, time_limit=5).run(ROWS, (0,))


def test_another_function_than_that_of_the_training_is_found_out():
    simulations = Simulations.of(told(SimulatorPrior(decay)), ROWS, 3, 0, None)
    restored = Simulations.from_arrays(simulations.arrays(), 2)
    others = told(SimulatorPrior(lambda inputs, rng: decay(inputs, rng) + 0.01))
    with pytest.raises(ValueError, match="be that of the training"):
        restored.at(others, ROWS[:3])
    with pytest.raises(ValueError, match="do not fit"):
        Simulations.from_arrays(simulations.arrays(), 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SimulatorPrior(3), "function=3 cannot be called"),
        (lambda: SimulatorPrior(decay, time_limit=0), "time_limit=0"),
        (lambda: SimulatorPrior(decay, {"a": 3}), "no frozen distribution"),
        (lambda: SimulatorPrior(decay, [1]), "give a dictionary"),
        (lambda: JaxSimulatorPrior(decay, {}), "at least one parameter"),
        (lambda: SimulatorPrior(decay)(jnp.zeros(3), jnp.zeros((2, 3))), "JaxSimulatorPrior"),
    ],
)
def test_bad_options_of_simulators(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Simulators in JAX.

WIDE = {"a": stats.norm(3, 2), "b": stats.gamma(2, scale=0.5), "c": stats.uniform(-1, 3)}


def plane(inputs, a, b, c):
    return a + b * inputs[:, 0] + c * inputs[:, 1]


def test_learned_parameters_start_with_the_distributions_that_were_given():
    prior = JaxSimulatorPrior(plane, WIDE).initialise(2, random_key(0))
    drawn = np.asarray(prior.drawn(prior.draw_noise(random_key(1), 4_000)))
    for values, distribution in zip(drawn.T, WIDE.values(), strict=True):
        assert stats.kstest(values, distribution.cdf).pvalue > 1e-3
    z = np.linspace(-4, 4, 33)
    noise = jnp.asarray(np.tile(z, (3, 1)).T)
    for values, each in zip(np.asarray(prior.drawn(noise)).T, WIDE.values(), strict=True):
        np.testing.assert_allclose(values, each.ppf(stats.norm.cdf(z)), rtol=1e-3, atol=1e-4)
    far = np.asarray(prior.drawn(jnp.full((1, 3), 100.0)))
    assert far[0, 2] <= 2.0  # within the support


def test_a_simulator_in_jax_sees_the_units_of_the_user():
    prior = JaxSimulatorPrior(plane, WIDE).for_data(UNITS).initialise(2, random_key(0))
    noise = prior.draw_noise(random_key(1), 3)
    scaled = (ROWS - UNITS.offset) / UNITS.scale
    a, b, c = np.asarray(prior.drawn(noise)).T[..., None]
    expected = (a + b * ROWS[:, 0] + c * ROWS[:, 1] - 5) / 2
    np.testing.assert_allclose(prior(noise, jnp.asarray(scaled.T)), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda inputs, a: np.sin(np.asarray(inputs[:, 0]) * a), "Write it with jax.numpy"),
        (lambda inputs, a: a, r"shape \(\) for 30 rows"),
        (lambda inputs: inputs[:, 0], "failed.*TypeError"),
    ],
)
def test_simulators_in_jax_that_fail(function, message):
    prior = JaxSimulatorPrior(function, {"a": stats.norm()}).initialise(2, random_key(0))
    with pytest.raises(ValueError, match=message):
        prior(prior.draw_noise(random_key(1), 3), jnp.asarray(ROWS.T))


# Past curves.

GRID = np.array([0.0, 1.0, 2.5, 6.0])
CURVES = np.random.default_rng(2).normal(size=(5, 4))


def test_curves_are_interpolated_in_the_units_of_the_user():
    prior = CurvePrior(GRID, CURVES).on("time").for_data(UNITS).initialise(2, random_key(0))
    noise = prior.draw_noise(random_key(1), 7)
    assert sorted(np.asarray(noise)[:5].tolist()) == [0, 1, 2, 3, 4]  # each before any twice
    at = np.linspace(-1, 7, 50)
    scaled = np.stack([(at - 2) / 3, np.zeros(50)])
    expected = np.array([np.interp(at, GRID, CURVES[index]) for index in np.asarray(noise)])
    np.testing.assert_allclose(prior(noise, jnp.asarray(scaled)), (expected - 5) / 2, atol=1e-12)


def test_curves_of_a_file(tmp_path):
    table = pd.DataFrame({"t": GRID[::-1], **{f"c{i}": c[::-1] for i, c in enumerate(CURVES)}})
    table.to_csv(tmp_path / "past curves.csv", index=False)
    table.to_parquet(tmp_path / "past.parquet")
    for name in ("past curves.csv", "past.parquet"):
        prior = CurvePrior.read(tmp_path / name)
        np.testing.assert_allclose(prior.curves.value, CURVES)
    text = f"linear + curves({tmp_path}/past curves.csv).on('time')"
    process = parsed_prior(text, CurvePrior.read)
    np.testing.assert_allclose(process.processes[1].process.grid.value, GRID)
    with pytest.raises(ValueError, match="needs the name of one file"):
        parsed_prior("curves('a', 'b')", CurvePrior.read)


@pytest.mark.parametrize(
    ("grid", "curves", "message"),
    [
        (GRID, CURVES[:, :3], r"shape \(5, 3\) do not fit a grid of 4"),
        (GRID, CURVES[:1], "at least 2 curves"),
        (GRID, [[1, 2, 3, 4], [1, 2]], "all on the same grid"),
        ([0, 1, 1, 2], CURVES, "1 is in the grid twice"),
        ([0, 1, np.nan, 2], CURVES, "grid has values that are no numbers"),
        (GRID, np.where(CURVES > 1, np.nan, CURVES), "has no number at the grid's"),
        ([1.0], [[1.0], [2.0]], "2 points or more"),
        (["a", "b"], [[1, 2], [3, 4]], "must be numbers"),
    ],
)
def test_curves_that_do_not_fit(grid, curves, message):
    with pytest.raises(ValueError, match=message):
        CurvePrior(grid, curves)


def test_files_and_columns_that_do_not_fit(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        CurvePrior.read(tmp_path / "none.csv")
    (tmp_path / "text.csv").write_text("a,b\n1,x\n")
    with pytest.raises(ValueError, match="is no table of curves"):
        CurvePrior.read(tmp_path / "text.csv")
    with pytest.raises(ValueError, match=r"there are 2 inputs: say which.*on\('time'\)"):
        CurvePrior(GRID, CURVES).for_data(UNITS)
