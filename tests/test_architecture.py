"""The house: what may import what, how many rooms there are, how far a row has to go."""

import inspect
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dvip
from dvip import DVIPRegressor

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dvip"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
WING = [path for path in MODULES if path.is_relative_to(SOURCE / "paper") or path.stem == "data"]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def test_dependencies_point_one_way():
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    result = subprocess.run(lint, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_rooms_are_few_and_none_is_too_large():
    # What came after 65: noise, ensembles, calibration, sampling, what chooses, what becomes of new
    # rows; displays, pages, baselines; then priors of all kinds, each with its file; neighbours.
    assert len(MODULES) - len(WING) <= 170
    assert len(WING) <= 18
    for path in MODULES:
        assert len(path.read_text().splitlines()) <= 450, path
    for path in TESTS:
        assert len(path.read_text().splitlines()) <= 500, path


@pytest.mark.parametrize("paths", [MODULES, TESTS], ids=["source", "tests"])
def test_no_two_files_are_named_alike(paths):
    names = Counter(path.stem for path in paths if path.stem not in ("__init__", "conftest"))
    assert [name for name, number in names.items() if number > 1] == []


def test_sources_of_data_load_without_models():
    """And the other way round: what reads rows knows nothing of what is trained on them."""
    code = "import sys, dvip.sources; print(*[name for name in sys.modules if 'dvip.' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    assert loaded <= {"registry", "batches", "files", "sources", "tables"}


def test_a_row_passes_few_files_in_predict_dist():
    X = np.random.default_rng(0).normal(size=(20, 2))
    # Of a shape that no other test of this file has: what is traced counts, too.
    model = DVIPRegressor.paper(n_layers=1, n_prior_samples=7, max_iter=50, batch_size=10).fit(
        X, X[:, 0]
    )
    files = set()

    def note(frame, event, _):
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        if event == "call" and is_function and code.co_filename.startswith(str(SOURCE_USED)):
            files.add(code.co_filename)

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        model.predict_dist(X)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert 5 < len(files) <= 15, files


# Where the package that runs was installed from.
SOURCE_USED = Path(dvip.__file__).parent
