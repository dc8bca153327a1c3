"""The results of a folder as one Markdown page and two plots."""

import json
from pathlib import Path

from report.markdown import page
from report.plots import plot_quality, plot_steps
from results_file import ResultsFile

__all__ = ["FILES", "write_report"]

# Where each measurement keeps its results.
FILES = {
    "step": "step.json",
    "alpha": "alpha.json",
    "members": "members.json",
    "compile": "compile.json",
    "prediction": "prediction.json",
    "memory": "memory.json",
    "quality": "time_to_quality.json",
}


def write_report(folder: Path) -> str:
    """Writes results.md, step.png and quality.png for what is there; returns the page."""
    results = {name: list(ResultsFile(folder / file)) for name, file in FILES.items()}
    machine_file = folder / "machine.json"
    machine = json.loads(machine_file.read_text()) if machine_file.exists() else {}
    if results["step"]:
        plot_steps(results["step"], folder / "step.png")
    if results["quality"]:
        plot_quality(results["quality"], folder / "quality.png")
    text = page(results, machine)
    (folder / "results.md").write_text(text)
    return text
