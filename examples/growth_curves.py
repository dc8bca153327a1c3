"""Past curves as the prior: a new growth curve from three of its points and forty old curves.

python examples/growth_curves.py
"""

import matplotlib.pyplot as plt
import numpy as np

from dvip import CurvePrior, DVIPRegressor

DAYS = np.linspace(0, 10, 41)
ERROR = 0.05


def growth(days: np.ndarray, height: float, rate: float, middle: float) -> np.ndarray:
    """A logistic curve."""
    return height / (1 + np.exp(-rate * (days - middle)))


def bank(seed: int, num_curves: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Curves that were measured before, and one that is new, without errors."""
    random = np.random.default_rng(seed)
    drawn = random.normal((10, 1.2, 5), (1.5, 0.2, 0.8), size=(num_curves + 1, 3))
    curves = np.array([growth(DAYS, *each) for each in drawn])
    return curves[:-1] + ERROR * random.normal(size=curves[:-1].shape), curves[-1]


def main(max_iter: int = 3_000) -> dict[str, float]:
    """The error of the whole new curve, by prior."""
    curves, new = bank(seed=0)
    measured = [8, 16, 22]  # days 2, 4 and 5.5
    days, heights = DAYS[measured, None], new[measured]
    heights = heights + ERROR * np.random.default_rng(1).normal(size=3)
    errors = {}
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True, layout="constrained")
    priors = {"curves": CurvePrior(DAYS, curves), "gp": "gp", "bnn": "bnn"}
    for axis, (name, prior) in zip(axes, priors.items(), strict=True):
        model = DVIPRegressor(prior=prior, inference="vi", n_layers=1, max_iter=max_iter)
        predicted = model.fit(days, heights, noise_std=ERROR).predict_dist(DAYS[:, None])
        low, high = predicted.interval(0.95)
        errors[name] = float(np.sqrt(np.mean(np.square(predicted.mean - new))))
        inside = np.mean((low < new) & (new < high))
        axis.fill_between(DAYS, low, high, color="#a9cbe6", lw=0)
        axis.plot(DAYS, predicted.mean, color="#1f5f99", lw=2)
        axis.plot(DAYS, new, "--", color="grey", lw=1)
        axis.plot(days, heights, "o", color="black", ms=5)
        axis.set(title=f"prior: {name}", xlabel="days", ylim=(-6, 20))
        print(f"{name}: RMSE {errors[name]:.2f}, 95 % intervals hold {inside:.0%} of the curve")
    figure.savefig("growth.png", dpi=110)
    return errors


if __name__ == "__main__":
    main()
