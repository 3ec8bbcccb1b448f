"""pfl-research: a PyTorch model with ``loss`` and ``metrics``, FederatedAveraging on the simulated
backend, no evaluation."""

from __future__ import annotations

from work import CLIENTS, StepCounter, model_of, parse, set_threads


def main() -> None:
    run = parse()
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class Learner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = model_of(run)

        def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.train()
            return torch.nn.functional.cross_entropy(self.network(x), y)

        def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
            with torch.no_grad():
                return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}

    class Marks(TrainingProcessCallback):
        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: object, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            run.mark()
            return False, Metrics()

    set_threads(run)
    counter = StepCounter()
    learner = Learner()
    users = {k: PyTorchTensorDataset(run.client(k)) for k in range(CLIENTS)}
    sampler = get_user_sampler("minimize_reuse", list(users))
    model = PyTorchModel(learner, torch.optim.SGD, torch.optim.SGD(learner.parameters(), lr=1.0))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=run.rounds,
            evaluation_frequency=run.rounds + 1,
            train_cohort_size=CLIENTS,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(FederatedDataset(users.__getitem__, sampler), None),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=run.batch, local_num_epochs=run.epochs, local_learning_rate=run.lr
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Marks()],
    )
    # the central optimizer takes a step a round
    run.finish(counter.steps - run.rounds, list(learner.parameters()))


if __name__ == "__main__":
    main()
