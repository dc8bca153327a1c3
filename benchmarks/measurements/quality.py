"""Time to quality: seconds of training and test scores on the published splits of the UCI sets.

dvip is trained anew for each budget of steps; the deep GP, which is slow, for a given time.
"""

from typing import Any

from contestants import DEEP_GP, DVIP, ENSEMBLE, EXACT_GP, NGBOOST
from dvip.data import DATASETS
from measurements import Options
from new_process import fit_in_new_process
from results_file import ResultsFile

Runner = tuple[str, dict[str, Any]]


def measure(results: ResultsFile, options: Options) -> None:
    datasets = [name for name in options.datasets if _is_there(name)]
    for split in range(options.splits):
        for dataset in datasets:
            for name, settings in _runners(options):
                key = {
                    "dataset": dataset,
                    "contestant": name,
                    "settings": settings,
                    "split": split,
                }
                if options.again or key not in results:
                    measured = fit_in_new_process(name, settings, (dataset, split))
                    if measured:
                        results.add(key, measured)


def _runners(options: Options) -> list[Runner]:
    runners: list[Runner] = [(DVIP, {"max_iter": budget}) for budget in options.budgets]
    if options.peers:
        runners += [
            (DEEP_GP, {"seconds": options.peer_seconds}),
            (EXACT_GP, {"max_rows": 200 if options.quick else 2_000}),
            (NGBOOST, {"n_estimators": 20 if options.quick else 500}),
            (ENSEMBLE, {"max_iter": 400} if options.quick else {}),
        ]
    return runners


def _is_there(dataset: str) -> bool:
    missing = [path for path, place in DATASETS[dataset].found().items() if place is None]
    if missing:
        print(f"{dataset} is left out: set DVIP_DATA to a folder with {missing[0]} in it.")
    return not missing
