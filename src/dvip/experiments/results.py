"""A folder of results, one JSON file a run; several processes may fill it at once.

A run is claimed by a lock on a file of its own, which the system releases when a process ends,
however it ends. A result is written in one step once it is complete: what is there is whole.
"""

import json
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

from dvip.experiments.runs import Run
from dvip.files import lock, replace_file

__all__ = ["Results"]

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

    def claim(self, run: Run) -> AbstractContextManager[bool]:
        """Whether the run is ours to do: nobody else is doing it while this lasts."""
        name = "--".join(run.path.with_suffix(".lock").parts)
        return lock(self.folder / LOCKS / name, wait=False)
