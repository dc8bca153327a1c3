"""How long it takes to start: the program, the import, a first prediction.

    python benchmarks/startup.py [--rounds 5]

Each is a process of its own, started `--rounds` times, in turn. "cold" is with an empty cache of
compiled programs, "warm" with that of the run before. CPU seconds are those of all threads; they
tell more than the wall clock where other programs run. "libraries" is what JAX, Equinox,
scikit-learn and pandas take before dvip does anything.

Output: `benchmarks/results/startup.json` and `.md`.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from results_file import ResultsFile

OUT = Path(__file__).parent / "results"
ROWS, INPUTS = 50, 8
DVIP = [sys.executable, "-m", "dvip"]
IMPORTS = {
    "libraries": "import jax, equinox, pandas, sklearn.base",
    "import dvip": "import dvip",
    "from dvip import DVIPRegressor": "from dvip import DVIPRegressor",
}


def seconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Of a process: on the wall, and of all cores together."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured, by its name; a table and a model of it are made in the folder."""
    random = np.random.default_rng(0)
    rows = pd.DataFrame(random.normal(size=(300, INPUTS))).add_prefix("x")
    rows.assign(y=rows["x0"] + np.sin(rows["x1"])).to_csv(folder / "table.csv", index=False)
    rows[:ROWS].to_csv(folder / "new.csv", index=False)
    table, model = str(folder / "table.csv"), str(folder / "model")
    fit = [*DVIP, "fit", table, "--target", "y", "--out", model, "--max-iter", "100"]
    subprocess.run(fit, env=os.environ | cache(folder, "other"), check=True, capture_output=True)
    predict = [*DVIP, "predict", model, str(folder / "new.csv"), "--out", str(folder / "out.csv")]
    return {
        "dvip --help": [*DVIP, "--help"],
        **{name: [sys.executable, "-c", code] for name, code in IMPORTS.items()},
        "dvip predict, cold": predict,
        "dvip predict, warm": predict,
    }


def cache(folder: Path, name: str) -> dict[str, str]:
    return {"DVIP_COMPILATION_CACHE": str(folder / name)}


def measure(results: ResultsFile, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured = commands(folder)
        for number in range(rounds):
            for what, command in measured.items():
                environment = os.environ | cache(folder, f"cache-{number}")
                wall, cpu = seconds(command, environment)
                results.add({"what": what, "round": number}, {"seconds": wall, "cpu": cpu})


def markdown(results: ResultsFile) -> str:
    lines = [
        "# Start",
        "",
        f"Medians of fresh processes; `dvip predict` of {ROWS} rows of {INPUTS} inputs with three "
        "layers, with an empty cache of compiled programs and with that of the run before. "
        "Libraries are JAX, Equinox, pandas and scikit-learn, without dvip. CPU seconds of a "
        "machine that does other things, too, are more than those of an idle one.",
        "",
        "| what | CPU seconds | seconds | times the libraries' CPU |",
        "|---|---|---|---|",
    ]
    names = list(dict.fromkeys(entry["what"] for entry in results))

    def median(what: str, field: str) -> float:
        return statistics.median(entry[field] for entry in results if entry["what"] == what)

    for name in names:
        cpu, wall = median(name, "cpu"), median(name, "seconds")
        ratio = cpu / median("libraries", "cpu")
        lines.append(f"| {name} | {cpu:.2f} | {wall:.2f} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    results = ResultsFile(OUT / "startup.json")
    measure(results, parser.parse_args().rounds)
    (OUT / "startup.md").write_text(markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()
