"""The peer: GPyTorch's deep GP, doubly stochastic, built as its documentation builds it."""

import time

import gpytorch
import numpy as np
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from sklearn.preprocessing import StandardScaler

from dvip import GaussianMixture

NUM_INDUCING = 100
# Rows of one piece of a prediction: samples x rows x inducing points are in memory at once.
ROWS_AT_ONCE = 200


class Layer(DeepGPLayer):
    def __init__(self, num_inputs: int, num_outputs: int | None, inducing: torch.Tensor):
        shape = [] if num_outputs is None else [num_outputs]
        distribution = CholeskyVariationalDistribution(len(inducing), batch_shape=torch.Size(shape))
        strategy = VariationalStrategy(
            self,
            inducing.expand(*shape, *inducing.shape).clone(),
            distribution,
            learn_inducing_locations=True,
        )
        super().__init__(strategy, num_inputs, num_outputs)
        self.mean_module = (
            gpytorch.means.ConstantMean()
            if num_outputs is None
            else gpytorch.means.LinearMean(num_inputs)
        )
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.RBFKernel(ard_num_dims=num_inputs, batch_shape=torch.Size(shape)),
            batch_shape=torch.Size(shape),
        )

    def forward(self, inputs: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(
            self.mean_module(inputs), self.covar_module(inputs)
        )


class Network(DeepGP):
    def __init__(self, inducing: torch.Tensor, num_layers: int):
        super().__init__()
        width = inducing.shape[1]
        inner = [Layer(width, width, inducing) for _ in range(num_layers - 1)]
        self.layers = torch.nn.ModuleList([*inner, Layer(width, None, inducing)])
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, inputs: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


class DeepGPRegressor:
    """Adam steps on random batches, one propagated sample, float32, until `seconds` are over.

    100 inducing points a layer start at random training inputs. Inputs and targets are scaled.
    """

    def __init__(
        self,
        n_layers: int = 3,
        seconds: float = 120.0,
        batch_size: int = 100,
        learning_rate: float = 0.01,
        n_predictive_samples: int = 100,
    ):
        self.n_layers = n_layers
        self.seconds = seconds
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_predictive_samples = n_predictive_samples

    def start(self, X: np.ndarray, y: np.ndarray) -> "DeepGPRegressor":
        """The model before the first step."""
        torch.manual_seed(0)
        self.input_scaler_ = StandardScaler().fit(X)
        self.target_scaler_ = StandardScaler().fit(y[:, None])
        self.inputs_ = _tensor(self.input_scaler_.transform(X))
        self.targets_ = _tensor(self.target_scaler_.transform(y[:, None])[:, 0])
        inducing = self.inputs_[torch.randperm(len(X))[:NUM_INDUCING]]
        self.network_ = Network(inducing, self.n_layers)
        elbo = gpytorch.mlls.VariationalELBO(self.network_.likelihood, self.network_, len(X))
        self.objective_ = gpytorch.mlls.DeepApproximateMLL(elbo)
        self.optimiser_ = torch.optim.Adam(self.network_.parameters(), lr=self.learning_rate)
        return self

    def steps(self, count: int) -> None:
        """More training steps."""
        self.network_.train()
        with gpytorch.settings.num_likelihood_samples(1):
            for _ in range(count):
                rows = torch.randint(len(self.inputs_), (self.batch_size,))
                self.optimiser_.zero_grad()
                loss = -self.objective_(self.network_(self.inputs_[rows]), self.targets_[rows])
                loss.backward()
                self.optimiser_.step()

    def fit(self, X: np.ndarray, y: np.ndarray) -> "DeepGPRegressor":
        end = time.perf_counter() + self.seconds
        self.start(X, y)
        while time.perf_counter() < end:
            self.steps(10)
        return self

    def predict_dist(self, X: np.ndarray) -> GaussianMixture:
        inputs = _tensor(self.input_scaler_.transform(X))
        self.network_.eval()
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(self.n_predictive_samples):
            pieces = [self.network_(piece) for piece in inputs.split(ROWS_AT_ONCE)]
            means, variances = (
                torch.cat([getattr(piece, part) for piece in pieces], dim=1).numpy().T.astype(float)
                for part in ("mean", "variance")
            )
            noise = float(self.network_.likelihood.noise)
        mean, scale = self.target_scaler_.mean_[0], self.target_scaler_.scale_[0]
        return GaussianMixture(
            means * scale + mean, variances * scale**2, np.array(noise * scale**2)
        )


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float32)
