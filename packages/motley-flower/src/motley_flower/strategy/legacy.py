"""Run a strategy of Flower's older API (``flwr.server.strategy``) with client apps of a
``client_fn`` as one of the Message API.

The strategy is given Flower's older objects; a reply is translated where it arrives, before it is
checked. Client apps stay as they are: Flower's own ``ClientApp(client_fn)`` answers the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial, partialmethod
from typing import Any, NamedTuple

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley_flower.checked_numbers import NodeError
from motley_flower.limited_grid import ForwardingGrid
from motley_flower.messages import flower
from motley_flower.node_registry import EXAMPLES
from motley_flower.strategy.replies import array_header


def adapted(strategy: Any) -> Any:
    """Return a strategy of the Message API that asks a legacy one for everything but its loop;
    anything else as it is."""
    names = ("configure_fit", "aggregate_fit", "initialize_parameters")
    if isinstance(strategy, type) or not all(hasattr(strategy, name) for name in names):
        return strategy
    bases = (_LegacyMethods, flower("serverapp.strategy").Strategy)
    wrapped: Any = type(type(strategy).__name__, bases, {})()
    wrapped.strategy = strategy
    wrapped.min_available_nodes = int(getattr(strategy, "min_available_clients", 0))
    return wrapped


class _LegacyMethods:
    """The methods of the Message API, by those of the strategy of the older one."""

    strategy: Any
    motley: Any
    weighted_by_key = EXAMPLES

    def summary(self) -> None:
        """Print nothing: an older strategy has no summary."""

    def start(self, grid: Any, num_rounds: int = 3, timeout: float = 3600) -> Any:
        """Run the strategy's rounds from its own first model, else from a client's, as Flower."""

        def evaluate(step: int, model: Any) -> Any:
            evaluation = self.strategy.evaluate(step, _parameters(model))
            if evaluation is None:
                return None
            return _numbers({"loss": float(evaluation[0]), **evaluation[1]})

        grid = _TranslatingGrid(grid)
        observer = self.motley.observer
        first = observer.model or self._initial(grid, timeout)
        observed = partial(observer.evaluate, evaluate)
        return super().start(grid, first, num_rounds, timeout, evaluate_fn=observed)  # type: ignore[misc]

    def _initial(self, grid: Any, timeout: float) -> Any:
        key = Key(self.motley.selector.seed).fold("legacy", 0)
        parameters = self.strategy.initialize_parameters(_Clients(grid, key))
        if parameters is not None:
            return _array_record(parameters)
        app = flower()
        question = app.RecordDict({"getparametersins.config": app.ConfigRecord()})
        for node in sorted(grid.get_node_ids()):
            request = app.Message(question, node, "get_parameters")
            for reply in grid.send_and_receive([request], timeout=timeout):
                if not reply.has_error():
                    return _array_record(_parameters(reply.content["getparametersres.parameters"]))
        raise ConfigError("no client gave the first model; expected clients, or initial_parameters")

    def _configure(self, phase: str, step: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        """Return the strategy's orders to ``fit`` or ``evaluate`` as messages."""
        translate = getattr(flower("compat.common.recorddict_compat"), f"{phase}ins_to_recorddict")
        configure = getattr(self.strategy, f"configure_{phase}")
        key = Key(self.motley.selector.seed).fold("legacy", step)
        clients = _Clients(grid, None if phase == "fit" else key)
        kind = "train" if phase == "fit" else "evaluate"
        return [
            flower().Message(translate(order, keep_input=True), proxy.node_id, kind)
            for proxy, order in configure(step, _parameters(arrays), clients)
        ]

    configure_train = partialmethod(_configure, "fit")
    configure_evaluate = partialmethod(_configure, "evaluate")

    def aggregate_train(self, step: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Return the model and the metrics that the strategy makes of the replies."""
        parameters, metrics = self.strategy.aggregate_fit(step, *_results(replies, "FitRes"))
        arrays = None if parameters is None else _array_record(parameters)
        return arrays, _numbers(metrics) or None

    def aggregate_evaluate(self, step: int, replies: Iterable[Any]) -> Any:
        """Return the metrics that the strategy makes of the clients' evaluations."""
        loss, metrics = self.strategy.aggregate_evaluate(step, *_results(replies, "EvaluateRes"))
        return None if loss is None else _numbers({"loss": float(loss), **metrics})


class _Proxy(NamedTuple):
    """A client as strategies of the older API know it."""

    cid: str
    node_id: int


class _Clients(dict[str, _Proxy]):
    """Flower's older client manager: the nodes of a grid by id. The key draws a sample; without
    one, a sample is all clients, for the selector has chosen them."""

    def __init__(self, grid: Any, key: Key | None) -> None:
        nodes = sorted(grid.get_node_ids())
        super().__init__({str(node): _Proxy(str(node), node) for node in nodes})
        self._rng = None if key is None else key.numpy()

    num_available = dict.__len__
    all = dict.copy

    def wait_for(self, num_clients: int, timeout: float = 0) -> bool:
        """Return whether there are so many clients; the round waits for them, not the strategy."""
        return len(self) >= num_clients

    def sample(self, num_clients: int, min_num_clients: Any = None, criterion: Any = None) -> Any:
        """Return clients that meet a criterion."""
        eligible = [
            proxy for proxy in self.values() if criterion is None or criterion.select(proxy)
        ]
        if self._rng is None:
            return eligible
        drawn = self._rng.choice(len(eligible), min(num_clients, len(eligible)), replace=False)
        return [eligible[i] for i in sorted(drawn)]


class _TranslatingGrid(ForwardingGrid):
    """A grid whose replies of an older client app are those of a new one."""

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
        """Send messages and return the replies, translated."""
        replies: list[Any] = self._grid.send_and_receive(messages, timeout=timeout)
        for reply in replies:
            if not reply.has_error():
                with suppress(NodeError, KeyError, TypeError, ValueError):  # no check lets it pass
                    reply.content = _translated(reply.content)
        return replies


def _translated(content: Any) -> Any:
    """Return what a client of the older API replies, as records of the new one."""
    app = flower()
    prefix = next((name for name in ("fitres", "evaluateres") if f"{name}.status" in content), None)
    if prefix is None or content[f"{prefix}.status"]["code"] != 0:
        return content
    metrics = content[f"{prefix}.metrics"]
    examples = content[f"{prefix}.num_examples"]["num_examples"]
    numbers = _numbers({EXAMPLES: examples, **metrics, **content.get("evaluateres.loss", {})})
    words = {name: value for name, value in metrics.items() if name not in numbers}
    records = {"words": app.ConfigRecord(words), "metrics": numbers}
    if prefix == "fitres":
        records["arrays"] = _array_record(_parameters(content["fitres.parameters"]))
    return app.RecordDict(records)


def _numbers(metrics: Mapping[str, Any]) -> Any:
    """Return the numbers among a client's or a strategy's metrics as a record."""
    numbers = {name: value for name, value in metrics.items() if type(value) in (int, float)}
    return flower().MetricRecord(numbers)


def _array_record(parameters: Any) -> Any:
    """Return arrays in NumPy's file format as a record; their headers alone are read."""
    app = flower()
    arrays = {}
    for number, data in enumerate(parameters.tensors):
        shape, _, kind, _ = array_header(data, str(number))
        arrays[str(number)] = app.Array(str(kind), shape, "numpy.ndarray", data)
    return app.ArrayRecord(arrays)


def _parameters(arrays: Any) -> Any:
    return flower("common").Parameters([array.data for array in arrays.values()], "numpy.ndarray")


def _results(replies: Iterable[Any], kind: str) -> tuple[list[Any], list[RuntimeError]]:
    """Return the usable replies as (client, result of this kind), and the errors of the others."""
    common = flower("common")
    results, failures = [], []
    for reply in replies:
        if reply.has_error():
            failures.append(RuntimeError(str(reply.error.reason)))
            continue
        node, content = reply.metadata.src_node_id, reply.content
        metrics = dict(content["metrics"])
        examples = metrics.pop(EXAMPLES)
        value = _parameters(content["arrays"]) if kind == "FitRes" else metrics.pop("loss")
        reported = {**metrics, **content["words"]}
        result = getattr(common, kind)(common.Status(common.Code.OK, ""), value, examples, reported)
        results.append((_Proxy(str(node), node), result))
    return results, failures
