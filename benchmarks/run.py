"""All benchmarks, beside the peers, in one command. Results are kept: a second call goes on.

    pip install ".[peers]"
    DVIP_DATA=... python benchmarks/run.py

Every measurement is interleaved with the peers over several rounds (or splits). Medians and, as the
noise, the middle half of the rounds go to results/results.md, the plots beside it, and every single
result to one JSON file for each measurement. `DVIP_DATA` holds the UCI sets as docs/datasets.md
describes; without it there is no time to quality.
Nothing else should run on the machine meanwhile.
"""

import argparse
import importlib
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import contestants
from measurements import Options
from report import FILES, write_report
from results_file import ResultsFile

DATASETS = ("energy", "concrete", "boston", "power", "kin8nm")
BUDGETS = (5_000, 10_000, 20_000, 50_000, 100_000)
OUT = Path(__file__).parent / "results"


def names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def whole_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", type=names, default=tuple(FILES), help=f"some of {','.join(FILES)}")
    add(
        "--rounds",
        type=int,
        default=7,
        help="of all but quality (memory: at most 3)",
    )
    add("--datasets", type=names, default=DATASETS, help="for quality, separated by commas")
    add("--splits", type=int, default=5, help="for quality: the first of the published splits")
    add("--budgets", type=whole_numbers, default=BUDGETS, help="for quality: steps of dvip")
    add("--peer-seconds", type=float, default=120.0, help="for quality: training of the deep GP")
    add("--no-peers", action="store_true", help="dvip alone")
    add("--again", action="store_true", help="replace results that are already there")
    add("--quick", action="store_true", help="a trial of everything, of no value as a result")
    add("--out", type=Path, help="folder for the results; with --quick, results/quick")
    parsed = parser.parse_args()
    unknown = set(parsed.only) - set(FILES)
    if unknown:
        parser.error(f"--only {','.join(unknown)}: use some of {','.join(FILES)}")
    return parsed


def options_of(parsed: argparse.Namespace) -> Options:
    peers = not parsed.no_peers
    missing = [name for name in contestants.PACKAGES if not contestants.is_installed(name)]
    if peers and missing:
        raise SystemExit(
            f'Not installed: {", ".join(missing)}. Run pip install ".[peers]", or use --no-peers.'
        )
    return Options(
        rounds=min(parsed.rounds, 2) if parsed.quick else parsed.rounds,
        datasets=parsed.datasets,
        splits=min(parsed.splits, 2) if parsed.quick else parsed.splits,
        budgets=(200, 1_000) if parsed.quick else parsed.budgets,
        peer_seconds=2.0 if parsed.quick else parsed.peer_seconds,
        peers=peers,
        again=parsed.again,
        quick=parsed.quick,
    )


def machine() -> dict:
    """What the results depend on besides the code."""
    versions = {}
    for package in ("dvip", "jax", "torch", "gpytorch", "scikit-learn", "ngboost"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def main() -> None:
    parsed = arguments()
    options = options_of(parsed)
    out = parsed.out or (OUT / "quick" if parsed.quick else OUT)
    out.mkdir(parents=True, exist_ok=True)
    (out / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n")
    for name in parsed.only:
        measurement = importlib.import_module(f"measurements.{name}")
        measurement.measure(ResultsFile(out / FILES[name]), options)
    print(write_report(out))


if __name__ == "__main__":
    main()
