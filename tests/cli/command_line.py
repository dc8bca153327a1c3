"""The command line in a test: run, judged, and in a process of its own; and a table for it."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from typer.testing import CliRunner

from dvip.__main__ import app

QUICK = (
    "--inference",
    "vi",
    "--layers",
    "1",
    "--max-iter",
    "60",
    "--prior-samples",
    "5",
    "--learning-rate",
    "0.05",
    "--batch-size",  # so that tables of different lengths share what is compiled
    "16",
)


def run(*arguments):
    """The command in this process, with stdout and stderr apart."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refuse(*arguments, code=1):
    """The message of a command that fails as it should: a line or two, no traceback."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    lines = result.stderr.strip().splitlines()
    message = lines[-1]
    assert message.startswith("Error: ")
    assert "Traceback" not in result.stderr
    if code == 1:
        assert len(lines) == 1
    return message


def patients():
    """Diabetes patients with text, gaps, dates, names, and an empty column."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    random = np.random.default_rng(0)
    frame["sex"] = frame["sex"].map({1: "male", 2: "female"})
    frame.loc[random.random(len(frame)) < 0.1, "bmi"] = None
    frame.loc[random.random(len(frame)) < 0.1, "sex"] = None
    frame["smoker"] = random.random(len(frame)) < 0.3
    frame["visit"] = pd.date_range("2020-01-01", periods=len(frame)).astype(str)
    frame["name"] = [f"P{row:04d}" for row in range(len(frame))]
    frame["note"] = None
    return frame


def dvip_process(*arguments):
    """The installed program, in a process of its own."""
    # A process that was started in the background may have been told to ignore Ctrl-C.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-c", f"{heeding}; from dvip.__main__ import main; main()"]
    return subprocess.Popen(
        [*program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
