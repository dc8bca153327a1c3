"""Images with a convolutional first layer: accuracy, test log-likelihood, seconds.

    DVIP_DATA=... python benchmarks/images.py
    DVIP_DATA=... python benchmarks/images.py --options '{"max_iter": 3000}'
    python benchmarks/images.py --dataset rectangles-generated --options '{"filters": [8, 16]}'

`DVIP_DATA` holds `mnist/`, which is downloaded otherwise. The model has two layers, of 30 units and
one for each class, as the paper's DVIP 2; `filters` are options of the convolutional prior. Results
go to `benchmarks/results/images.json`, one entry a run, and as a table to `images.md`.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from dvip import Convolutional, DVIPClassifier, __version__
from dvip.data import load_split

SETTINGS = {"n_layers": 2, "n_units": 30, "prior": "conv", "random_state": 0}


def run(dataset: str, options: dict) -> dict:
    split = load_split(dataset)
    images, test_images = (part.reshape(-1, 28, 28) for part in (split.inputs, split.test_inputs))
    labels, test_labels = split.targets, split.test_targets
    settings = {**SETTINGS, **options}
    if "filters" in settings:
        settings["prior"] = Convolutional(filters=tuple(settings.pop("filters")))
    start = time.perf_counter()
    model = DVIPClassifier.paper(**settings, verbose=True).fit(images, labels)
    trained = time.perf_counter()
    probabilities = model.predict_proba(test_images)
    codes = np.searchsorted(model.classes_, test_labels)
    of_label = probabilities[np.arange(len(codes)), codes]
    return {
        "dataset": dataset,
        "options": options,
        "version": __version__,
        "accuracy": float(np.mean(probabilities.argmax(axis=1) == codes)),
        "log_likelihood": float(np.log(of_label).mean()),
        "bound": float(np.nanmean(model.bound_history_[..., -1]) / len(labels)),
        "seconds": round(trained - start, 1),
        "prediction_seconds": round(time.perf_counter() - trained, 1),
    }


def summarise(runs: list[dict]) -> str:
    lines = ["| images | options | accuracy | log-likelihood | seconds | seconds, prediction |"]
    lines.append("|---|---|---|---|---|---|")
    for entry in runs:
        options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
        lines.append(
            f"| {entry['dataset']} | {options or 'default'} | {100 * entry['accuracy']:.2f} % "
            f"| {entry['log_likelihood']:.4f} | {entry['seconds']:.0f} "
            f"| {entry['prediction_seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--options", type=json.loads, default={}, help="of DVIPClassifier, as JSON")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/images.json")
    arguments = parser.parse_args()
    entry = run(arguments.dataset, arguments.options)
    print(entry, flush=True)
    runs = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    key = (entry["dataset"], entry["options"])
    runs = [old for old in runs if (old["dataset"], old["options"]) != key] + [entry]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = arguments.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(runs, indent=1))
    temporary.replace(arguments.out)
    table = summarise(runs)
    arguments.out.with_suffix(".md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
