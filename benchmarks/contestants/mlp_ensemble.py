"""Deep ensemble (Lakshminarayanan et al., 2017): networks with a mean and a variance, as a mixture.

Each member starts from its own weights and holds out its own tenth of the rows, on which it chooses
when to stop. All members are trained at once; random numbers are NumPy's, so that there is only one
program to compile.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int
from sklearn.preprocessing import StandardScaler

from dvip import GaussianMixture

STEPS_BETWEEN_LOOKS = 200
# Looks at the held-out rows without a better one, by any member, before training stops.
PATIENCE = 20
SMALLEST_VARIANCE = 1e-6

# Weights and offsets of each layer.
Network = list[tuple[Array, Array]]


class Member(NamedTuple):
    """One network while it is trained, with its best state so far."""

    network: Network
    optimiser: optax.OptState
    best_network: Network
    best_score: Array


class MLPEnsemble:
    def __init__(
        self,
        n_members: int = 5,
        n_units: int = 50,
        n_hidden: int = 2,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-4,
        batch_size: int = 100,
        max_iter: int = 40_000,
    ):
        self.n_members = n_members
        self.n_units = n_units
        self.n_hidden = n_hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter

    def fit(self, X: np.ndarray, y: np.ndarray) -> "MLPEnsemble":
        self.input_scaler_ = StandardScaler().fit(X)
        self.target_scaler_ = StandardScaler().fit(y[:, None])
        inputs = self.input_scaler_.transform(X).astype(np.float32)
        targets = self.target_scaler_.transform(y[:, None])[:, 0].astype(np.float32)
        random = np.random.default_rng(0)
        orders = np.stack([random.permutation(len(X)) for _ in range(self.n_members)])
        held_out, kept = np.split(orders, [max(1, len(X) // 10)], axis=1)
        optimiser = optax.adamw(self.learning_rate, weight_decay=self.weight_decay)
        train_all = jax.jit(jax.vmap(partial(_train, optimiser, inputs, targets)))
        members = self._start(random, X.shape[1], optimiser)
        best, looks_since = np.full(self.n_members, np.inf), 0
        for _ in range(self.max_iter // STEPS_BETWEEN_LOOKS):
            shape = (self.n_members, STEPS_BETWEEN_LOOKS * self.batch_size)
            chosen = random.integers(kept.shape[1], size=shape)
            rows = np.take_along_axis(kept, chosen, axis=1)
            batches = rows.reshape(self.n_members, STEPS_BETWEEN_LOOKS, self.batch_size)
            members = train_all(members, batches, held_out)
            scores = np.asarray(members.best_score)
            looks_since = 0 if (scores < best).any() else looks_since + 1
            best = scores
            if looks_since == PATIENCE:
                break
        self.networks_ = members.best_network
        return self

    def _start(
        self,
        random: np.random.Generator,
        num_inputs: int,
        optimiser: optax.GradientTransformation,
    ) -> Member:
        """All members, along the first axis of every array."""
        widths = [num_inputs, *[self.n_units] * self.n_hidden, 2]
        network = []
        for before, after in pairwise(widths):
            weights = random.standard_normal((self.n_members, before, after)) / np.sqrt(before)
            network.append((weights.astype(np.float32), np.zeros_like(weights[:, 0], np.float32)))
        state = jax.vmap(optimiser.init)(network)
        return Member(network, state, network, np.full(self.n_members, np.inf, np.float32))

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        inputs = self.input_scaler_.transform(X).astype(np.float32)
        predict_all = jax.jit(jax.vmap(_moments, in_axes=(0, None)))
        means, variances = (
            np.asarray(values, dtype=float).T for values in predict_all(self.networks_, inputs)
        )
        mean, scale = self.target_scaler_.mean_[0], self.target_scaler_.scale_[0]
        return GaussianMixture(means * scale + mean, variances * scale**2, np.array(0.0))


def _moments(
    network: Network, inputs: Float[Array, "rows inputs"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    *hidden, (last_weights, last_offsets) = network
    for weights, offsets in hidden:
        inputs = jax.nn.relu(inputs @ weights + offsets)
    mean, raw = (inputs @ last_weights + last_offsets).T
    return mean, jax.nn.softplus(raw) + SMALLEST_VARIANCE


def _nll(
    network: Network, inputs: Float[Array, "rows inputs"], targets: Float[Array, " rows"]
) -> Float[Array, ""]:
    mean, variance = _moments(network, inputs)
    squared = jnp.square(targets - mean) / variance
    return 0.5 * jnp.mean(jnp.log(2 * jnp.pi * variance) + squared)


def _train(
    optimiser: optax.GradientTransformation,
    inputs: Float[Array, "rows inputs"],
    targets: Float[Array, " rows"],
    member: Member,
    batches: Int[Array, "steps batch"],
    held_out: Int[Array, " held_out"],
) -> Member:
    """A step on each batch of rows, then a look at the held-out rows."""
    # NumPy arrays cannot be indexed by what is traced.
    inputs, targets = jnp.asarray(inputs), jnp.asarray(targets)

    def step(carry: tuple, rows: Int[Array, " batch"]) -> tuple[tuple, None]:
        network, state = carry
        gradient = jax.grad(_nll)(network, inputs[rows], targets[rows])
        updates, state = optimiser.update(gradient, state, network)
        return (optax.apply_updates(network, updates), state), None

    carry, _ = jax.lax.scan(step, (member.network, member.optimiser), batches)
    network, state = carry
    score = _nll(network, inputs[held_out], targets[held_out])
    best_network = jax.tree.map(
        lambda new, old: jnp.where(score < member.best_score, new, old),
        network,
        member.best_network,
    )
    return Member(network, state, best_network, jnp.minimum(score, member.best_score))
