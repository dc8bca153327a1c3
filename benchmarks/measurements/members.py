"""An ensemble of five members, trained side by side, against one member.

Two layers, α = 1, three samples, BNN 10-10 without constraints; compiled before. A round trains
both.
"""

from measurements import Options
from measurements.interleaving import Contest, rounds_to_do, run_rounds
from results_file import Entry, ResultsFile
from tables import power_like

STEPS = 3_000


def measure(results: ResultsFile, options: Options) -> None:
    keys: list[Entry] = [{"members": number} for number in (1, 5)]
    rounds = rounds_to_do(results, keys, options)
    if rounds:
        steps = STEPS // 10 if options.quick else STEPS
        run_rounds(results, [_contest(key, steps) for key in keys], rounds)


def _contest(key: Entry, steps: int) -> Contest:
    from dvip import BayesianNeuralNetwork, DVIPRegressor

    split = power_like()
    model = DVIPRegressor.paper(
        n_layers=2,
        prior=BayesianNeuralNetwork(constrained=False),
        alpha=1.0,
        n_training_samples=3,
        max_iter=steps,
        n_members=key["members"],
    )
    return Contest(key, lambda: model.fit(split.inputs, split.targets), 1)
