"""A simulator of differential equations as the prior: Lotka and Volterra's predators and prey.

python examples/predators_and_prey.py
"""

import numpy as np
from scipy.integrate import solve_ivp
from scipy.stats import uniform

from dvip import DVIPRegressor, SimulatorPrior

HALF, NOISE, NUM_POINTS = 15.0, 0.2, 64
GRID = np.linspace(0, 2 * HALF, 1_001)

# What is known of the animals: rates to a fifth, numbers at the beginning to a half.
KNOWN = {
    "births": uniform(0.8, 0.4),
    "eaten": uniform(0.3, 0.2),
    "deaths": uniform(0.8, 0.4),
    "fed": uniform(0.3, 0.2),
    "prey": uniform(2, 3),
    "predators": uniform(1, 2),
}


def numbers_of_prey(inputs, births, eaten, deaths, fed, prey, predators):
    """Numbers of prey at these times, from an ordinary solver that knows no gradients."""

    def rates(_, state):
        x, y = state
        return x * (births - eaten * y), y * (fed * x - deaths)

    solved = solve_ivp(rates, (0, GRID[-1]), (prey, predators), t_eval=GRID, rtol=1e-6)
    return np.interp(inputs[:, 0], GRID, solved.y[0])


def observed(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Times and numbers of the first half, to learn from, and of the second, to forecast."""
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, HALF, NUM_POINTS)), np.linspace(HALF, 2 * HALF, 200)
    truth = [numbers_of_prey(t[:, None], 1.05, 0.42, 0.93, 0.37, 4.1, 1.7) for t in times]
    values = [each + NOISE * random.normal(size=len(each)) for each in truth]
    return times[0][:, None], values[0], times[1][:, None], values[1]


def main(max_iter: int = 4_000) -> dict[str, float]:
    """The CRPS of the second half, by prior."""
    past, seen, future, to_come = observed(seed=1)
    scores = {}
    simulator = SimulatorPrior(numbers_of_prey, KNOWN, time_limit=60)
    for name, prior in (("simulator", simulator), ("gp", "gp"), ("bnn", "bnn")):
        model = DVIPRegressor(prior=prior, inference="vi", n_layers=1, max_iter=max_iter)
        scores[name] = float(model.fit(past, seen).predict_dist(future).crps(to_come).mean())
        print(f"{name}: CRPS of the second half {scores[name]:.3f}")
    return scores


if __name__ == "__main__":
    main()
