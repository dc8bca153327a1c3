"""Several things timed in turn, round after round: what slows the machine slows all of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from measurements import Options
from results_file import Entry, ResultsFile


@dataclass(frozen=True)
class Contest:
    """Work to be timed, the key of its results, and how many units of work (steps, rows) it is."""

    key: Entry
    work: Callable[[], object]
    units: int


def rounds_to_do(results: ResultsFile, keys: list[Entry], options: Options) -> list[int]:
    """Rounds that lack a result; a round that was interrupted is done again as a whole."""
    return [
        number
        for number in range(options.rounds)
        if options.again or not all({**key, "round": number} in results for key in keys)
    ]


def run_rounds(results: ResultsFile, contests: list[Contest], rounds: list[int]) -> None:
    """Adds the seconds of one unit of each contest for each round, the processor's besides."""
    for contest in contests:
        contest.work()  # compilation and other things of the first time
    for number in rounds:
        for contest in contests:
            start, processor = time.perf_counter(), time.process_time()
            contest.work()
            seconds = {
                "seconds": (time.perf_counter() - start) / contest.units,
                "processor_seconds": (time.process_time() - processor) / contest.units,
            }
            results.add({**contest.key, "round": number}, seconds)
