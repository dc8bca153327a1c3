"""Results as a list of entries in a JSON file, written as they arrive: a second run goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class ResultsFile:
    """Each entry has a key, the fields that say what was measured, and the measured fields."""

    def __init__(self, path: Path):
        self.path = path
        self.entries: list[Entry] = self._read()

    def _read(self) -> list[Entry]:
        return json.loads(self.path.read_text()) if self.path.exists() else []

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __contains__(self, key: Entry) -> bool:
        """What is marked as of an earlier state of the program is there to be repeated."""
        return any(_matches(entry, key) and not entry.get("earlier") for entry in self.entries)

    def add(self, key: Entry, measured: Entry) -> None:
        """Writes an entry to the file; what had this key before is replaced."""
        # Another process may have written in the meantime.
        others = [entry for entry in self._read() if not _matches(entry, key)]
        self.entries = [*others, {**key, **measured}]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.entries, indent=1) + "\n")
        temporary.replace(self.path)
        print(*(f"{name}={_short(value)}" for name, value in {**key, **measured}.items()))


def _matches(entry: Entry, key: Entry) -> bool:
    return all(name in entry and entry[name] == value for name, value in key.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
