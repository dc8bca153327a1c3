"""Classes: log-likelihood, accuracy and calibration of dvip, beside what else people would use.

    pip install ".[peers]" && DVIP_DATA=... python benchmarks/classification.py

Breast cancer, digits and wine come with scikit-learn: random splits, a fifth of the rows for
testing. `DVIP_DATA` holds `higgs/`, without which it is left out; so is a peer that is not
installed. "dvip" is `DVIPClassifier()`; other settings of it were chosen on parts of the training
rows. Results go to
`benchmarks/results/classification.json`, one entry a run, as they arrive, and as a table to
`classification.md`; runs that are already there are not repeated.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dvip import BayesianNeuralNetwork, DVIPClassifier, __version__
from dvip.data import MissingDataError, Split, load_split
from dvip.metrics import classification_metrics
from report.markdown import line, plus_minus
from report.summaries import Mean, matching
from results_file import Entry, ResultsFile

LOADERS = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
HIGGS = "higgs-subset"  # with one split, which is published
DATASETS = (*LOADERS, HIGGS)
CATBOOST = "CatBoost"

RECIPE = {
    "n_layers": 2,
    "prior": BayesianNeuralNetwork(constrained=False),
    "alpha": 1.0,
    "n_training_samples": 3,
    "max_iter": 1_500,
}


def _mlps(**settings: Any) -> Any:
    """Five networks, and the mean of their probabilities."""
    members = [
        (str(seed), MLPClassifier((50, 50), random_state=seed, **settings)) for seed in range(5)
    ]
    return make_pipeline(StandardScaler(), VotingClassifier(members, voting="soft"))


def _catboost() -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(
        allow_writing_files=False, verbose=False, thread_count=1, random_seed=0
    )


CONTESTANTS: dict[str, Callable[[], Any]] = {
    "dvip": DVIPClassifier,
    "dvip, ELBO": lambda: DVIPClassifier.paper(max_iter=10_000),
    "dvip, α = 1": lambda: DVIPClassifier.paper(**RECIPE),
    "dvip, five members": lambda: DVIPClassifier.paper(**RECIPE, n_members=5, calibrate=True),
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "random forest": lambda: RandomForestClassifier(500, random_state=0, n_jobs=1),
    CATBOOST: _catboost,
    "five MLPs": _mlps,
    "five MLPs, stopped early": lambda: _mlps(early_stopping=True),
}


def load(dataset: str, number: int) -> Split:
    if dataset == HIGGS:
        return load_split(HIGGS)
    X, y = LOADERS[dataset](return_X_y=True)
    train, test, labels, test_labels = train_test_split(
        X, y, test_size=0.2, random_state=number, stratify=y
    )
    return Split(train, labels, test, test_labels)


def measure(split: Split, make: Callable[[], Any]) -> Entry:
    start = time.process_time()  # of all threads
    model = make().fit(split.inputs, split.targets)
    seconds = time.process_time() - start
    # Forests are sure of classes that they are wrong about; no score is to be infinite.
    probabilities = np.maximum(model.predict_proba(split.test_inputs), 1e-6)
    metrics = classification_metrics(probabilities, split.test_targets, model.classes_)
    return {**metrics, "seconds": round(seconds, 1), "version": __version__}


def markdown(results: Iterable[Entry]) -> str:
    """Means over the splits, with standard errors."""
    entries = list(results)
    lines = [
        "| data | model | splits | log-likelihood | accuracy | calibration error | CPU seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for dataset in DATASETS:
        for contestant in CONTESTANTS:
            runs = matching(entries, dataset=dataset, contestant=contestant)
            if runs:
                cells = [
                    plus_minus(Mean.of(run[name] for run in runs))
                    for name in ("log_likelihood", "accuracy", "ece")
                ]
                seconds = np.mean([run["seconds"] for run in runs])
                lines.append(line([dataset, contestant, str(len(runs)), *cells, f"{seconds:.1f}"]))
    return "\n".join(lines) + "\n"


def measure_all(
    results: ResultsFile,
    datasets: Iterable[str],
    splits: Iterable[int],
    models: Iterable[str],
    again: bool = False,
) -> None:
    """What is not there yet; what cannot be had is left out with a word."""
    contestants = {name: CONTESTANTS[name] for name in models}
    if CATBOOST in contestants and find_spec("catboost") is None:
        print("CatBoost is left out: it is not installed.")
        del contestants[CATBOOST]
    for dataset in datasets:
        for number in [0] if dataset == HIGGS else splits:
            try:
                split = load(dataset, number)
            except MissingDataError as error:
                print(f"{dataset} is left out: {error}")
                break
            for name, make in contestants.items():
                key = {"dataset": dataset, "contestant": name, "split": number}
                if key not in results or again:
                    results.add(key, measure(split, make))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, metavar="NAME", default=DATASETS)
    parser.add_argument(
        "--models", nargs="+", choices=CONTESTANTS, metavar="NAME", default=list(CONTESTANTS)
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results/classification.json"
    )
    arguments = parser.parse_args()
    results = ResultsFile(arguments.out)
    measure_all(results, arguments.datasets, range(arguments.splits), arguments.models)
    table = markdown(results)
    arguments.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
