"""The methods of a strategy with a selector that its observer is told of."""

from __future__ import annotations

from typing import Any

from motley.core.errors import ConfigError
from motley_flower.strategy.coordinator import SelectionCoordinator

__all__ = ["ObservedStrategy"]


class ObservedStrategy:
    """The methods of a strategy with a selector that its observer is told of; rounds that it
    replays ask no client."""

    motley: SelectionCoordinator

    def initialize_parameters(self, client_manager: Any) -> Any:
        """Refuse Flower's older server.

        Raises
        ------
        ConfigError: always.
        """
        raise ConfigError(
            "a strategy with a selector has its own loop; expected app = ServerApp(), @app.main() "
            "and strategy.start(grid, num_rounds=3) in place of ServerApp(server_fn=...) "
            "(docs/deploy/your-app.md, Older apps); clients stay as they are"
        )

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        """Return the messages of a round's training; none where it is replayed."""
        if self.motley.observer.replays_training(server_round):
            return []
        self.motley.observer.begin_round(server_round)
        messages: list[Any] = super().configure_train(server_round, arrays, config, grid)  # type: ignore[misc]
        return messages

    def aggregate_train(self, server_round: int, replies: Any) -> tuple[Any, Any]:
        """Return the strategy's step, or that of the round that is replayed."""
        observer = self.motley.observer
        if observer.replays_training(server_round):
            return observer.training(server_round)
        arrays, metrics = super().aggregate_train(server_round, replies)  # type: ignore[misc]
        observer.trained(server_round, arrays, metrics)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> list[Any]:
        """Return the messages of a round's evaluation; none where it is replayed."""
        if self.motley.observer.replays_evaluation(server_round):
            return []
        messages: list[Any] = super().configure_evaluate(server_round, arrays, config, grid)  # type: ignore[misc]
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Any) -> Any:
        """Return the clients' metrics, or those of the round that is replayed."""
        observer = self.motley.observer
        if observer.replays_evaluation(server_round):
            return observer.evaluation(server_round)
        metrics = super().aggregate_evaluate(server_round, replies)  # type: ignore[misc]
        observer.evaluated_by_clients(server_round, metrics)
        return metrics
