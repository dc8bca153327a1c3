"""Random keys from whole numbers, made on the host: JAX's own would compile a program for it."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

__all__ = ["random_key"]

# The words that a key of each of JAX's generators has.
_WORDS = {"threefry2x32": 2, "rbg": 4}


def random_key(*seeds: int, impl: str = "threefry2x32") -> PRNGKeyArray:
    """The key of these whole numbers; other numbers, or more of them, give an unrelated key."""
    words = np.random.SeedSequence(seeds).generate_state(_WORDS[impl])
    return jax.random.wrap_key_data(jax.device_put(words), impl=impl)
