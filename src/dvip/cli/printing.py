"""What the commands have in common to show: metrics."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

__all__ = ["METRIC_MEANINGS", "print_metrics"]

# Short enough that the table fits 80 columns.
METRIC_MEANINGS = {
    "nll": "negative log-density, lower is better",
    "rmse": "error of the mean, lower is better",
    "crps": "distribution's error, lower is better",
    "coverage_50": "rows in 50 % intervals, ideally 0.50",
    "coverage_90": "rows in 90 % intervals, ideally 0.90",
    "coverage_95": "rows in 95 % intervals, ideally 0.95",
    "accuracy": "right predictions, higher is better",
    "log_likelihood": "log p of the label, higher is better",
    "ece": "calibration error, lower is better",
    "auc": "ranking of the classes, higher is better",
}


def print_metrics(title: str, columns: Mapping[str, Mapping[str, float]]) -> None:
    """A table with a row for each metric and a column for each model."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("metric")
    for name in columns:
        table.add_column(name, justify="right")
    table.add_column("meaning", style="dim")
    for metric in next(iter(columns.values())):
        values = [f"{metrics[metric]:.4g}" for metrics in columns.values()]
        table.add_row(metric, *values, METRIC_MEANINGS[metric])
    Console().print(table)
