"""One-step-ahead forecasts of the yearly sunspot numbers: the recurrent prior and the BNN prior.

    pip install ".[peers]" && python benchmarks/forecasting.py --seeds 3

The data come with statsmodels: 1700-2008. Both priors see the same windows of 12 years and have the
same settings and number of steps; the first 80 % of the years are for training, the rest for
testing. Results go to `benchmarks/results/forecasting.json`, one entry a run, as they arrive, and
as a table to `forecasting.md`; runs that are already there are not repeated.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from statsmodels.datasets import sunspots

from dvip import DVIPRegressor, __version__

WINDOW = 12
PRIORS = ("recurrent", "bnn")


def load_windows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Windows and the value after each, of training and of test years."""
    series = sunspots.load_pandas().data["SUNACTIVITY"].to_numpy()
    windows = np.lib.stride_tricks.sliding_window_view(series, WINDOW + 1)
    inputs, targets = windows[:, :-1], windows[:, -1]
    first_test = int(0.8 * len(series)) - WINDOW
    return inputs[:first_test], targets[:first_test], inputs[first_test:], targets[first_test:]


def run(prior: str, seed: int, options: dict) -> dict:
    inputs, targets, test_inputs, test_targets = load_windows()
    start = time.perf_counter()
    model = DVIPRegressor.paper(prior=prior, random_state=seed, **options).fit(inputs, targets)
    seconds = time.perf_counter() - start
    dist = model.predict_dist(test_inputs)
    return {
        "prior": prior,
        "seed": seed,
        "options": options,
        "version": __version__,
        "nll": -float(dist.log_prob(test_targets).mean()),
        "rmse": float(np.sqrt(np.mean(np.square(dist.mean - test_targets)))),
        "crps": float(dist.crps(test_targets).mean()),
        "seconds": round(seconds, 1),
    }


def summarise(runs: list[dict]) -> str:
    lines = [
        "| prior | layers | steps | seeds | nll | rmse | crps |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = dict.fromkeys((json.dumps(entry["options"]), entry["prior"]) for entry in runs)
    for options, prior in groups:
        rows = [r for r in runs if (json.dumps(r["options"]), r["prior"]) == (options, prior)]
        cells = []
        for metric in ("nll", "rmse", "crps"):
            values = np.array([entry[metric] for entry in rows])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{values.mean():.3f} ± {error:.3f}")
        settings = json.loads(options)
        cells = [
            prior,
            str(settings["n_layers"]),
            str(settings["max_iter"]),
            str(len(rows)),
            *cells,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--options",
        type=json.loads,
        default={"n_layers": 1, "max_iter": 2000},
        help="of DVIPRegressor, as JSON",
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results/forecasting.json"
    )
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    done = {(r["prior"], r["seed"], json.dumps(r["options"])) for r in runs}
    for seed in range(arguments.seeds):
        for prior in PRIORS:
            if (prior, seed, json.dumps(arguments.options)) in done:
                continue
            runs.append(run(prior, seed, arguments.options))
            temporary = arguments.out.with_suffix(".tmp")
            temporary.write_text(json.dumps(runs, indent=1))
            temporary.replace(arguments.out)
            print(runs[-1], flush=True)
    table = summarise(runs)
    arguments.out.with_suffix(".md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
