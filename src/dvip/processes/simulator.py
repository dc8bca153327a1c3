"""Simulators as processes: a plain function, slow and not differentiable, whose runs are functions.

A function is computed once for each row and carried behind the row's inputs: `Carried` is the
process that a layer has then, which only reads. `estimators/simulations.py` computes them.
"""

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from dvip.processes.process import DataUnits, ImplicitProcess

__all__ = ["Carried", "Distribution", "SimulatorPrior", "as_distributions", "simulators_of"]

WANTED = 100


class Distribution:
    """A frozen distribution of scipy.stats, equal to another of the same name and arguments."""

    def __init__(self, frozen: Any):
        self.frozen = frozen
        arguments = [*map(repr, frozen.args), *(f"{k}={v!r}" for k, v in frozen.kwds.items())]
        self.text = f"{frozen.dist.name}({', '.join(arguments)})"

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def as_distributions(given: Any) -> tuple[tuple[str, Distribution], ...]:
    """Names and distributions of parameters; an error if they are none."""
    if given is None:
        return ()
    if isinstance(given, tuple):
        return given
    if not isinstance(given, Mapping):
        raise ValueError(
            f"parameters={given!r}: give a dictionary such as {{'rate': scipy.stats.norm(1, 0.1)}}."
        )
    for name, frozen in given.items():
        if not (isinstance(name, str) and hasattr(frozen, "ppf") and hasattr(frozen, "args")):
            raise ValueError(
                f"parameters: {name!r} is {frozen!r}, no frozen distribution of scipy.stats such "
                "as scipy.stats.norm(1, 0.1)."
            )
    return tuple((name, Distribution(frozen)) for name, frozen in given.items())


def checked_function(given: Any) -> Any:
    """The function; an error if it is none."""
    if not callable(given):
        raise ValueError(f"function={given!r} cannot be called: give a function f(inputs, rng).")
    return given


