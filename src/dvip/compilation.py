"""The persistent compilation cache: a program that was compiled once starts at once next time."""

import os

import jax
import pooch

__all__ = ["use_compilation_cache"]


def use_compilation_cache() -> None:
    """Keeps compiled programs in the user's cache folder.

    `DVIP_COMPILATION_CACHE` names another folder, or switches it off with `off`. A cache that the
    user has already set up through JAX's own settings is left alone.
    """
    folder = os.environ.get("DVIP_COMPILATION_CACHE", str(pooch.os_cache("dvip") / "compiled"))
    if folder == "off" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
