"""Tests leave no traces on the machine and take nothing from it."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

# Before SciPy is imported: scikit-learn checks array API input only if this is set.
os.environ["SCIPY_ARRAY_API"] = "1"
os.environ["MPLBACKEND"] = "Agg"
# There is a process a core: more threads would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Compilers take and return much memory. Processes that keep what they have once got (glibc reads
# this when one starts) need not have it cleared again and again.
for _name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
    os.environ.setdefault(_name, str(2**32))
os.environ.setdefault("MALLOC_TOP_PAD_", str(2**26))
# A compilation cache of this session's own, which all its processes share.
_first = "PYTEST_XDIST_WORKER" not in os.environ
if _first:
    _cache = tempfile.mkdtemp(prefix="dvip-tests-")
    os.environ["DVIP_COMPILATION_CACHE"] = _cache
    os.environ["DVIP_ROW_CACHE"] = os.path.join(_cache, "rows")
# The tests compile much and compute little, and this way XLA compiles faster. With XLA_FLAGS= they
# run what users run.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
)

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pooch  # noqa: E402
import pytest  # noqa: E402

from dvip import sampled_gp  # noqa: E402
from dvip.runtime import precision  # noqa: E402

# As users have it, but with all programs in it: however small, they are compiled by one process, or
# once more after they were forgotten.
jax.config.update("jax_compilation_cache_dir", os.environ["DVIP_COMPILATION_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# The same examples in every run, and no folder of examples; the first of a shape is slow, as it
# is compiled.
hypothesis.settings.register_profile("dvip", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("dvip")


def pytest_sessionfinish():
    if _first:
        shutil.rmtree(_cache, ignore_errors=True)


# A process may have 65,530 of them on Linux, and compiled programs have some each: one that has
# used them up ends without a word.
MAX_MAPPINGS = 30_000


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Compiled programs are forgotten before there are too many of them."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_text().count("\n") > MAX_MAPPINGS:
        jax.clear_caches()


@pytest.fixture(scope="module")
def short_chains():
    """Chains that sample kernels are as short as can be, for tests that ask for something else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampled_gp, "NUM_TRAJECTORIES", 24)
        patch.setattr(sampled_gp, "NUM_OF_FOLD", 18)
        yield


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """The user's cache is an empty folder, and `DVIP_DATA` is not set."""
    monkeypatch.delenv("DVIP_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "dvip" / "data"


@pytest.fixture
def heeded_ctrl_c():
    """Ctrl-C has its usual effect, which a shell takes from programs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def double():
    """JAX computes in double precision for all tests of a module."""
    with precision("float64"):
        yield
