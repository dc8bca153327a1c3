"""A training step on the α-energy with α = 1 and three samples, against one on the ELBO.

S = 20, BNN 10-10, batches of 100, float32. A step is its share of a whole fit. The time of the
processor is told besides that of the clock: it does not hear what else runs on the machine.
"""

from measurements import Options
from measurements.interleaving import Contest, rounds_to_do, run_rounds
from results_file import Entry, ResultsFile
from tables import power_like

SETTINGS = {
    "ELBO": {"alpha": 0.0, "n_training_samples": 1},
    "α = 1": {"alpha": 1.0, "n_training_samples": 3},
}
STEPS = 2_000


def measure(results: ResultsFile, options: Options) -> None:
    for inputs in (4,) if options.quick else (4, 8):
        for layers in (2,) if options.quick else (2, 3):
            for prior in ("constrained", "unconstrained"):
                shape = {"prior": prior, "inputs": inputs, "layers": layers}
                keys = [{**shape, "objective": objective} for objective in SETTINGS]
                rounds = rounds_to_do(results, keys, options)
                if rounds:
                    steps = STEPS // 10 if options.quick else STEPS
                    run_rounds(results, [_contest(key, steps) for key in keys], rounds)


def _contest(key: Entry, steps: int) -> Contest:
    from dvip import BayesianNeuralNetwork, DVIPRegressor

    split = power_like(key["inputs"])
    model = DVIPRegressor.paper(
        n_layers=key["layers"],
        prior=BayesianNeuralNetwork(constrained=key["prior"] == "constrained"),
        max_iter=steps,
        **SETTINGS[key["objective"]],
    )
    return Contest(key, lambda: model.fit(split.inputs, split.targets), steps)
