"""Peak memory where a model is large in one direction: classes, targets, samples, columns, rows.

    python benchmarks/memory_limits.py [--only classes,targets]

Each case is a process of its own. "libraries" is what it held before it had data; "data" are X and
y of the training, and the result where it is large.

Output: `benchmarks/results/memory_limits.json` and `.md`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from new_process import peak_megabytes
from results_file import ResultsFile

OUT = Path(__file__).parent / "results"
CASES = {
    "classes": "`predict_proba`, 1,000 classes x 10,000 rows",
    "targets": "`predict`, 100 targets, R = 1,000, 1,000 rows",
    "distribution": "`predict_dist` and its quantile, 100 targets, R = 1,000, 200 rows",
    "columns": "`fit`, `predict`, `save` and `load`, 100,000 columns x 500 rows, two layers",
    "rows": "`predict` with deviations, 1,000,000 rows, R = 10",
}


def run(case: str) -> dict[str, float]:
    from dvip import DVIPClassifier, DVIPRegressor, load

    warnings.simplefilter("ignore")  # of the few steps
    libraries, random = peak_megabytes(), np.random.default_rng(0)
    X, data = random.normal(size=(1_000, 4)), 0
    if case == "classes":
        labels = np.arange(2_000) % 1_000
        model = DVIPClassifier.paper(n_layers=2, max_iter=5).fit(np.repeat(X, 2, axis=0), labels)
        data = model.predict_proba(random.normal(size=(10_000, 4))).nbytes
    elif case in ("targets", "distribution"):
        model = DVIPRegressor.paper(n_layers=2, max_iter=5, n_predictive_samples=1_000)
        model.fit(X, random.normal(size=(1_000, 100)))
        if case == "targets":
            model.predict(X, return_std=True)
        else:
            distribution = model.predict_dist(X[:200])
            distribution.quantile(0.9)
            data = 2 * distribution.means.nbytes
    elif case == "columns":
        X = random.normal(size=(500, 100_000))
        data = X.nbytes
        model = DVIPRegressor.paper(n_layers=2, max_iter=5).fit(X, X[:, 0])
        model.predict(X, return_std=True)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model")
            load(Path(folder) / "model")
    else:
        model = DVIPRegressor.paper(n_layers=2, max_iter=5, n_predictive_samples=10).fit(X, X[:, 0])
        many = random.normal(size=(1_000_000, 4))
        data = many.nbytes
        model.predict(many, return_std=True)
    return {"megabytes": peak_megabytes(), "libraries": libraries, "data": data / 2**20}


def markdown(results: ResultsFile) -> str:
    lines = ["| what | peak memory | of it libraries | data |", "|---|---|---|---|"]
    measured: dict[str, Any] = {entry["what"]: entry for entry in results}
    for case, meaning in CASES.items():
        if case in measured:
            entry = measured[case]
            numbers = (f"{entry[name]:,.0f} MB" for name in ("megabytes", "libraries", "data"))
            lines.append(f"| {meaning} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(CASES))
    results = ResultsFile(OUT / "memory_limits.json")
    for case in parser.parse_args().only.split(","):
        done = subprocess.run([sys.executable, __file__, case], capture_output=True, check=True)
        results.add({"what": case}, json.loads(done.stdout.splitlines()[-1]))
    (OUT / "memory_limits.md").write_text(f"# Peak memory\n\n{markdown(results)}")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in CASES:
        print(json.dumps(run(sys.argv[1])))
    else:
        main()
