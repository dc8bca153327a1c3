"""Runs and their results: what identifies one, and the folder of what was found."""

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dvip.files import Hold, lock, replace_file

__all__ = ["LOCKS", "Results", "Run"]


@dataclass(frozen=True, order=True)
class Run:
    """What identifies a run. `max_iter` is given where it is not the estimator's default.

    A `timed` run is trained twice: the times are of the second training, without compilation.
    """

    dataset: str
    method: str
    split: int = 0
    seed: int = 0
    max_iter: int | None = None
    timed: bool = False

    @property
    def path(self) -> Path:
        """Where its result is, below the folder of all results."""
        budget = "" if self.max_iter is None else f"-max-iter-{self.max_iter}"
        timed = "-timed" if self.timed else ""
        name = f"split-{self.split}-seed-{self.seed}{budget}{timed}.json"
        return Path(self.dataset) / self.method / name

    @property
    def random_state(self) -> int:
        """Another for each split: standard errors then include the luck of the prior functions."""
        return 1_000 * self.seed + self.split

    def __str__(self) -> str:
        budget = "" if self.max_iter is None else f", {self.max_iter:,} steps"
        return f"{self.dataset}, {self.method}, split {self.split}, seed {self.seed}{budget}"


# A folder of results, one JSON file a run; several processes may fill it at once.
#
# A run is claimed by a lock on a file of its own, which the system releases when a process ends,
# however it ends. A result is written in one step once it is complete: what is there is whole.

LOCKS = ".locks"


# What a result has, and one of a training that did not diverge.
ALWAYS = ("error", "seconds", "cpu_seconds")
WITHOUT_ERROR = ("metrics", "train_metrics", "rows", "calibration")


def _check(result: dict[str, Any]) -> None:
    """Raises a KeyError if something is missing."""
    for name in (*ALWAYS, *(WITHOUT_ERROR if result["error"] is None else ())):
        result[name]


class Results:
    """What runs gave, by run."""

    def __init__(self, folder: Path):
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"{folder} is a file; results are a folder. Choose another name.")
        self.folder = folder

    def __contains__(self, run: Run) -> bool:
        return (self.folder / run.path).exists()

    def find(
        self, dataset: str, method: str, max_iter: int | None, *, timed: bool = False
    ) -> list[dict[str, Any]]:
        """The results of all splits and seeds of a method on a dataset, at a number of steps."""
        folder = self.folder / dataset / method
        found = (self._read(path) for path in sorted(folder.glob("*.json")))
        return [result for run, result in found if (run.max_iter, run.timed) == (max_iter, timed)]

    def _read(self, path: Path) -> tuple[Run, dict[str, Any]]:
        try:
            result = json.loads(path.read_bytes())
            known = [field.name for field in fields(Run) if field.name in result]
            run = Run(**{name: result[name] for name in known})
            _check(result)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}): delete it, and run it again.") from None
        if self.folder / run.path != path:
            raise ValueError(f"{path} holds the result of {run}: put it back, or delete it.")
        return run, result

    def write(self, run: Run, result: dict[str, Any]) -> None:
        """Stores the result of a run."""
        path = self.folder / run.path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in result.items())
        replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())

    def claim(self, run: Run) -> AbstractContextManager[Hold]:
        """Whether the run is ours to do: nobody else is doing it while this lasts."""
        name = "--".join(run.path.with_suffix(".lock").parts)
        return lock(self.folder / LOCKS / name, wait=False)
