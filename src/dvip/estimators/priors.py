"""Estimators whose layers have implicit processes as priors: from what was given to processes."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dvip.estimators.base import DeepEstimator
from dvip.estimators.builder import check_count, one_each
from dvip.estimators.simulations import CarriedInputs, Simulations
from dvip.processes import DataUnits, ImplicitProcess
from dvip.processes.expressions import parsed_prior
from dvip.processes.process import PerGroup
from dvip.processes.simulator import Carried, simulators_of
from dvip.registry import PRIORS
from dvip.sources import Source
from dvip.training import CheckpointFolder

__all__ = ["ImplicitProcessEstimator", "Prior"]

# The prior of inner layers where the one that was given reads images, sequences or named columns.
INNER_PRIOR = "bnn"

Prior = str | ImplicitProcess


class ImplicitProcessEstimator(DeepEstimator):
    """Layers whose priors are implicit processes."""

    prior: Prior | Sequence[Prior] | None
    n_prior_samples: int | None
    n_inducing: int | None
    shared_prior: bool | Sequence[bool] | None
    fresh_noise: bool

    # What simulators gave, where the prior has some.
    simulations_: Simulations

    _counts: ClassVar[tuple[str, ...]] = (*DeepEstimator._counts, "n_prior_samples")

    _paper: ClassVar[Mapping[str, Any]] = {
        **DeepEstimator._paper,
        "n_prior_samples": 20,
        "prior": "bnn",
    }

    @property
    def _num_prior_samples(self) -> int:
        """As many as were given, as the first prior wants, or as the paper has."""
        wanted = self._input_process().wanted_functions if self.n_prior_samples is None else None
        return self._value("n_prior_samples") if wanted is None else wanted

    @property
    def _prior_given(self) -> Prior | Sequence[Prior]:
        return self._value("prior")

    def check_parameters(self) -> None:
        """Raises an error, which says what to do, unless the parameters make sense."""
        super().check_parameters()
        if self._num_prior_samples < 2:
            raise ValueError("n_prior_samples=1: one function has no variance, use at least 2.")
        if self.n_inducing is not None:
            check_count("n_inducing", self.n_inducing)
        processes = self._processes_given()
        if simulators_of(processes[0]):
            for name in ("n_inducing", "fresh_noise"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name}={getattr(self, name)!r} needs prior functions elsewhere than a "
                        "SimulatorPrior is run, at the rows of the data: leave it out, or use a "
                        "JaxSimulatorPrior."
                    )

    def _processes_given(self) -> tuple[ImplicitProcess, ...]:
        """The process of each layer, before the first is told of the inputs."""
        given: Any = self._prior_given
        first = self._input_process()
        if isinstance(given, list | tuple):
            inner = tuple(as_process(prior) for prior in given[1:])
        else:
            # What leaves the first layer is no image any more, and has no columns or units.
            of_inputs = first.structured or first.bound_to_data
            inner = (as_process(INNER_PRIOR) if of_inputs else first,) * (self._num_layers - 1)
        if len(inner) != self._num_layers - 1:
            raise ValueError(
                f"prior has {1 + len(inner)} entries for {self._num_layers} layers: give one "
                "prior, or one for each layer."
            )
        for process in inner:
            if process.structured or process.bound_to_data:
                what = "images or sequences" if process.structured else "columns of the data"
                raise ValueError(
                    f"prior={given!r}: {type(process).__name__} reads {what}, which only the first "
                    "layer sees."
                )
        return (first, *inner)

    def _input_process(self) -> ImplicitProcess:
        given: Any = self._prior_given
        return as_process(given[0] if isinstance(given, list | tuple) and given else given)

    def _units(self) -> DataUnits:
        """What the first layer's process is told of the data."""
        scaler, target = self.input_scaler_, None
        if hasattr(self, "target_scaler_") and self._num_outputs == 1:
            of_model = self._model_scaler()  # of a regression
            target = (float(of_model.mean[0]), float(of_model.scale[0]))
        names = tuple(self._input_names())
        return DataUnits(self.input_shape_, names, scaler.mean, scaler.scale, target)

    def _process_of_inputs(self, num_functions: int | None = None) -> ImplicitProcess:
        """The first layer's process, told of the data."""
        process = self._input_process().for_data(self._units())
        if not simulators_of(process):
            return process
        number = self.simulations_.num_functions if num_functions is None else num_functions
        return Carried(process, len(self.input_scaler_.mean), number)

    def _process_of(self, index: int, num_units: int) -> ImplicitProcess:
        """The process of a layer, with functions for each unit where they are not shared.

        Groups of the last layer's units never share them.
        """
        process = self._process_of_inputs() if index == 0 else self._processes_given()[index]
        given = one_each(self.shared_prior, self._num_layers)
        if len(given) != self._num_layers or not all(
            flag is None or isinstance(flag, bool | np.bool_) for flag in given
        ):
            raise ValueError(
                f"shared_prior={self.shared_prior!r}: give True, False, None, or one of them for "
                f"each of the {self._num_layers} layers."
            )
        shared = process.shared_by_units if given[index] is None else given[index]
        if not shared:
            return process.one_for_each_unit(num_units)
        num_groups = self._chosen_likelihood().num_groups
        if index == self._num_layers - 1 and num_groups > 1:
            return PerGroup(process, num_groups, num_units)
        return process

    def _propagate_inputs(self) -> tuple[bool, ...]:
        flags = zip(super()._propagate_inputs(), self._processes_given(), strict=True)
        return tuple(flag and not process.structured for flag, process in flags)

    def _carrying(
        self, scaled: np.ndarray, rows: np.ndarray, *, training: bool = False, first: bool = False
    ) -> Any:
        """Scaled inputs with what simulators give for them behind, where the prior has some."""
        if first:
            self.__dict__.pop("simulations_", None)
        if not simulators_of(self._input_process()):
            return scaled
        simulators = simulators_of(self._input_process().for_data(self._units()))
        if first:
            self.simulations_ = Simulations.of(
                simulators, rows, int(self._num_prior_samples), self.seed_, self._units().target
            )
        carried = CarriedInputs(scaled, rows, self.simulations_, simulators)
        return np.asarray(carried) if training else carried

    def _fit_source(self, source: Source, checkpoints: CheckpointFolder | None) -> None:
        if simulators_of(self._input_process()) and not source.in_memory:
            raise ValueError(
                "A SimulatorPrior is run once at all rows, which must be in memory: fit to arrays, "
                "use --no-stream, or write the simulator in JAX as a JaxSimulatorPrior."
            )
        super()._fit_source(source, checkpoints)


def as_process(prior: Any) -> ImplicitProcess:
    """A prior as it was given: an object, a name, or a text with names."""
    if isinstance(prior, ImplicitProcess):
        return prior
    if isinstance(prior, str):
        return parsed_prior(prior)
    raise ValueError(f"{PRIORS.unknown(prior)} or an ImplicitProcess object.")