class SimulatorPrior(ImplicitProcess):
    """A plain Python or NumPy function as the prior: each of its runs is a prior function.

    Parameters
    ----------
    function : callable
        `function(inputs, rng)`, with inputs of the shape (rows, columns) in their own units and a
        generator of NumPy, gives an array of the shape (rows,), in the unit of the target. All that
        is random comes from `rng`; what it gives for a row must not depend on the other rows. With
        `parameters` it is `function(inputs, **parameters)`.
    parameters : dict, optional
        Of each parameter, by name, a frozen distribution of `scipy.stats`, to be drawn from once
        for each function.
    time_limit : float, optional
        Seconds that a call may take, after which the training ends with an error.

    It is the prior of the first layer. Offset and scale are learned. A function need not be
    differentiable: it is called once for each prior function, and what it gave is kept. One in JAX
    is better a `JaxSimulatorPrior`. A saved model has the seeds of its functions and needs the
    simulator at loading: `load(folder, prior=...)`.

    Examples
    --------
    >>> import numpy as np
    >>> from dvip import DVIPRegressor, SimulatorPrior
    >>> def decay(inputs, rng):
    ...     return rng.normal(1, 0.3) * np.exp(-rng.gamma(5, 0.2) * inputs[:, 0])
    >>> X = np.linspace(0, 3, 30)[:, None]
    >>> model = DVIPRegressor(prior=SimulatorPrior(decay), inference="vi", n_layers=1, max_iter=100)
    >>> model.fit(X, np.exp(-X[:, 0])).predict(X).shape
    (30,)
    """

    # A file cannot hold the function.
    needs_code: ClassVar[bool] = True

    function: Callable[..., Any] = eqx.field(static=True, converter=checked_function)
    parameters: Any = eqx.field(static=True, default=None, converter=as_distributions)
    time_limit: Any = eqx.field(static=True, default=None)
    # Which inputs it reads, once they are known.
    places: tuple[int, ...] | None = eqx.field(static=True, default=None)
    offset: Float[Array, ""] | None = None
    log_scale: Float[Array, ""] | None = None
    # What was computed, in the unit of the model: set by `Carried` where it is called.
    values: Float[Array, "functions batch"] | None = None

    def __check_init__(self) -> None:
        limit = self.time_limit
        if limit is not None and (isinstance(limit, bool | str) or not 0 < limit < math.inf):
            raise ValueError(f"time_limit={limit!r}: give a positive number of seconds, or None.")

    @property
    def bound_to_data(self) -> bool:
        """It reads the user's columns."""
        return True

    @property
    def wanted_functions(self) -> int | None:
        """Runs enough to combine."""
        return WANTED

    def for_data(self, units: DataUnits) -> "SimulatorPrior":
        """Notes which columns it reads."""
        return dataclasses.replace(self, places=units.places)

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "SimulatorPrior":
        """As the simulator says, in the unit of the target."""
        del num_inputs, key
        return dataclasses.replace(self, offset=jnp.zeros(()), log_scale=jnp.zeros(()))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> Float[Array, " samples"]:
        """As many places as functions: what is random was drawn when they were computed."""
        del key
        return jnp.zeros(num_samples)

    def __call__(
        self, noise: Float[Array, " samples"], inputs: Float[Array, "inputs batch"]
    ) -> Float[Array, "samples batch"]:
        """What was computed, on a learned scale."""
        del inputs
        if self.values is None or self.offset is None or self.log_scale is None:
            raise ValueError(
                "A SimulatorPrior is called by an estimator at the rows of its data only: use a "
                "JaxSimulatorPrior elsewhere."
            )
        return self.offset + jnp.exp(self.log_scale) * self.values[: len(noise)]

    def run(self, inputs: np.ndarray, seed: tuple[int, ...]) -> np.ndarray:
        """One function, that of a seed, at these rows of all inputs in their own units."""
        rows = inputs if self.places is None else inputs[:, list(self.places)]
        where = f"with the seed {seed} at {_described(rows)}"
        try:
            given = self._called(rows, np.random.default_rng(seed))
        except TimeoutError:
            raise ValueError(
                f"The simulator took more than time_limit={self.time_limit:g} s {where}."
            ) from None
        except Exception as error:  # of whatever kind: it is the user's function
            told = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise ValueError(f"The simulator failed {where}: {told}") from error
        try:
            values = np.asarray(given, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(
                f"The simulator gave {type(given).__name__}, no numbers, {where}."
            ) from None
        if values.shape not in ((len(rows),), (len(rows), 1)):
            raise ValueError(
                f"The simulator gave an array of the shape {values.shape} {where}: it must be "
                f"({len(rows)},), a number for each row."
            )
        values = values.reshape(-1)
        bad = ~np.isfinite(values)
        if bad.any():
            row = rows[bad.argmax()]
            raise ValueError(
                f"The simulator gave {values[bad][0]} for {bad.sum():,} of {len(rows):,} rows with "
                f"the seed {seed}, such as inputs={_shown(row)}."
            )
        return values

    def _called(self, rows: np.ndarray, rng: np.random.Generator) -> Any:
        """What the function gives, in time."""
        rows = rows.copy()  # which it may change
        if self.parameters:
            drawn = {name: each.frozen.rvs(random_state=rng) for name, each in self.parameters}
            return self._in_time(lambda: self.function(rows, **drawn))
        return self._in_time(lambda: self.function(rows, rng))

    def _in_time(self, call: Callable[[], Any]) -> Any:
        if self.time_limit is None:
            return call()
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append((True, call()))
            except BaseException as error:  # handed over, whatever it is
                outcome.append((False, error))

        # (A thread that hangs cannot be ended; this one ends with the program.)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.time_limit)
        if not outcome:
            raise TimeoutError
        succeeded, result = outcome[0]
        if not succeeded:
            raise result
        return result


def _shown(row: np.ndarray) -> str:
    numbers = ", ".join(f"{value:.6g}" for value in row[:6])
    return f"[{numbers}{', ...' if len(row) > 6 else ''}]"


def _described(rows: np.ndarray) -> str:
    if len(rows) == 1:
        return f"inputs={_shown(rows[0])}"
    return f"{len(rows):,} rows of inputs from {_shown(rows[0])} to {_shown(rows[-1])}"


def _is_simulator(node: Any) -> bool:
    return isinstance(node, SimulatorPrior)


def simulators_of(process: Any) -> list[SimulatorPrior]:
    """All simulators that a process is made of, in their order."""
    return [node for node in jax.tree.leaves(process, is_leaf=_is_simulator) if _is_simulator(node)]


class Carried(ImplicitProcess):
    """A process with simulators whose functions come with the inputs, as further rows of them.

    After the `num_inputs` inputs there are `num_functions` values for each simulator in turn.
    """

    process: ImplicitProcess
    num_inputs: int = eqx.field(static=True)
    num_functions: int = eqx.field(static=True)

    @property
    def shared_by_units(self) -> bool:  # type: ignore[override]
        """That of the process."""
        return self.process.shared_by_units

    def initialise(self, num_inputs: int, key: PRNGKeyArray) -> "Carried":
        """The process with parameters."""
        return dataclasses.replace(self, process=self.process.initialise(num_inputs, key))

    def draw_noise(self, key: PRNGKeyArray, num_samples: int) -> PyTree[Array]:
        """That of the process."""
        if num_samples > self.num_functions:
            raise ValueError(
                f"{num_samples} functions are asked for, and {self.num_functions} were simulated: "
                f"set n_prior_samples={num_samples} and fit again."
            )
        return self.process.draw_noise(key, num_samples)

    def _filled(
        self, inputs: Float[Array, "columns batch"]
    ) -> tuple[ImplicitProcess, Float[Array, "inputs batch"]]:
        """The process whose simulators have their values, and the inputs proper."""
        carried = inputs[self.num_inputs :].reshape(-1, self.num_functions, inputs.shape[1])
        values = iter(carried)

        def filled(node: Any) -> Any:
            return dataclasses.replace(node, values=next(values)) if _is_simulator(node) else node

        process = jax.tree.map(filled, self.process, is_leaf=_is_simulator)
        return process, inputs[: self.num_inputs]

    def __call__(
        self, noise: PyTree[Array], inputs: Float[Array, "columns batch"]
    ) -> Float[Array, "*outputs samples batch"]:
        """The functions at the inputs."""
        process, proper = self._filled(inputs)
        return process(noise, proper)

    def combined(
        self,
        noise: PyTree[Array],
        weights: Float[Array, "units samples"],
        inputs: Float[Array, "columns batch"],
    ) -> Float[Array, "units batch"]:
        """Combinations of them."""
        process, proper = self._filled(inputs)
        return process.combined(noise, weights, proper)

    def terms(
        self, noise: PyTree[Array], inputs: Float[Array, "columns batch"]
    ) -> dict[str, Float[Array, "*outputs samples batch"]]:
        """Those of the process."""
        process, proper = self._filled(inputs)
        return process.terms(noise, proper)

    def regularisation(self) -> Float[Array, ""]:
        """That of the process."""
        return self.process.regularisation()
