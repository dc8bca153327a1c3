"""A training step: the paper's setting on Power's shape, against a deep GP of the same depth.

S = 20, BNN 10-10, batches of 100, float32; the deep GP has 100 inducing points a layer. A step of
dvip is its share of a whole fit, the setting up included.
"""

from contestants import DEEP_GP, DVIP, make
from measurements import Options
from measurements.interleaving import Contest, rounds_to_do, run_rounds
from results_file import ResultsFile
from tables import power_like

DEPTHS = (1, 2, 3, 5)
DVIP_STEPS, DEEP_GP_STEPS = 5_000, 10


def measure(results: ResultsFile, options: Options) -> None:
    names = (DVIP, DEEP_GP) if options.peers else (DVIP,)
    depths = DEPTHS[:2] if options.quick else DEPTHS
    keys = [{"contestant": name, "layers": depth} for depth in depths for name in names]
    rounds = rounds_to_do(results, keys, options)
    if rounds:
        contests = [_contest(key["contestant"], key["layers"], options.quick) for key in keys]
        run_rounds(results, contests, rounds)


def _contest(name: str, depth: int, quick: bool) -> Contest:
    split = power_like()
    key = {"contestant": name, "layers": depth}
    if name == DVIP:
        steps = DVIP_STEPS // 10 if quick else DVIP_STEPS
        model = make(DVIP, {"n_layers": depth, "max_iter": steps})
        return Contest(key, lambda: model.fit(split.inputs, split.targets), steps)
    model = make(DEEP_GP, {"n_layers": depth}).start(split.inputs, split.targets)
    return Contest(key, lambda: model.steps(DEEP_GP_STEPS), DEEP_GP_STEPS)
