"""Kernel error and time of the Gaussian process prior, against the number of its random features.

    python benchmarks/random_features.py

The error is the root mean square, over random pairs of standard normal points and over draws of
the frequencies, of the features' RBF kernel less the kernel itself, with length-scales of √inputs.
"cosines" are random frequencies with random phases, each function with its own: the paper's network
of one layer of 2,000 cosine units, here `BayesianNeuralNetwork((2000,), "cos")`. The others are
the constructions of `GaussianProcess`, whose features are the cosines and sines of frequencies that
the functions share. The time is that of the processor, for 20 functions at a batch of 100 and the
gradient by parameters and inputs. Output: `benchmarks/results/random_features.json`, `.md`, `.png`.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from dvip import BayesianNeuralNetwork, GaussianProcess, ImplicitProcess
from dvip.processes.gp import draw_frequencies

OUT = Path(__file__).parent / "results"
INPUTS = [1, 4, 8, 30]
FEATURES = [16, 32, 64, 128, 256, 512, 1024]
PAPER_FEATURES = 2000
SAMPLES, BATCH, TIMED_INPUTS = 20, 100, 8
COLOURS = {
    "cosines": "#52514e",
    "random": "#2a78d6",
    "orthogonal": "#eb6834",
    "qmc": "#1baf7a",
}


def kernel_errors(construction: str, num_inputs: int, num_draws: int) -> dict[int, float]:
    """The error for each number of features."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 200, num_inputs)) / np.sqrt(num_inputs)
    exact = np.exp(-0.5 * np.square(x - y).sum(axis=1))
    keys = jax.random.split(jax.random.key(0), num_draws)

    def waves_of_pairs(num_features: int) -> np.ndarray:
        """Draws x pairs x terms, whose mean over the terms is the kernel."""
        arguments = (num_features // 2, num_inputs, "rbf", construction)
        frequencies = jax.jit(jax.vmap(lambda key: draw_frequencies(key, *arguments)))(keys)
        return np.cos((x - y) @ np.swapaxes(frequencies, 1, 2))

    def error(waves: np.ndarray) -> float:
        return float(np.sqrt(np.mean(np.square(waves.mean(axis=2) - exact))))

    if construction == "cosines":
        shape = (num_draws, num_inputs, PAPER_FEATURES)
        frequencies = random.normal(size=shape).astype(np.float32)
        phases = random.uniform(0, 2 * np.pi, size=(num_draws, 1, PAPER_FEATURES))
        waves = 2 * np.cos(x @ frequencies + phases) * np.cos(y @ frequencies + phases)
        return {m: error(waves[..., :m]) for m in [*FEATURES, PAPER_FEATURES]}
    if construction == "orthogonal":
        return {m: error(waves_of_pairs(m)) for m in FEATURES}
    # Of these, fewer frequencies are the first of more.
    waves = waves_of_pairs(max(FEATURES))
    return {m: error(waves[..., : m // 2]) for m in FEATURES}


def milliseconds(process: ImplicitProcess, num_inputs: int, steps: int, rounds: int) -> float:
    """Of one evaluation with its gradient, inside a compiled loop as in training."""
    process = process.initialise(num_inputs, jax.random.key(0))
    noise = process.draw_noise(jax.random.key(1), SAMPLES)
    inputs = jax.random.normal(jax.random.key(2), (num_inputs, BATCH))
    readout = jax.random.normal(jax.random.key(3), (SAMPLES, BATCH))

    def value(process: ImplicitProcess, inputs: jax.Array) -> jax.Array:
        return jnp.sum(readout * process(noise, inputs))

    @jax.jit
    def loop(process: ImplicitProcess, inputs: jax.Array) -> tuple:
        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            gradient = jax.grad(value, argnums=(0, 1))(*carry)
            return jax.tree.map(lambda a, b: a + 1e-6 * b, carry, gradient), None

        return jax.lax.scan(step, (process, inputs), None, length=steps)[0]

    jax.block_until_ready(loop(process, inputs))
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(loop(process, inputs))
        seconds.append(time.process_time() - start)
    return 1e3 * min(seconds) / steps


def measure(num_draws: int) -> dict:
    errors = {}
    for num_inputs in INPUTS:
        errors[num_inputs] = {name: kernel_errors(name, num_inputs, num_draws) for name in COLOURS}
        print(num_inputs, errors[num_inputs], flush=True)
    shared = {
        m: milliseconds(GaussianProcess(num_frequencies=m // 2), TIMED_INPUTS, 50, 4)
        for m in FEATURES
    }
    own = {
        m: milliseconds(BayesianNeuralNetwork((m,), "cos", zero_mean=True), TIMED_INPUTS, 1, 3)
        for m in [FEATURES[0], 256, PAPER_FEATURES]
    }
    # Through JSON, so that a run and a saved run have the same keys.
    results = {"error": errors, "milliseconds": {"shared": shared, "cosines": own}}
    return json.loads(json.dumps(results))


def features_needed(errors: dict[str, float], wanted: float) -> str:
    enough = [int(m) for m, error in errors.items() if error <= wanted]
    return f"{min(enough):,}" if enough else f"over {max(FEATURES):,}"


def markdown(results: dict) -> str:
    default = str(2 * GaussianProcess().num_frequencies)
    lines = [
        f"| inputs | error of {PAPER_FEATURES:,} cosines | features for it: random | orthogonal "
        "| qmc | error of the default |",
        "|---|---|---|---|---|---|",
    ]
    for inputs, errors in results["error"].items():
        wanted = errors["cosines"][str(PAPER_FEATURES)]
        needed = " | ".join(
            features_needed(errors[name], wanted) for name in ("random", "orthogonal", "qmc")
        )
        error = errors[GaussianProcess().construction][default]
        lines.append(f"| {inputs} | {wanted:.4f} | {needed} | {error:.4f} |")
    times = results["milliseconds"]
    note = (
        f"The default is {default} features, {GaussianProcess().construction}. At {TIMED_INPUTS} "
        f"inputs it takes {times['shared'][default]:.2f} ms, {PAPER_FEATURES:,} cosines "
        f"{times['cosines'][str(PAPER_FEATURES)]:.0f} ms."
    )
    return "\n".join(lines) + "\n\n" + note + "\n"


def draw(results: dict, path: Path) -> None:
    figure, axes = plt.subplots(
        1, len(INPUTS) + 1, figsize=(15, 3.8), sharey=True, layout="constrained"
    )
    for axis, (inputs, errors) in zip(axes, results["error"].items(), strict=False):
        axis.axhline(
            errors["cosines"][str(PAPER_FEATURES)], color="#a3a29c", linewidth=1, linestyle="--"
        )
        for name, colour in COLOURS.items():
            features = sorted(map(int, errors[name]))
            values = [errors[name][str(m)] for m in features]
            axis.plot(features, values, color=colour, linewidth=2, marker="o", markersize=3.5)
        axis.set_title(f"{inputs} input{'s' if int(inputs) > 1 else ''}", fontsize=11)
        axis.set(xscale="log", yscale="log", xlabel="features")
        axis.set_xticks([16, 64, 256, 1024], ["16", "64", "256", "1,024"])
        axis.minorticks_off()
    axes[0].set_ylabel("kernel error (RMS)")
    axes[1].annotate(
        f"{PAPER_FEATURES:,} cosines",
        (16, results["error"][str(INPUTS[1])]["cosines"][str(PAPER_FEATURES)]),
        xytext=(0, -11),
        textcoords="offset points",
        fontsize=8,
        color="#52514e",
    )
    errors = results["error"][str(TIMED_INPUTS)]
    for name, colour in COLOURS.items():
        clock = results["milliseconds"]["cosines" if name == "cosines" else "shared"]
        features = sorted(clock, key=int)
        values = [errors[name][m] for m in features]
        times = [clock[m] for m in features]
        axes[-1].plot(times, values, color=colour, linewidth=2, marker="o", markersize=3.5)
    axes[-1].set_title(f"{TIMED_INPUTS} inputs, by time", fontsize=11)
    axes[-1].set(xscale="log", xlabel="milliseconds, with gradient")
    for axis in axes:
        axis.grid(color="#e6e5e0", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(axes[0].lines[1:], COLOURS, loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=30, help="of the frequencies, to average over")
    parser.add_argument("--redraw", action="store_true", help="table and figure of the saved run")
    arguments = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    saved = OUT / "random_features.json"
    if not arguments.redraw:
        saved.write_text(json.dumps(measure(arguments.draws), indent=1))
    results = json.loads(saved.read_text())
    (OUT / "random_features.md").write_text(markdown(results))
    draw(results, OUT / "random_features.png")
    print(markdown(results))


if __name__ == "__main__":
    main()
