"""A prior of your own: anything that is easy to sample from.

Here functions are sums of decays. Three methods say what is learned, what is random, and the
values; the prediction beyond the rows goes on as decays do, and says how sure that is.

    python examples/own_prior.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor, ImplicitProcess


class Decays(ImplicitProcess):
    """f(x) = c + Σ_k h_k exp(-rate_k · x) of the first input; how fast they are is learned."""

    num_decays: int = eqx.field(static=True, default=2)
    log_rate: jax.Array | None = None

    def initialise(self, num_inputs, key):
        """What is learned, before it is."""
        return Decays(self.num_decays, jnp.zeros(()))

    def draw_noise(self, key, num_samples):
        """What makes one function differ from another."""
        return jax.random.normal(key, (3, num_samples, self.num_decays, 1))

    def __call__(self, noise, inputs):
        """All functions at the inputs, which are standardised, and columns."""
        rates, heights, constants = noise
        decays = jnp.exp(-jnp.exp(self.log_rate + 0.7 * rates) * (inputs[:1] + 2))
        return jnp.sum(3 * heights * decays + constants, axis=1)


random = np.random.default_rng(0)
x = np.sort(random.uniform(0, 5, 60))
grid = np.linspace(0, 9, 200)
truth = 3 * np.exp(-2 * grid) + 2 * np.exp(-0.4 * grid)
y = np.interp(x, grid, truth) + 0.08 * random.normal(size=60)

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
options = {"inference": "vi", "n_layers": 1, "n_prior_samples": 30, "max_iter": 4_000}
model = DVIPRegressor(prior=Decays(), **options)
axes[0].plot(grid, model.sample_prior_functions(8, x[:, None], 0, y=y, at=grid[:, None]).T)
axes[0].set(title="functions of the prior", xlabel="x")
predicted = model.fit(x[:, None], y).predict_dist(grid[:, None])
axes[1].fill_between(grid, *predicted.interval(0.9), color="#a9cbe6", lw=0)
axes[1].plot(grid, predicted.mean, color="#1f5f99", lw=2)
axes[1].plot(grid, truth, "--", color="grey", lw=1)
axes[1].plot(x, y, ".", color="black", ms=4)
axes[1].set(title="after 60 rows; dashed is the truth", xlabel="x")
figure.savefig("decays.png", dpi=110)
