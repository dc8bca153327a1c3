"""To look at a prior and at its parts: functions before a training, terms of a sum after it."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dvip.estimators.base import MAX_SEED
from dvip.estimators.builder import check_count
from dvip.estimators.priors import ImplicitProcessEstimator
from dvip.estimators.scales import Standardiser
from dvip.estimators.simulations import CarriedInputs, Simulations
from dvip.layers import KnownVIPLayer, VIPLayer
from dvip.layers.layer import WhitenedGaussian
from dvip.network import DeepNetwork
from dvip.parameters import combine
from dvip.prediction import draw_functions, members_of
from dvip.processes import ImplicitProcess, mean_and_features
from dvip.processes.simulator import Carried, simulators_of
from dvip.runtime import precision, random_key
from dvip.sampled import SampledModel

__all__ = ["PriorFunctionsEstimator"]

# Rows that are computed at once.
ROWS_AT_ONCE = 2_048


class PriorFunctionsEstimator(ImplicitProcessEstimator):
    """An estimator whose prior can be looked at."""

    def sample_prior_functions(
        self, n: int, X: Any, random_state: Any = None, *, y: Any = None, at: Any = None
    ) -> np.ndarray:
        """n functions of the prior, before a fit or, with the parameters that it learned, after.

        Parameters
        ----------
        n : int
        X : array of shape (rows, inputs) or DataFrame
            Before a fit, its scales are those of the prior: rows such as those to be fitted. It is
            also where functions are evaluated.
        random_state : int, RandomState or None
            The same number gives the same functions.
        y : array of shape (rows,), optional
            Targets of the rows, before a fit: the functions are then on their scale. Without them
            they are on that of a standardised target; those of a simulator, or curves, as they are.
        at : array of shape (rows, inputs) or DataFrame, optional
            Where to evaluate them, if not at X.

        Returns
        -------
        array of shape (n, rows), (n, rows, targets), or of classifications (n, rows, units)

        Examples
        --------
        >>> import numpy as np
        >>> from dvip import DVIPRegressor
        >>> X = np.linspace(0, 10, 50)[:, None]
        >>> model = DVIPRegressor(prior="linear + periodic(period=2)")
        >>> model.sample_prior_functions(3, X, random_state=0).shape
        (3, 50)
        """
        check_count("n", n)
        seed = int(check_random_state(random_state).randint(MAX_SEED))
        fitted = hasattr(self, "parts_") or hasattr(self, "model_")
        estimator: Any = self._deep_part() if fitted else self._ready(X, y, seed)
        rows = estimator._read_rows(X if at is None else at)
        inputs = estimator.input_scaler_.transform(rows, self.precision)
        with precision(self.precision):
            if estimator._num_layers == 1:
                values = estimator._prior_values(n, rows, inputs, seed)
            else:
                values = estimator._deep_prior_values(n, rows, inputs, seed)
        if self.task != "regression":
            return values
        scaler, shape = estimator.target_scaler_, estimator.target_shape_
        likelihood = estimator._initialised(estimator._chosen_likelihood())
        made = likelihood.function_values(values, scaler.mean, scaler.scale)
        return np.asarray(made).reshape(*made.shape[:2], *shape)

    def _deep_part(self) -> Any:
        """The model itself, or the part of the largest weight that has layers."""
        if not hasattr(self, "parts_"):
            part: Any = self
        else:
            weights = getattr(self, "_weights")  # noqa: B009 (of an estimator that chooses)
            pairs = zip(weights, range(len(self.parts_)), strict=True)
            deep = [pair for pair in pairs if self.parts_[pair[1]].inference != "exact"]
            part = self.parts_[max(deep)[1]] if deep else self.parts_[0]
        if part.inference == "exact":
            raise ValueError(
                "The model is a Gaussian process in closed form, which has no prior to sample: "
                "give a prior, or inference='vi'."
            )
        return part

    def _ready(self, X: Any, y: Any, seed: int) -> Any:
        """An estimator with these parameters that has seen the rows, and is not trained."""
        self.check_parameters()
        made: Any = clone(self)
        if getattr(made, "inference", "vi") != "vi":
            made.inference = "vi"
            made.n_layers = made.n_layers or 1
        known = y is not None
        y = np.arange(len(X)) if y is None else y
        rows, y = made._read_training_rows(X, y, **made._y_options)
        made._scale_inputs(rows, np.ones(len(rows)))
        made.seed_ = seed
        if known:
            made._scale_targets(made._read_targets(y, first=True), np.ones(len(rows)))
        elif self.task == "regression":
            made.target_shape_, made.known_errors_ = (), False
            made.target_scaler_ = Standardiser(np.zeros(1), np.ones(1))
        else:
            made.classes_ = np.arange(2)
        return made

    def _prior_values(
        self, n: int, rows: np.ndarray, inputs: np.ndarray, seed: int
    ) -> Float[np.ndarray, "functions rows units"]:
        """Functions of the process itself, new ones, in the unit of the model."""
        noise_key, start_key = jax.random.split(random_key(seed))
        if hasattr(self, "model_"):
            process = _with_functions(_first_process(self.model_), n)
        else:
            process = self._process_of_inputs(n).initialise(inputs.shape[1], start_key)
        carried = self._simulated_anew(n, rows, inputs, seed)
        values = _evaluated(process, process.draw_noise(noise_key, n), carried)
        if values.ndim == 2:  # the units share them
            units = self._chosen_likelihood().num_latents(self._num_outputs)
            values = np.broadcast_to(values, (units, *values.shape))
        return np.moveaxis(values, 0, -1)

    def _simulated_anew(self, n: int, rows: np.ndarray, inputs: np.ndarray, seed: int) -> Any:
        """Inputs with n functions of each simulator behind them."""
        simulators = simulators_of(self._input_process().for_data(self._units()))
        if not simulators:
            return inputs
        simulations = Simulations.of(simulators, rows, n, seed, self._units().target)
        return CarriedInputs(inputs, rows, simulations, simulators)

    def _deep_prior_values(
        self, n: int, rows: np.ndarray, inputs: np.ndarray, seed: int
    ) -> Float[np.ndarray, "functions rows units"]:
        """Functions of the network whose coefficients are as a priori."""
        if hasattr(self, "model_"):
            carried = self._carrying(inputs, rows)
            network = _single(self.model_).network
        else:
            carried = self._carrying(inputs, rows, training=True, first=True)
            network = self.build_model(carried).network
        functions = draw_functions(_at_the_prior(network), n, seed)(carried)
        return np.moveaxis(functions, 1, 2)

    def predict_parts(self, X: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """What each term of an additive prior, or of a sum of priors, adds to the prediction.

        Only of regressions by one layer, whose prediction is the sum of its parts.

        Parameters
        ----------
        X : array of shape (rows, inputs) or DataFrame

        Returns
        -------
        dict of (mean, std)
            Two arrays of the shape (rows,) for each term, by its name, such as a column's or
            "periodic". The means, with "offset", add up to the predicted mean of the function. What
            is constant belongs to no term more than to another: compare how they change.

        Examples
        --------
        >>> import numpy as np
        >>> from dvip import DVIPRegressor
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> model = DVIPRegressor(prior="additive", inference="vi", n_layers=1, max_iter=100)
        >>> list(model.fit(X, X[:, 0] ** 2).predict_parts(X))
        ['column 0', 'column 1', 'offset']
        """
        check_is_fitted(self)
        part = self._deep_part()
        if self.task != "regression" or part._num_layers != 1 or part._num_outputs != 1:
            raise ValueError(
                "Parts add up in regressions of one target by one layer: use n_layers=1."
            )
        if len(getattr(self, "parts_", (part,))) > 1:
            raise ValueError("Several models are mixed: use inference='vi', with n_layers=1.")
        inputs, scaler = self._scaled(X), part.target_scaler_
        with precision(self.precision):
            of_members = [_terms(model, inputs) for model in members_of(part.model_)]
        parts = {}
        for name in of_members[0]:
            means, variances = (np.stack([each[name][i] for each in of_members]) for i in (0, 1))
            variance = variances.mean(axis=0) + means.var(axis=0)
            parts[name] = (means.mean(axis=0) * scaler.scale, np.sqrt(variance) * scaler.scale)
        parts["offset"] = (np.full(len(inputs), scaler.mean[0]), np.zeros(len(inputs)))
        return parts


def _single(model: Any) -> Any:
    """A network and a likelihood: the first of several members, or of several samples."""
    first = members_of(model)[0]
    if isinstance(first, SampledModel):
        return combine(jax.tree.map(lambda leaf: leaf[0], first.parameters), first.fixed)
    return first


def _first_process(model: Any) -> ImplicitProcess:
    """That of the first layer; with inducing points it is part of the kernel."""
    layer = _single(model).network.stages[0].layer
    return getattr(layer, "kernel", layer).process


def _with_functions(process: ImplicitProcess, number: int) -> ImplicitProcess:
    """The process with other functions of its simulators behind the inputs."""

    def changed(node: Any) -> Any:
        is_carried = isinstance(node, Carried)
        return dataclasses.replace(node, num_functions=number) if is_carried else node

    return jax.tree.map(changed, process, is_leaf=lambda node: isinstance(node, Carried))


@eqx.filter_jit
def _values(
    process: ImplicitProcess, noise: PyTree[Array], inputs: Float[Array, "rows inputs"]
) -> Float[Array, "*outputs samples rows"]:
    return process(noise, inputs.T)


def _evaluated(process: ImplicitProcess, noise: PyTree[Array], inputs: Any) -> np.ndarray:
    """Functions at all rows, some rows after others."""
    starts = range(0, len(inputs), ROWS_AT_ONCE)
    pieces = [_values(process, noise, inputs[start : start + ROWS_AT_ONCE]) for start in starts]
    return np.concatenate([np.asarray(piece) for piece in pieces], axis=-1)


def _at_the_prior(network: DeepNetwork) -> DeepNetwork:
    """The network whose layers have their priors in place of their posteriors."""
    layers: list[Any] = [stage.layer for stage in network.stages]
    if not all(isinstance(getattr(layer, "posterior", None), WhitenedGaussian) for layer in layers):
        raise ValueError(
            "Prior functions of several layers can be drawn by variational inference with DVIP: "
            "use n_layers=1, or inference='vi'."
        )
    posteriors = [
        WhitenedGaussian.create(len(layer.posterior.mean), layer.posterior.mean.shape[1], 1.0)
        for layer in layers
    ]
    return eqx.tree_at(
        lambda net: [getattr(stage.layer, "posterior") for stage in net.stages],  # noqa: B009
        network,
        posteriors,
    )


def _terms(model: Any, inputs: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of what each term of the only layer adds to its first unit."""
    if isinstance(model, SampledModel):
        samples = [
            combine(jax.tree.map(lambda leaf, i=i: leaf[i], model.parameters), model.fixed)
            for i in range(model.num_samples)
        ]
        each = [_layer_terms(sample, inputs) for sample in samples]
        stacked = {name: np.stack([terms[name][0] for terms in each]) for name in each[0]}
        return {name: (values.mean(axis=0), values.var(axis=0)) for name, values in stacked.items()}
    return _layer_terms(model, inputs)


