"""What JAX is asked for: random keys, the precision, the compilation cache."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

import jax
import numpy as np
import pooch
from jaxtyping import PRNGKeyArray

from dvip.files import why_not_writable

__all__ = [
    "PRECISIONS",
    "derived_seed",
    "precision",
    "random_key",
    "small_program_options",
    "use_compilation_cache",
]

# The words that a key of each of JAX's generators has.
_WORDS = {"threefry2x32": 2, "rbg": 4}


def random_key(*seeds: int, impl: str = "threefry2x32") -> PRNGKeyArray:
    """The key of these whole numbers; other numbers, or more of them, give an unrelated key."""
    words = np.random.SeedSequence(seeds).generate_state(_WORDS[impl])
    return jax.random.wrap_key_data(jax.device_put(words), impl=impl)


def derived_seed(seed: int, index: int) -> int:
    """The seed of a member; that of the first is the seed itself."""
    if index == 0:
        return seed
    state = np.random.SeedSequence((seed, index)).generate_state(1)
    return int(state[0] % np.iinfo(np.int32).max)


PRECISIONS = ("float32", "float64")


def precision(dtype: str | np.dtype) -> AbstractContextManager:
    """Within it, new JAX arrays have this floating-point type. It holds for this thread alone."""
    if dtype not in PRECISIONS:
        raise ValueError(f"precision={dtype!r} must be one of {PRECISIONS}.")
    return jax.enable_x64(np.dtype(dtype) == np.float64)


def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder.

    `DVIP_COMPILATION_CACHE` names another folder, or switches it off with `off`. A cache that the
    user has already set up through JAX's own settings is left alone. Where the folder cannot be
    written there is no cache: a training is as good without.
    """
    folder = os.environ.get("DVIP_COMPILATION_CACHE", str(pooch.os_cache("dvip") / "compiled"))
    if folder == "off" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    # Of a folder in a cloud, JAX finds out whether it can be written.
    if "://" not in folder and why_not_writable(Path(folder)) is not None:
        return
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def small_program_options(backend: str) -> dict[str, int | str]:
    """XLA's options for a program of many operations that take microseconds each, as a step is.

    On CPUs only. LLVM's higher levels compile for longer and make it no faster. The schedule that
    saves memory leaves little to do at the same time, which is what such a program needs: handing
    an operation to another thread takes longer than most operations do. (Five layers on two cores:
    0.80 ms a step instead of 1.01.)
    """
    if backend != "cpu":
        return {}
    options: dict[str, int | str] = {"xla_backend_optimization_level": 1}
    if jax.__version_info__ >= (0, 10, 2):  # XLA of older releases does not know it
        options["xla_cpu_scheduler_type"] = "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
    return options
