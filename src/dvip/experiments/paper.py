"""The paper's figures (Ortega, Rodríguez-Santana and Hernández-Lobato, ICLR 2023), to compare with.

`paper_results.csv` holds what its tables print, with one sign put right: deep GPs of five layers on
kin8nm have an NLL of -1.30 in one table, which another prints without the minus.
"""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Estimate", "paper_estimate"]

# Ours is a share of one.
PERCENT = ("accuracy",)


class Estimate(NamedTuple):
    """A mean over splits or seeds and its standard error; of one run the error is NaN."""

    mean: float
    stderr: float


@cache
def _table() -> dict[tuple[str, str, str, str, str], Estimate]:
    text = files("dvip.experiments").joinpath("paper_results.csv").read_text("utf-8")
    table = {}
    for row in csv.DictReader(text.splitlines()):
        unit = 0.01 if row["metric"] in PERCENT else 1.0
        mean, stderr = unit * float(row["mean"]), unit * float(row["stderr"])
        key = (row["experiment"], row["dataset"], row["method"], row["variant"], row["metric"])
        table[key] = Estimate(mean, stderr)
    return table


def paper_estimate(
    experiment: str, dataset: str, method: tuple[str, str], metric: str
) -> Estimate | None:
    """What the paper has for its method and variant; None if it has nothing."""
    return _table().get((experiment, dataset, *method, metric))
