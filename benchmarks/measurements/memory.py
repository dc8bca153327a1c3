"""Peak memory of a process that fits and predicts a table of Power's shape.

Short trainings: no contestant holds more when it trains longer.
"""

from contestants import DEEP_GP, DVIP, ENSEMBLE, EXACT_GP, NGBOOST
from measurements import Options
from new_process import fit_in_new_process
from results_file import ResultsFile

SETTINGS = {
    DVIP: {"max_iter": 2_000},
    DEEP_GP: {"seconds": 5.0},
    EXACT_GP: {"max_rows": 2_000, "optimise": True},
    NGBOOST: {},
    ENSEMBLE: {"max_iter": 2_000},
}
ROUNDS = 3


def measure(results: ResultsFile, options: Options) -> None:
    for number in range(min(ROUNDS, options.rounds)):
        for name, settings in SETTINGS.items():
            if name != DVIP and not options.peers:
                continue
            if options.quick and name == EXACT_GP:
                settings = {"max_rows": 200, "optimise": True}
            key = {"contestant": name, "settings": settings, "round": number}
            if options.again or key not in results:
                measured = fit_in_new_process(name, settings, None)
                if measured:
                    parts = ("megabytes_imports", "megabytes")
                    results.add(key, {part: measured[part] for part in parts})
