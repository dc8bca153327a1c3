"""What processes do in place of training, without JAX: die, sleep, or note that they were here.

`python stand_ins.py NAME FOLDER` does it as a program.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

from dvip.paper import runs
from dvip.paper.results import Results, Run
from dvip.paper.runs import Outcome, run_all

RUNS = [Run("toy", "vip-elbo", split) for split in range(60)]


def die_on_split_1(run, folder, data, force):
    if run.split == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(run, "done", 1.0)


def sleep(run, folder, data, force):
    (folder / str(os.getpid())).touch()
    time.sleep(600)


def sleep_in_two_processes(folder):
    runs.do = sleep
    run_all(RUNS[:2], folder, jobs=2)


def hold_a_claim(folder):
    with Results(folder).claim(RUNS[0]) as ours:
        print(bool(ours), flush=True)
        time.sleep(600)


def do_all(folder):
    """Does the runs in a moment each, with a line in a file of this process for each."""

    def execute(run, data):
        with open(folder / f"process-{os.getpid()}", "a") as file:
            file.write(f"{run.split}\n")
        time.sleep(0.002)
        return {**vars(run), "error": None, "seconds": 0.0, "by": os.getpid()}

    execution = sys.modules["dvip.paper.execution"] = ModuleType("dvip.paper.execution")
    execution.execute = execute
    print("ready", flush=True)
    while not (folder / "go").exists():
        time.sleep(0.001)
    run_all(RUNS, folder)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
