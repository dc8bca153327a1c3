"""A training step: the paper's setting on Power's shape, against a deep GP of the same depth.

S = 20, BNN 10-10, batches of 100, float32; the deep GP has 100 inducing points a layer. A step of
dvip is its share of a whole fit, the setting up included. At three layers, the GP prior and our own
deep GP too.
"""

from contestants import DEEP_GP, DVIP, DVIP_GP, OWN_DEEP_GP, make
from measurements import Options
from measurements.interleaving import Contest, rounds_to_do, run_rounds
from results_file import ResultsFile
from tables import power_like

DEPTHS = (1, 2, 3, 5)
STEPS = {DVIP: 5_000, DVIP_GP: 2_000, OWN_DEEP_GP: 1_000, DEEP_GP: 10}
OTHER_MODELS, THEIR_DEPTH = (DVIP_GP, OWN_DEEP_GP), 3


def measure(results: ResultsFile, options: Options) -> None:
    names = (DVIP, DEEP_GP) if options.peers else (DVIP,)
    depths = DEPTHS[:2] if options.quick else DEPTHS
    keys = [{"contestant": name, "layers": depth} for depth in depths for name in names]
    keys += [{"contestant": name, "layers": THEIR_DEPTH} for name in OTHER_MODELS]
    rounds = rounds_to_do(results, keys, options)
    if rounds:
        contests = [_contest(key["contestant"], key["layers"], options.quick) for key in keys]
        run_rounds(results, contests, rounds)


def _contest(name: str, depth: int, quick: bool) -> Contest:
    split = power_like()
    key = {"contestant": name, "layers": depth}
    if name == DEEP_GP:
        model = make(DEEP_GP, {"n_layers": depth}).start(split.inputs, split.targets)
        return Contest(key, lambda: model.steps(STEPS[DEEP_GP]), STEPS[DEEP_GP])
    steps = STEPS[name] // 10 if quick else STEPS[name]
    model = make(name, {"n_layers": depth, "max_iter": steps})
    return Contest(key, lambda: model.fit(split.inputs, split.targets), steps)
