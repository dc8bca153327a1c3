"""The peer: GPyTorch's deep GP, doubly stochastic, built as its documentation builds it."""

import gpytorch
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

NUM_INDUCING = 100


class Layer(DeepGPLayer):
    def __init__(self, num_inputs: int, num_outputs: int | None):
        shape = [] if num_outputs is None else [num_outputs]
        inducing = torch.randn(*shape, NUM_INDUCING, num_inputs)
        distribution = CholeskyVariationalDistribution(NUM_INDUCING, batch_shape=torch.Size(shape))
        strategy = VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True)
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


class GPyTorchDeepGP(DeepGP):
    def __init__(self, num_inputs: int, num_layers: int):
        super().__init__()
        inner = [Layer(num_inputs, num_inputs) for _ in range(num_layers - 1)]
        self.layers = torch.nn.ModuleList([*inner, Layer(num_inputs, None)])
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, inputs: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs


class Trainer:
    """Adam steps on random batches of 100 rows, one propagated sample, float32."""

    def __init__(self, inputs, targets, num_layers: int, batch_size: int):
        torch.manual_seed(0)
        self.inputs, self.targets = torch.as_tensor(inputs), torch.as_tensor(targets)
        self.batch_size = batch_size
        self.model = GPyTorchDeepGP(inputs.shape[1], num_layers)
        elbo = gpytorch.mlls.VariationalELBO(self.model.likelihood, self.model, len(inputs))
        self.objective = gpytorch.mlls.DeepApproximateMLL(elbo)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def steps(self, count: int) -> None:
        with gpytorch.settings.num_likelihood_samples(1):
            for _ in range(count):
                rows = torch.randint(len(self.inputs), (self.batch_size,))
                self.optimiser.zero_grad()
                loss = -self.objective(self.model(self.inputs[rows]), self.targets[rows])
                loss.backward()
                self.optimiser.step()
