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
from dvip.processes.frequencies import draw_frequencies

OUT = Path(__file__).parent / "results"
INPUTS = [1, 4, 8, 30]
FEATURES = [16, 32, 64, 128, 256, 512, 1024]
PAPER_FEATURES = 2000
SAMPLES, BATCH = 20, 100
COLOURS = {
    "cosines": "#52514e",
    "random": "#2a78d6",
    "orthogonal": "#eb6834",
    "qmc": "#1baf7a",
}


def kernel_error(construction: str, num_inputs: int, num_features: int, num_draws: int) -> float:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 200, num_inputs)) / np.sqrt(num_inputs)
    exact = np.exp(-0.5 * np.square(x - y).sum(axis=1))
    squares = []
    if construction == "cosines":
        for _ in range(num_draws):
            frequencies = random.normal(size=(num_features, num_inputs))
            phases = random.uniform(0, 2 * np.pi, size=num_features)
            waves = 2 * np.cos(x @ frequencies.T + phases) * np.cos(y @ frequencies.T + phases)
            squares.append(np.mean(np.square(waves.mean(axis=1) - exact)))
    else:
        arguments = (num_features // 2, num_inputs, "rbf", construction)
        draw = jax.jit(jax.vmap(lambda key: draw_frequencies(key, *arguments)))
        for frequencies in np.asarray(draw(jax.random.split(jax.random.key(0), num_draws))):
            kernel = np.cos((x - y) @ frequencies.T).mean(axis=1)
            squares.append(np.mean(np.square(kernel - exact)))
    return float(np.sqrt(np.mean(squares)))


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
    error: dict = {}
    times: dict = {}
    for num_inputs in INPUTS:
        error[num_inputs] = {
            name: {m: kernel_error(name, num_inputs, m, num_draws) for m in FEATURES}
            for name in COLOURS
        }
        error[num_inputs]["cosines"][PAPER_FEATURES] = kernel_error(
            "cosines", num_inputs, PAPER_FEATURES, num_draws
        )
        shared = {
            m: milliseconds(GaussianProcess(num_frequencies=m // 2), num_inputs, 50, 4)
            for m in FEATURES
        }
        own = {
            m: milliseconds(BayesianNeuralNetwork((m,), "cos", zero_mean=True), num_inputs, 1, 2)
            for m in [*FEATURES, PAPER_FEATURES]
        }
        times[num_inputs] = {"shared": shared, "cosines": own}
        print(num_inputs, times[num_inputs], flush=True)
    # Through JSON, so that a run and a saved run have the same keys.
    return json.loads(json.dumps({"error": error, "milliseconds": times}))


def features_needed(errors: dict[str, float], wanted: float) -> str:
    enough = [int(m) for m, error in errors.items() if error <= wanted]
    return f"{min(enough):,}" if enough else f"over {max(FEATURES):,}"


def markdown(results: dict) -> str:
    default = str(2 * GaussianProcess().num_frequencies)
    lines = [
        f"| inputs | error of {PAPER_FEATURES:,} cosines | features for it: random | orthogonal "
        f"| qmc | error of the default | default, ms | {PAPER_FEATURES:,} cosines, ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for inputs, errors in results["error"].items():
        wanted = errors["cosines"][str(PAPER_FEATURES)]
        needed = " | ".join(
            features_needed(errors[name], wanted) for name in ("random", "orthogonal", "qmc")
        )
        times = results["milliseconds"][inputs]
        lines.append(
            f"| {inputs} | {wanted:.4f} | {needed} "
            f"| {errors[GaussianProcess().construction][default]:.4f} "
            f"| {times['shared'][default]:.3f} | {times['cosines'][str(PAPER_FEATURES)]:.1f} |"
        )
    note = f"\nThe default is {default} features, {GaussianProcess().construction}."
    return "\n".join(lines) + "\n" + note + "\n"


def draw(results: dict, path: Path) -> None:
    figure, axes = plt.subplots(
        2, len(INPUTS), figsize=(13, 6.4), sharey=True, sharex="row", layout="constrained"
    )
    for column, (inputs, errors) in enumerate(results["error"].items()):
        times = results["milliseconds"][inputs]
        wanted = errors["cosines"][str(PAPER_FEATURES)]
        for row, axis in enumerate(axes[:, column]):
            axis.axhline(wanted, color="#a3a29c", linewidth=1, linestyle="--", zorder=1)
            for name, colour in COLOURS.items():
                clock = times["cosines" if name == "cosines" else "shared"]
                features = sorted(errors[name], key=int)
                x = [int(m) if row == 0 else clock[m] for m in features]
                y = [errors[name][m] for m in features]
                axis.plot(x, y, color=colour, linewidth=2, marker="o", markersize=3.5, label=name)
            axis.set(xscale="log", yscale="log")
            axis.grid(color="#e6e5e0", linewidth=0.6)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0, column].set_title(f"{inputs} input{'s' if int(inputs) > 1 else ''}", fontsize=11)
        axes[0, column].set_xticks([16, 64, 256, 1024], ["16", "64", "256", "1,024"])
        axes[0, column].minorticks_off()
        axes[0, column].set_xlabel("features")
        axes[1, column].set_xlabel("milliseconds, with gradient")
    for axis in axes[:, 0]:
        axis.set_ylabel("kernel error (RMS)")
    axes[0, 0].annotate(
        f"{PAPER_FEATURES:,} cosines",
        (16, results["error"]["1"]["cosines"][str(PAPER_FEATURES)]),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=8,
        color="#52514e",
    )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=40, help="of the frequencies, to average over")
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
