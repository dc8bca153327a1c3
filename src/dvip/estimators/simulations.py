"""Values of simulators at rows, as further columns behind the scaled inputs.

Each of the S functions is run once for all rows of a training, and by blocks for rows to predict.
With every later run go some rows whose values are known: a function that changes its answers, or
another than that of the training, is found out.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from dvip.estimators.scales import MAX_SCALED
from dvip.processes.simulator import SimulatorPrior

__all__ = ["CarriedInputs", "Simulations"]

# Numbers that are computed, and kept, at once.
MAX_NUMBERS = 2**22
# Blocks of rows whose values are remembered.
REMEMBERED = 2
# Rows that go with every run, and how well their values must agree: relative to themselves, and to
# the largest.
NUM_KNOWN, RELATIVE, OF_LARGEST = 5, 1e-4, 1e-5


@dataclass(frozen=True, eq=False)
class Simulations:
    """Functions of simulators by their seeds, and what is known of them."""

    # Some rows of the training, in their own units, and the values of all functions there.
    rows: Float[np.ndarray, "known inputs"]
    values: Float[np.ndarray, "simulators functions known"]
    # Offset and scale of the values, and the seed; as numbers of an array.
    numbers: Float[np.ndarray, " 3"]
    _remembered: "OrderedDict[str, np.ndarray]" = field(default_factory=OrderedDict, repr=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def of(
        cls,
        simulators: Sequence[SimulatorPrior],
        rows: Float[np.ndarray, "rows inputs"],
        num_functions: int,
        seed: int,
        target: tuple[float, float] | None,
    ) -> "Simulations":
        """Runs of all functions at the first rows; an error if they are none."""
        block = rows[: _rows_at_once(len(simulators) * num_functions)]
        chosen = np.unique(np.linspace(0, len(block) - 1, NUM_KNOWN).astype(int))
        runs = [
            [simulator.run(block, (seed, index, number)) for number in range(1, num_functions + 1)]
            for index, simulator in enumerate(simulators)
        ]
        values = np.array(runs)
        offset, scale = target or (values.mean(), values.std() or 1.0)
        made = cls(rows[chosen], values[..., chosen], np.array([offset, scale, float(seed)]))
        # Once more: the same seed must give the same function, whatever other rows there are.
        for index, simulator in enumerate(simulators):
            made._check(simulator.run(made.rows[::-1], (seed, index, 1))[::-1], index, 0)
        made._remember(block, values.reshape(-1, len(block)).T)
        return made

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], num_inputs: int) -> "Simulations":
        """From what `arrays` gave; a ValueError if it could not have."""
        rows, values, numbers = (arrays[name] for name in ("rows", "values", "numbers"))
        fits = rows.ndim == 2 and values.ndim == 3 and values.shape[2] == len(rows) >= 1
        if not (fits and rows.shape[1] == num_inputs and numbers.shape == (3,) and numbers[1] > 0):
            raise ValueError("the simulations do not fit together.")
        return cls(rows, values, numbers)

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved of them."""
        return {"rows": self.rows, "values": self.values, "numbers": self.numbers}

    @property
    def num_functions(self) -> int:
        """Of each simulator."""
        return self.values.shape[1]

    @property
    def num_carried(self) -> int:
        """Columns behind the inputs."""
        return self.values.shape[0] * self.values.shape[1]

    def at(
        self, simulators: Sequence[SimulatorPrior], rows: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows carried"]:
        """Values of all functions, in the unit of the model; of few enough rows."""
        with self._lock:
            digest = _digest(rows)
            if digest in self._remembered:
                self._remembered.move_to_end(digest)
                values = self._remembered[digest]
            else:
                values = self._run(simulators, rows)
                self._remember(rows, values)
        offset, scale, _ = self.numbers
        return np.clip((values - offset) / scale, -MAX_SCALED, MAX_SCALED)

    def _run(self, simulators: Sequence[SimulatorPrior], rows: np.ndarray) -> np.ndarray:
        seed, joined = int(self.numbers[2]), np.concatenate([rows, self.rows])
        values = np.empty((len(rows), self.num_carried))
        for index, simulator in enumerate(simulators):
            for number in range(self.num_functions):
                of_all = simulator.run(joined, (seed, index, number + 1))
                self._check(of_all[len(rows) :], index, number)
                values[:, index * self.num_functions + number] = of_all[: len(rows)]
        return values

    def _remember(self, rows: np.ndarray, values: np.ndarray) -> None:
        self._remembered[_digest(rows)] = values
        while len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)

    def _check(self, given: np.ndarray, index: int, number: int) -> None:
        """Raises an error unless a function has the values that it had."""
        known = self.values[index, number]
        room = RELATIVE * np.abs(known) + OF_LARGEST * np.abs(self.values[index]).max()
        wrong = np.abs(given - known) > room
        if wrong.any():
            row = int(wrong.argmax())
            inputs = ", ".join(f"{value:.6g}" for value in self.rows[row][:6])
            raise ValueError(
                f"The simulator gave {known[row]:.6g} and now {given[row]:.6g} for the same seed "
                f"at inputs=[{inputs}]. All that is random must come from the generator, a row's "
                "value not depend on other rows, and the function be that of the training."
            )

    def __deepcopy__(self, memo: Any) -> "Simulations":
        return self

    def __getstate__(self) -> dict[str, np.ndarray]:
        return self.arrays()

    def __setstate__(self, state: Mapping[str, np.ndarray]) -> None:
        made = {**state, "_remembered": OrderedDict(), "_lock": threading.Lock()}
        for name, value in made.items():
            object.__setattr__(self, name, value)


class CarriedInputs:
    """Scaled inputs with the values of simulators behind them, computed as they are asked for.

    It can be sliced, and made an array, as the array that it stands for.
    """

    def __init__(
        self,
        proper: np.ndarray,
        rows: np.ndarray,
        simulations: Simulations,
        simulators: Sequence[SimulatorPrior],
    ):
        self.proper, self.rows = proper, rows
        self.simulations, self.simulators = simulations, simulators
        self._step = _rows_at_once(simulations.num_carried)
        self._block: tuple[int, np.ndarray] = (-1, proper)
        self._lock = threading.Lock()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.proper), self.proper.shape[1] + self.simulations.num_carried

    @property
    def dtype(self) -> np.dtype:
        """That of the inputs."""
        return self.proper.dtype

    def __len__(self) -> int:
        return len(self.proper)

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        return np.concatenate([self.proper[start:stop], self._values(start, stop)], axis=1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return self[:].astype(dtype or self.dtype)

    def _values(self, start: int, stop: int) -> np.ndarray:
        values = np.empty((max(0, stop - start), self.simulations.num_carried), self.dtype)
        for begin in self._blocks(start, stop):
            first, last = max(start, begin), min(stop, begin + self._step)
            values[first - start : last - start] = self._of_block(begin)[
                first - begin : last - begin
            ]
        return values

    def _blocks(self, start: int, stop: int) -> Iterator[int]:
        return iter(range(start // self._step * self._step, stop, self._step))

    def _of_block(self, begin: int) -> np.ndarray:
        with self._lock:
            if self._block[0] != begin:
                rows = self.rows[begin : begin + self._step]
                self._block = (begin, self.simulations.at(self.simulators, rows))
            return self._block[1]


def _rows_at_once(num_carried: int) -> int:
    return max(1, MAX_NUMBERS // num_carried)


def _digest(rows: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest() + str(rows.shape)