def _layer_terms(model: Any, inputs: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    layer = model.network.stages[0].layer
    if not isinstance(layer, VIPLayer | KnownVIPLayer):
        raise ValueError("Parts are known of layers without inducing points: leave out n_inducing.")
    pieces = [
        _moments_of_terms(layer, inputs[start : start + ROWS_AT_ONCE])
        for start in range(0, len(inputs), ROWS_AT_ONCE)
    ]
    return {
        name: (
            np.concatenate([np.asarray(piece[index][1]) for piece in pieces]),
            np.concatenate([np.asarray(piece[index][2]) for piece in pieces]),
        )
        for index, (name, *_) in enumerate(pieces[0])
    }


@eqx.filter_jit
def _moments_of_terms(
    layer: Any, inputs: Float[Array, "rows inputs"]
) -> list[tuple[str, Float[Array, " rows"], Float[Array, " rows"]]]:
    """φ_tᵀ m + m*_t and ‖Lᵀ φ_t‖² of each term t, whose features add up to φ."""
    moments = []
    for name, values in layer.process.terms(layer.noise.value, inputs.T).items():
        prior_mean, features = mean_and_features(values)
        if isinstance(layer, KnownVIPLayer):
            mean = layer.coefficients[0] @ features[0]
            variance = jnp.zeros_like(mean)
        else:
            mean = layer.q_mean[0] @ features[0]
            variance = jnp.sum(jnp.square(layer.q_factor[0].T @ features[0]), axis=0)
        moments.append((name, mean + prior_mean[0], variance))
    return moments
