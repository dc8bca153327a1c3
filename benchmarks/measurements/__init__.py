"""What is measured, one module each: `measure(results, options)` adds entries to a results file."""

from dataclasses import dataclass

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    rounds: int
    datasets: tuple[str, ...]
    splits: int
    budgets: tuple[int, ...]
    peer_seconds: float
    peers: bool
    again: bool
    quick: bool
