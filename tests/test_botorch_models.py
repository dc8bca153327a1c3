"""Models of dvip in BoTorch: joint samples, gradients, acquisition functions."""

import numpy as np
import pytest

from dvip import DVIPRegressor

torch = pytest.importorskip("torch", reason="botorch is not installed")
pytest.importorskip("botorch", reason="botorch is not installed")

from botorch.acquisition import qExpectedImprovement, qLogNoisyExpectedImprovement  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402

from dvip.botorch import FunctionModel  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def regressor():
    X = np.random.default_rng(0).uniform(size=(25, 2))
    y = -np.square(X - [0.3, 0.6]).sum(axis=1)
    return DVIPRegressor(inference="exact", precision="float64").fit(X, y), X, y


def test_samples_are_the_functions_and_their_gradients(regressor):
    model, X, _ = regressor
    wrapped = FunctionModel(model, num_functions=16)
    functions = model.sample_functions(16, random_state=0)
    batch = torch.tensor(X[:12].reshape(2, 2, 3, 2), requires_grad=True)
    posterior = wrapped.posterior(batch)
    assert posterior.values.shape == (2, 2, 16, 3, 1)
    values = posterior.values[1, 0, :, 2, 0].detach()
    np.testing.assert_allclose(values, functions(X[8:9])[:, 0], rtol=1e-8)
    weights = torch.arange(1.0, 17, dtype=torch.double)[:, None, None]
    (posterior.values * weights).sum().backward()
    expected = np.einsum("f,fri->ri", weights[:, 0, 0].numpy(), functions.gradient(X[:12]))
    np.testing.assert_allclose(batch.grad.reshape(12, 2), expected, rtol=1e-10)
    few = torch.tensor(X[:3], requires_grad=True)
    few_functions = FunctionModel(model, num_functions=3)
    assert torch.autograd.gradcheck(lambda x: few_functions(x), (few,), atol=1e-4)


def test_acquisition_functions_find_the_top(regressor):
    model, X, y = regressor
    torch.manual_seed(0)
    wrapped, bounds = FunctionModel(model, 64), torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    for acquisition, q in (
        (qLogNoisyExpectedImprovement(wrapped, torch.tensor(X)), 1),
        (qExpectedImprovement(wrapped, best_f=y.max()), 2),
    ):
        rows, value = optimize_acqf(acquisition, bounds, q=q, num_restarts=2, raw_samples=32)
        assert rows.shape == (q, 2)
        assert torch.isfinite(value)
        assert np.abs(rows.detach().numpy() - [0.3, 0.6]).max(axis=1).min() < 0.15


def test_several_targets():
    X = np.random.default_rng(1).uniform(size=(20, 2))
    model = DVIPRegressor(inference="exact").fit(X, np.stack([X[:, 0], X[:, 1] ** 2], axis=1))
    wrapped = FunctionModel(model, num_functions=5)
    posterior = wrapped.posterior(torch.tensor(X[:4]))
    assert wrapped.num_outputs == 2
    assert posterior.mean.shape == (4, 2)
    np.testing.assert_allclose(posterior.mean, model.predict(X[:4]), atol=0.2)
