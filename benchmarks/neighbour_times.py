"""How long a fit of 1,000 rows takes, for every method of `dvip reproduce neighbours`.

    python benchmarks/neighbour_times.py [METHOD ...]

Each fit is with the settings that `dvip reproduce` has, defaults but for what a method's name says,
of a generated table of 8 inputs, in a process of its own with an empty cache of compiled programs;
imports do not count. Nothing else should run meanwhile. What was measured before is measured again.

Output: `benchmarks/results/neighbour_times.json` and `.md`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results_file import ResultsFile
from tables import power_like

OUT = Path(__file__).parent / "results"
ROWS, INPUTS, TEST_ROWS = 1_000, 8, 500
# What we ask of each, on two cores.
LIMIT = 60.0
# SIP of two layers is no setting of a default.
LEFT_OUT = ("sip-2",)
ONE = "--one"


def fit(method: str) -> dict[str, float]:
    """Of this process."""
    from dvip.metrics import regression_metrics
    from dvip.paper.grids import METHODS

    table, model = power_like(INPUTS), METHODS[method].estimator("regression")
    start, processor = time.perf_counter(), time.process_time()
    model.fit(table.inputs[:ROWS], table.targets[:ROWS])
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    distribution = model.predict_dist(table.test_inputs[:TEST_ROWS])
    scores = regression_metrics(distribution, table.test_targets[:TEST_ROWS])
    times = {"seconds": seconds, "cpu_seconds": processor, "cores": os.cpu_count()}
    return {**times, "nll": scores["nll"]}


def fitted_in_new_process(method: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        finished = subprocess.run(
            [sys.executable, __file__, ONE, method],
            env={**os.environ, "DVIP_COMPILATION_CACHE": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(finished.stdout.splitlines()[-1])


def markdown(results: ResultsFile, methods: list[str]) -> str:
    from dvip.paper.grids import METHODS

    measured = {entry["method"]: entry for entry in results}
    lines = [
        f"# Fits of {ROWS:,} rows",
        "",
        f"`python benchmarks/neighbour_times.py`: {INPUTS} inputs, settings as those of "
        f"`dvip reproduce neighbours`, with compilation. The NLL is of {TEST_ROWS} other rows of "
        "the same generated table (sines and noise of 0.1), where -0.88 is the best possible.",
        "",
        f"| method | cores | seconds | CPU seconds | within {LIMIT:.0f} s | NLL |",
        "|---|---|---|---|---|---|",
    ]
    for method in methods:
        if method in measured:
            one = measured[method]
            within = "yes" if one["seconds"] <= LIMIT else "**no**"
            lines.append(
                f"| {METHODS[method].label} | {one['cores']} | {one['seconds']:.1f} "
                f"| {one['cpu_seconds']:.1f} | {within} | {one['nll']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    from dvip.paper.grids import EXPERIMENTS

    known = [name for name in EXPERIMENTS["neighbours"].methods if name not in LEFT_OUT]
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__, "Methods:", ", ".join(known))
        return
    chosen = sys.argv[1:] or known
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"No method {unknown[0]!r}: choose from {', '.join(known)}.\n\n{__doc__}")
    results = ResultsFile(OUT / "neighbour_times.json")
    for method in chosen:
        results.add({"method": method}, fitted_in_new_process(method))
    (OUT / "neighbour_times.md").write_text(markdown(results, known))


if __name__ == "__main__":
    if sys.argv[1:2] == [ONE]:
        print(json.dumps(fit(sys.argv[2])))
    else:
        main()
