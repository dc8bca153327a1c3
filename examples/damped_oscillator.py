"""A simulator as the prior: the second half of an oscillation from noisy points of the first.

python examples/damped_oscillator.py
"""

import matplotlib.pyplot as plt
import numpy as np

from dvip import DVIPRegressor, SimulatorPrior

HALF, NOISE, NUM_POINTS = 10.0, 0.1, 64


def oscillation(times: np.ndarray, height: float, damping: float, period: float, phase: float):
    """A pendulum that comes to rest."""
    return height * np.exp(-damping * times) * np.cos(2 * np.pi * times / period + phase)


def oscillator(inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What is known of it: its period to a tenth, that it is damped, nothing of its phase."""
    return oscillation(
        inputs[:, 0],
        height=rng.normal(0, 1.5),
        damping=rng.uniform(0.02, 0.08),
        period=rng.uniform(2.7, 3.0),
        phase=rng.uniform(0, 2 * np.pi),
    )


def observed(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Times and values of the first half, to learn from, and of the second, to forecast."""
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, HALF, NUM_POINTS)), np.linspace(HALF, 2 * HALF, 200)
    values = [
        oscillation(t, 1.6, 0.03, 2.83, 0.8) + NOISE * random.normal(size=len(t)) for t in times
    ]
    return times[0][:, None], values[0], times[1][:, None], values[1]


def main(max_iter: int = 4_000) -> dict[str, float]:
    """The CRPS of the second half, by prior."""
    past, seen, future, to_come = observed(seed=1)
    scores = {}
    _, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    axes.plot(past, seen, ".", color="black", ms=4)
    axes.plot(future, to_come, ".", color="silver", ms=4)
    for name, prior in (("simulator", SimulatorPrior(oscillator)), ("gp", "gp"), ("bnn", "bnn")):
        model = DVIPRegressor(prior=prior, inference="vi", n_layers=1, max_iter=max_iter)
        scores[name] = float(model.fit(past, seen).predict_dist(future).crps(to_come).mean())
        axes.plot(future, model.predict(future), label=name)
        print(f"{name}: CRPS of the second half {scores[name]:.3f}")
    axes.set_ylim(-3, 3)
    axes.legend(frameon=False, ncols=3)
    plt.savefig("oscillator.png", dpi=110)
    return scores


if __name__ == "__main__":
    main()
