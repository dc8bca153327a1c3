"""Simulation-based calibration of sampled posteriors: are the samples those of the posterior?

    python benchmarks/simulation_based_calibration.py [--runs 200]

In each run parameters and coefficients of a small deep model are drawn from their prior, rows from
the model with these, and the posterior given the rows is sampled. Then what was drawn is one more
sample of the posterior: its rank among the samples is uniform, for whatever is computed from them.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from dvip import GaussianProcess
from dvip.batches import Batch
from dvip.layers import VIPLayer
from dvip.likelihoods.gaussian import Gaussian
from dvip.network import build_network
from dvip.objectives import DeepModel
from dvip.parameters import combine
from dvip.training.samplers import ENERGY_VARIANCE, Posterior
from dvip.training.sampling import Chain, SamplingSettings
from results_file import ResultsFile

RESULTS = Path(__file__).parent / "results" / "simulation_based_calibration.json"

NUM_ROWS, NUM_STEPS = 20, 6_000
# A truth is ranked among so many samples: with itself 20 ranks, two of which are a bin.
NUM_RANKED, NUM_BINS = 19, 10
# Of the parameters, a priori: wide enough to matter.
SPREADS = (0.5, 0.5)
LOG_NOISE = -1.0
# Where functions are compared.
PLACES = np.array([[-1.0], [0.5]], np.float32)
QUANTITIES = ("log noise", "f(-1)", "f(0.5)", "log amplitude", "log density")


def small_model(num_layers: int) -> DeepModel:
    """Layers of one unit, of five functions of a Gaussian process."""
    inputs = np.linspace(-2, 2, NUM_ROWS, dtype=np.float32)[:, None]

    def layer(index, inputs, num_units, key):
        process = GaussianProcess(num_frequencies=8, lengthscale=1.0)
        return VIPLayer.create(process, inputs.shape[1], num_units, 5, q_scale=1.0, key=key)

    widths = (1,) * num_layers
    network = build_network(inputs, widths, layer, (True,) * num_layers, seed=0)
    return DeepModel(network, Gaussian(jnp.full(1, LOG_NOISE)))


def posterior_of(model: DeepModel, targets: np.ndarray) -> Posterior:
    inputs = np.linspace(-2, 2, NUM_ROWS, dtype=np.float32)[:, None]
    rows = Batch(inputs, targets.astype(np.float32), np.ones(NUM_ROWS, np.float32))
    return Posterior.of(model, rows, spreads=SPREADS)


@jax.jit
def _quantities(posterior: Posterior, positions):
    def of_sample(position):
        model = combine(posterior.parameters(position), posterior.fixed)
        values = model.network.known_values(PLACES.T)[0]
        amplitude = model.network.known_layers[-1].process.log_amplitude
        noise = model.likelihood.log_variance[0]
        return jnp.stack([noise, *values, amplitude, posterior.log_density(position)])

    return jax.lax.map(of_sample, positions)


def ranks_of_run(model: DeepModel, run: int, sampler: str) -> np.ndarray:
    """The rank of each quantity of a truth among samples of its posterior."""
    random = np.random.default_rng((run, 1))
    nothing = posterior_of(model, np.zeros((NUM_ROWS, 1)))
    truth = random.normal(size=nothing.size).astype(np.float32)
    values = np.asarray(nothing.values(truth[None], nothing.rows.inputs))[0]
    noise = float(np.asarray(_quantities(nothing, truth[None]))[0, 0])
    targets = values + np.exp(0.5 * noise) * random.normal(size=NUM_ROWS)
    posterior = posterior_of(model, targets[:, None])
    chain = Chain(posterior, SamplingSettings(NUM_STEPS, 1, run, sampler), 0)
    while not chain.is_done:
        chain.advance()
    chosen = np.linspace(0, len(chain.draws) - 1, NUM_RANKED).round().astype(int)
    samples = np.asarray(_quantities(posterior, chain.draws[chosen]))
    return np.sum(samples < np.asarray(_quantities(posterior, truth[None])), axis=0)


def p_values(ranks: np.ndarray) -> dict[str, float]:
    """Of the χ² test that ranks are uniform, for each quantity."""
    bins = ranks * NUM_BINS // (NUM_RANKED + 1)
    counts = [np.bincount(column, minlength=NUM_BINS) for column in bins.T]
    return {
        name: float(chisquare(count).pvalue) for name, count in zip(QUANTITIES, counts, strict=True)
    }


def calibrate(num_runs: int, num_layers: int, sampler: str) -> np.ndarray:
    """Ranks, runs x quantities; runs are side by side, and share what is compiled."""
    model = small_model(num_layers)
    first = ranks_of_run(model, 0, sampler)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        others = threads.map(lambda run: ranks_of_run(model, run, sampler), range(1, num_runs))
        return np.stack([first, *others])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    results = ResultsFile(RESULTS)
    for num_layers, sampler in ((2, "mclmc"), (2, "nuts")):
        key = {"layers": num_layers, "sampler": sampler, "runs": runs, "log_noise": LOG_NOISE}
        key["energy_variance"] = ENERGY_VARIANCE
        if key in results:
            continue
        started = time.monotonic()
        ranks = calibrate(runs, num_layers, sampler)
        counts = {
            name: np.bincount(column, minlength=NUM_RANKED + 1).tolist()
            for name, column in zip(QUANTITIES, ranks.T, strict=True)
        }
        seconds = round(time.monotonic() - started)
        results.add(key, {"p_values": p_values(ranks), "ranks": counts, "seconds": seconds})


if __name__ == "__main__":
    main()
