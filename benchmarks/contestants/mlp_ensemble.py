"""Deep ensemble (Lakshminarayanan et al., 2017): networks with a mean and a variance, as a mixture.

Each member starts from its own weights and holds out its own tenth of the rows, on which it chooses
when to stop. All members are trained at once.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.preprocessing import StandardScaler

from dvip import GaussianMixture

STEPS_BETWEEN_LOOKS = 200
# Looks at the held-out rows without a better one, by any member, before training stops.
PATIENCE = 20
SMALLEST_VARIANCE = 1e-6


class Member(NamedTuple):
    """One network while it is trained, with its best state so far."""

    network: eqx.nn.MLP
    optimiser: optax.OptState
    best_network: eqx.nn.MLP
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
        inputs = jnp.asarray(self.input_scaler_.transform(X), jnp.float32)
        targets = jnp.asarray(self.target_scaler_.transform(y[:, None])[:, 0], jnp.float32)
        orders = np.random.default_rng(0).permuted(
            np.tile(np.arange(len(X)), (self.n_members, 1)), axis=1
        )
        held_out, kept = np.split(orders, [max(1, len(X) // 10)], axis=1)
        optimiser = optax.adamw(self.learning_rate, weight_decay=self.weight_decay)
        train_all = eqx.filter_jit(
            eqx.filter_vmap(_train, in_axes=(eqx.if_array(0), None, None, 0, 0, 0, None, None))
        )
        keys = jax.random.split(jax.random.key(0), self.n_members)
        start_all = eqx.filter_jit(eqx.filter_vmap(self._start, in_axes=(0, None, None)))
        members = start_all(keys, X.shape[1], optimiser)
        best, looks_since = np.full(self.n_members, np.inf), 0
        for look in range(self.max_iter // STEPS_BETWEEN_LOOKS):
            keys = jax.random.split(jax.random.key(look + 1), self.n_members)
            members = train_all(
                members, inputs, targets, kept, held_out, keys, optimiser, self.batch_size
            )
            scores = np.asarray(members.best_score)
            looks_since = 0 if (scores < best).any() else looks_since + 1
            best = scores
            if looks_since == PATIENCE:
                break
        self.networks_ = members.best_network
        return self

    def _start(
        self, key: PRNGKeyArray, num_inputs: int, optimiser: optax.GradientTransformation
    ) -> Member:
        network = eqx.nn.MLP(num_inputs, 2, self.n_units, self.n_hidden, key=key)
        state = optimiser.init(eqx.filter(network, eqx.is_inexact_array))
        return Member(network, state, network, jnp.array(jnp.inf))

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        inputs = jnp.asarray(self.input_scaler_.transform(X), jnp.float32)
        predict_all = eqx.filter_jit(eqx.filter_vmap(_moments, in_axes=(eqx.if_array(0), None)))
        means, variances = (
            np.asarray(values, dtype=float).T for values in predict_all(self.networks_, inputs)
        )
        mean, scale = self.target_scaler_.mean_[0], self.target_scaler_.scale_[0]
        return GaussianMixture(means * scale + mean, variances * scale**2, np.array(0.0))


def _moments(
    network: eqx.nn.MLP, inputs: Float[Array, "rows inputs"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    outputs = jax.vmap(network)(inputs)
    return outputs[:, 0], jax.nn.softplus(outputs[:, 1]) + SMALLEST_VARIANCE


def _nll(
    network: eqx.nn.MLP, inputs: Float[Array, "rows inputs"], targets: Float[Array, " rows"]
) -> Float[Array, ""]:
    mean, variance = _moments(network, inputs)
    return jnp.mean(
        0.5 * jnp.log(2 * jnp.pi * variance) + jnp.square(targets - mean) / variance / 2
    )


def _train(
    member: Member,
    inputs: Float[Array, "rows inputs"],
    targets: Float[Array, " rows"],
    kept: Array,
    held_out: Array,
    key: PRNGKeyArray,
    optimiser: optax.GradientTransformation,
    batch_size: int,
) -> Member:
    """Steps on random batches of the kept rows, then a look at the held-out rows."""
    weights, fixed = eqx.partition(member.network, eqx.is_inexact_array)

    def step(carry: tuple, rows: Array) -> tuple[tuple, None]:
        weights, state = carry
        gradient = jax.grad(
            lambda weights: _nll(eqx.combine(weights, fixed), inputs[rows], targets[rows])
        )(weights)
        updates, state = optimiser.update(gradient, state, weights)
        return (optax.apply_updates(weights, updates), state), None

    batches = jax.random.choice(key, kept, (STEPS_BETWEEN_LOOKS, batch_size))
    (weights, state), _ = jax.lax.scan(step, (weights, member.optimiser), batches)
    network = eqx.combine(weights, fixed)
    score = _nll(network, inputs[held_out], targets[held_out])
    best_network = jax.tree.map(
        lambda new, old: (
            jnp.where(score < member.best_score, new, old) if eqx.is_array(new) else new
        ),
        network,
        member.best_network,
    )
    return Member(network, state, best_network, jnp.minimum(score, member.best_score))
