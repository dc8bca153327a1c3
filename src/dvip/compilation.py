"""The persistent compilation cache: a program that was compiled once starts at once next time."""

import os
from pathlib import Path

import jax
import pooch

from dvip.files import why_not_writable

__all__ = ["small_program_options", "use_compilation_cache"]


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
