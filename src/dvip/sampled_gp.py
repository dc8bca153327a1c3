"""A Gaussian process in closed form whose kernel is uncertain: its parameters are sampled.

Few rows say little of a kernel's length-scales, and the most probable ones are sure of what they
cannot know. Samples of the parameters θ from p(θ | y) ∝ p(y | θ) p(θ), by Hamiltonian Monte Carlo
(Neal, 2011), have a process in closed form each (`closed_form.py`); predictions are their mixture.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from dvip.closed_form import MAX_REFITTED, ClosedFormGP, Folds, conditioned
from dvip.function_draws import Together
from dvip.gp_moments import GPMoments
from dvip.sum_kernel import FARTHEST, GPData, SumKernel, fitted_kernel, loss_of_parameters

__all__ = ["SampledGP", "fit_sampled", "hamiltonian_samples"]

# Trajectories of a chain, and of one that a fold is judged by; the first of them are left out, and
# of so many others one is kept.
NUM_TRAJECTORIES, NUM_OF_FOLD, NUM_TUNING, THINNING = 60, 36, 12, 6
# Steps of a trajectory; the length of the first, and what share of them is to be accepted.
NUM_STEPS, FIRST_LENGTH, ACCEPTED = 8, 0.05, 0.75

Vector = Float[np.ndarray, " parameters"]
Loss = Callable[[Vector], tuple[float, Vector]]


@dataclass(frozen=True)
class SampledGP:
    """Gaussian processes of the same rows with different kernels, equally probable."""

    members: tuple[ClosedFormGP, ...]

    def given(self, data: GPData) -> "SampledGP":
        """The process given further rows, with the same kernels and the same inducing points."""
        added = self.members[0].unexplained(np.asarray(data.inputs, dtype=float))
        return SampledGP(tuple(member.given(data, added) for member in self.members))

    def draw_functions(self, number: int, seed: int) -> Together:
        """Whole functions; the members take turns."""
        turns = np.arange(number) % len(self.members)
        draws = [
            (turns == index, member.draw_functions(int(np.sum(turns == index)), seed + index))
            for index, member in enumerate(self.members)
            if np.any(turns == index)
        ]
        return Together(number, draws)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that it is made of; the inducing points are the same for all members."""
        of_members = [member.arrays() for member in self.members]
        stacked = {name: np.stack([own[name] for own in of_members]) for name in of_members[0]}
        return {**stacked, "inducing": self.members[0].inducing}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], num_inputs: int, num_outputs: int
    ) -> "SampledGP":
        """What `arrays` gave; a ValueError or KeyError unless they fit together."""
        numbers = {len(array) for name, array in arrays.items() if name != "inducing"}
        if len(numbers) != 1 or 0 in numbers:
            raise ValueError("its samples are none.")
        own = [
            {name: array if name == "inducing" else array[index] for name, array in arrays.items()}
            for index in range(numbers.pop())
        ]
        return cls(tuple(ClosedFormGP.from_arrays(a, num_inputs, num_outputs) for a in own))


def fit_sampled(
    data: GPData, folds: Folds, seed: int
) -> tuple[SampledGP, list[Sequence[GPMoments]]]:
    """The process of these rows, and what each member predicts for each fold without it.

    Of few rows, each fold has samples that did not see it; otherwise all share them.
    """
    with threadpool_limits(1, user_api="blas"):
        random = np.random.default_rng(seed)
        kernels = _sampled_kernels(data, random, NUM_TRAJECTORIES)
        shared = [conditioned(kernel, data, folds, data.inputs) for kernel in kernels]
        model = SampledGP(tuple(member for member, _ in shared))
        if len(data.inputs) > MAX_REFITTED:
            return model, list(zip(*(left_out for _, left_out in shared), strict=True))
        left_out: list[Sequence[GPMoments]] = []
        for fold in folds:
            others = data.chosen(np.setdiff1d(np.arange(len(data.inputs)), fold))
            kernels = _sampled_kernels(others, random, NUM_OF_FOLD)
            members = [conditioned(kernel, others, [], others.inputs)[0] for kernel in kernels]
            left_out.append([member.moments(data.inputs[fold]) for member in members])
    return model, left_out


def _sampled_kernels(
    data: GPData, random: np.random.Generator, num_trajectories: int
) -> list[SumKernel]:
    """Samples of the kernel given these rows, from the most probable one on."""
    start = fitted_kernel(data, random.permutation(len(data.inputs)))
    usual = SumKernel.usual(data.inputs.shape[1]).parameters

    def loss(parameters: Vector) -> tuple[float, Vector]:
        if np.any(np.abs(parameters - usual) > FARTHEST):
            return np.inf, parameters
        return loss_of_parameters(parameters, data)

    samples = hamiltonian_samples(loss, start.parameters, random, num_trajectories)
    return [SumKernel(sample) for sample in samples]


def hamiltonian_samples(
    loss: Loss, start: Vector, random: np.random.Generator, num_trajectories: int
) -> list[Vector]:
    """Samples of a density; `loss` gives minus its logarithm and the derivative of that.

    The length of the steps is adapted in the first trajectories, which are left out.
    """
    position, (energy, slope) = start, loss(start)
    length, samples = FIRST_LENGTH, []
    for index in range(num_trajectories):
        step = length * np.exp(0.2 * random.standard_normal())  # none is in step with an orbit
        momentum = random.standard_normal(len(start))
        end, (end_energy, end_slope) = position, (energy, slope)
        kinetic = 0.5 * momentum @ momentum
        for _ in range(NUM_STEPS):
            momentum = momentum - 0.5 * step * end_slope
            end = end + step * momentum
            end_energy, end_slope = loss(end)
            if not np.isfinite(end_energy):
                break
            momentum = momentum - 0.5 * step * end_slope
        gained = float(energy + kinetic - end_energy - 0.5 * momentum @ momentum)
        probability = math.exp(min(0.0, gained)) if np.isfinite(end_energy) else 0.0
        if random.uniform() < probability:
            position, energy, slope = end, end_energy, end_slope
        if index < NUM_TUNING:
            length *= np.exp((probability - ACCEPTED) / np.sqrt(1 + index))
        elif (index - NUM_TUNING) % THINNING == 0:
            samples.append(position)
    return samples
