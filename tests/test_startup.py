"""What a prediction, or `--help`, need not wait for is not imported."""

import subprocess
import sys

import pytest

TRAINING = {
    "blackjax",
    "optax",
    "sklearn.cluster",
    "sklearn.metrics",
    "matplotlib",
    "rich.progress",
}
WAITS = {
    "import dvip": {"numpy", "jax", "sklearn", "importlib.metadata"},
    "import dvip.__main__": {"numpy", "jax", "sklearn", "pandas"},
    "import dvip.cli.predict; from dvip import load, DVIPRegressor, DVIPClassifier, SIPRegressor": (
        TRAINING
    ),
}


@pytest.mark.parametrize("code", WAITS)
def test_imports(code):
    shown = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert not WAITS[code] & set(done.stdout.split())
