"""A prior of your own: anything that is easy to sample from.

Here functions are random steps. Three methods say what is learned, what is random, and the values.

    python examples/own_prior.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor, ImplicitProcess


class Steps(ImplicitProcess):
    """Sums of smooth steps at random places, of random heights; how steep they are is learned."""

    num_steps: int = eqx.field(static=True, default=8)
    log_slope: jax.Array | None = None

    def initialise(self, num_inputs, key):
        """What is learned, before it is."""
        return Steps(self.num_steps, jnp.full(num_inputs, 3.0))

    def draw_noise(self, key, num_samples):
        """What makes one function differ from another."""
        shape = (num_samples, self.num_steps, 1)
        places, heights = jax.random.split(key)
        return 1.3 * jax.random.normal(places, shape), jax.random.normal(heights, shape)

    def __call__(self, noise, inputs):
        """All functions at the inputs, which are columns."""
        places, heights = noise
        distance = jnp.exp(self.log_slope)[:, None] * inputs
        steps = jnp.tanh(distance.sum(axis=0) - jnp.exp(self.log_slope).sum() * places)
        return jnp.sum(heights * steps, axis=1) / jnp.sqrt(self.num_steps)


random = np.random.default_rng(0)
x = np.sort(random.uniform(0, 10, 80))
y = np.where(x < 3, 0.0, np.where(x < 7, 2.0, 1.0)) + 0.15 * random.normal(size=80)
grid = np.linspace(0, 10, 300)[:, None]

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
options = {"inference": "vi", "n_layers": 1, "n_prior_samples": 100, "max_iter": 3_000}
model = DVIPRegressor(prior=Steps(), **options)
axes[0].plot(grid, model.sample_prior_functions(6, grid, random_state=0, y=np.resize(y, 300)).T)
axes[0].set(title="functions of the prior", xlabel="x")
predicted = model.fit(x[:, None], y).predict_dist(grid)
axes[1].fill_between(grid[:, 0], *predicted.interval(0.9), color="#a9cbe6", lw=0)
axes[1].plot(grid, predicted.mean, color="#1f5f99", lw=2)
axes[1].plot(x, y, ".", color="black", ms=4)
axes[1].set(title="after 80 rows", xlabel="x")
figure.savefig("steps.png", dpi=110)
