"""Run a strategy of Flower's older API (``flwr.server.strategy``) with client apps of a
``client_fn`` as one of the Message API.

The strategy's ``configure_fit`` and ``aggregate_fit`` are given Flower's older objects, made of the
messages and replies that everything else here knows; a reply is translated where it arrives, before
it is checked. Client apps stay as they are: Flower's own ``ClientApp(client_fn)`` answers the
messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley_flower.checks import NodeError
from motley_flower.messages import flower
from motley_flower.node_registry import EXAMPLES
from motley_flower.strategy.replies import array_header

__all__ = ["adapted", "is_legacy"]


def is_legacy(strategy: Any) -> bool:
    """Return whether an object is a strategy of Flower's older API."""
    return all(
        callable(getattr(strategy, name, None))
        for name in ("configure_fit", "aggregate_fit", "initialize_parameters")
    )


def adapted(strategy: Any) -> Any:
    """Return a strategy of the Message API that asks a legacy one for everything but its loop."""
    kind = type(
        type(strategy).__name__, (_LegacyMethods, flower("serverapp.strategy").Strategy), {}
    )
    wrapped: Any = kind()
    wrapped.strategy = strategy
    return wrapped


class _LegacyMethods:
    """The methods of the Message API, by those of the strategy of the older one."""

    strategy: Any
    motley: Any
    weighted_by_key = EXAMPLES
    arrayrecord_key = "arrays"

    @property
    def min_available_nodes(self) -> int:
        """How many clients a round waits for."""
        return int(getattr(self.strategy, "min_available_clients", 0))

    def summary(self) -> None:
        """Print nothing: an older strategy has no summary."""

    def start(
        self,
        grid: Any,
        num_rounds: int = 3,
        timeout: float = 3600,
        initial_arrays: Any = None,
        evaluate_fn: Any = None,
    ) -> Any:
        """Run the strategy's rounds; the first model is the strategy's own, else that of a client,
        as in Flower."""
        grid = _TranslatingGrid(grid)
        arrays = initial_arrays or self.motley.observer.model or self._initial(grid, timeout)
        evaluate = evaluate_fn or (
            lambda step, model: self.motley.observer.evaluate(self._evaluate, step, model)
        )
        return super().start(grid, arrays, num_rounds, timeout, evaluate_fn=evaluate)  # type: ignore[misc]

    def _initial(self, grid: Any, timeout: float) -> Any:
        common = flower("common")
        app = flower()
        manager = _Clients(grid, self._draw(0))
        parameters = self.strategy.initialize_parameters(manager)
        if parameters is not None:
            return _array_record(parameters.tensors)
        for node in sorted(grid.get_node_ids()):
            asked = app.Message(
                _compat().getparametersins_to_recorddict(common.GetParametersIns({})),
                node,
                "get_parameters",
            )
            for reply in grid.send_and_receive([asked], timeout=timeout):
                if not reply.has_error():
                    return _array_record(
                        [
                            array.data
                            for array in reply.content["getparametersres.parameters"].values()
                        ]
                    )
        raise ConfigError(
            "no client gave the first model; expected initial_parameters for the strategy, or "
            "connected clients"
        )

    def _evaluate(self, step: int, arrays: Any) -> Any:
        """Return the strategy's own evaluation of a model as a MetricRecord; None where it has
        none."""
        found = self.strategy.evaluate(step, _parameters(arrays))
        return (
            None
            if found is None
            else flower().MetricRecord({"loss": float(found[0]), **_numbers(found[1])})
        )

    def _draw(self, step: int) -> Callable[[int, int], list[int]]:
        """Return a function that draws k of n positions, for a federated evaluation."""
        rng = Key(self.motley.selector.seed).fold("legacy", step).numpy()
        return lambda k, n: sorted(rng.choice(n, k, replace=False).tolist())

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        """Return the strategy's orders to all nodes of the grid as messages."""
        orders = self.strategy.configure_fit(
            server_round, _parameters(arrays), _Clients(grid, None)
        )
        return _messages(orders, _compat().fitins_to_recorddict, "train")

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Return the model and the metrics that the strategy makes of the replies."""
        results, failures = _results(replies, "FitRes")
        parameters, metrics = self.strategy.aggregate_fit(server_round, results, failures)
        numbers = _numbers(metrics)
        record = flower().MetricRecord(numbers) if numbers else None
        return (None if parameters is None else _array_record(parameters.tensors)), record

    def configure_evaluate(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> list[Any]:
        """Return the strategy's orders to evaluate as messages."""
        clients = _Clients(grid, self._draw(server_round))
        orders = self.strategy.configure_evaluate(server_round, _parameters(arrays), clients)
        return _messages(orders, _compat().evaluateins_to_recorddict, "evaluate")

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> Any:
        """Return the metrics that the strategy makes of the clients' evaluations."""
        results, failures = _results(replies, "EvaluateRes")
        loss, metrics = self.strategy.aggregate_evaluate(server_round, results, failures)
        return (
            None
            if loss is None
            else flower().MetricRecord({"loss": float(loss), **_numbers(metrics)})
        )


class _Proxy(NamedTuple):
    """A client as strategies of the older API know it."""

    cid: str
    node_id: int


class _Clients:
    """Flower's older client manager, of the nodes of a grid.

    Parameters
    ----------
    draw: returns k of n positions; None: who samples is given all clients, for the selector has
    chosen them.
    """

    def __init__(self, grid: Any, draw: Callable[[int, int], list[int]] | None) -> None:
        self._proxies = [_Proxy(str(node), node) for node in sorted(grid.get_node_ids())]
        self._draw = draw

    def __len__(self) -> int:
        return len(self._proxies)

    def num_available(self) -> int:
        """Return the number of clients."""
        return len(self._proxies)

    def all(self) -> dict[str, _Proxy]:
        """Return the clients by id."""
        return {proxy.cid: proxy for proxy in self._proxies}

    def wait_for(self, num_clients: int, timeout: float = 0) -> bool:
        """Return whether there are so many clients; who waits for them is the round, not the
        strategy."""
        return len(self._proxies) >= num_clients

    def sample(
        self, num_clients: int, min_num_clients: int | None = None, criterion: Any = None
    ) -> list[_Proxy]:
        """Return clients that meet a criterion."""
        found = [proxy for proxy in self._proxies if criterion is None or criterion.select(proxy)]
        return (
            found
            if self._draw is None
            else [found[i] for i in self._draw(min(num_clients, len(found)), len(found))]
        )


class _TranslatingGrid:
    """A grid whose replies of an older client app are those of a new one."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> list[Any]:
        """Send messages and return the replies, translated."""
        replies: list[Any] = self._grid.send_and_receive(messages, timeout=timeout)
        for reply in replies:
            if not reply.has_error():
                try:
                    reply.content = _translated(reply.content)
                except (NodeError, KeyError, TypeError, ValueError):
                    continue  # as it is, no check lets it pass
        return replies


def _translated(content: Any) -> Any:
    """Return what a client of the older API replies, as records of the new one."""
    app = flower()
    what = next((name for name in ("fitres", "evaluateres") if f"{name}.status" in content), None)
    if what is None or content[f"{what}.status"]["code"] != 0:
        return content
    metrics = content[f"{what}.metrics"]
    numbers = {EXAMPLES: content[f"{what}.num_examples"]["num_examples"], **_numbers(metrics)}
    records = {
        "words": app.ConfigRecord(
            {name: value for name, value in metrics.items() if name not in numbers}
        )
    }
    if what == "fitres":
        records["arrays"] = _array_record(
            [array.data for array in content["fitres.parameters"].values()]
        )
    else:
        numbers["loss"] = content["evaluateres.loss"]["loss"]
    return app.RecordDict({**records, "metrics": app.MetricRecord(numbers)})


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if type(value) in (int, float)}


def _array_record(tensors: list[bytes]) -> Any:
    """Return arrays in NumPy's file format as a record; their headers alone are read."""
    app = flower()
    arrays = {}
    for number, data in enumerate(tensors):
        shape, _, kind, _ = array_header(data, str(number))
        arrays[str(number)] = app.Array(str(kind), shape, "numpy.ndarray", data)
    return app.ArrayRecord(arrays)


def _parameters(arrays: Any) -> Any:
    return flower("common").Parameters([array.data for array in arrays.values()], "numpy.ndarray")


def _messages(
    orders: Iterable[tuple[_Proxy, Any]], translate: Callable[..., Any], kind: str
) -> list[Any]:
    message = flower().Message
    return [message(translate(ins, keep_input=True), proxy.node_id, kind) for proxy, ins in orders]


def _results(replies: Iterable[Any], kind: str) -> tuple[list[Any], list[BaseException]]:
    """Return (client, result) of the usable replies, and the errors of the others."""
    replies = list(replies)
    sound = [reply for reply in replies if not reply.has_error()]
    nodes = [reply.metadata.src_node_id for reply in sound]
    results = [
        (_Proxy(str(node), node), _result(kind, reply.content))
        for node, reply in zip(nodes, sound, strict=True)
    ]
    return results, [
        RuntimeError(str(reply.error.reason)) for reply in replies if reply.has_error()
    ]


def _result(kind: str, content: Any) -> Any:
    """Return a client's reply as a result of the older API, ``FitRes`` or ``EvaluateRes``."""
    common, metrics = flower("common"), dict(content["metrics"])
    examples = metrics.pop(EXAMPLES)
    found = _parameters(content["arrays"]) if kind == "FitRes" else metrics.pop("loss")
    status = common.Status(common.Code.OK, "")
    return getattr(common, kind)(status, found, examples, {**metrics, **content["words"]})


def _compat() -> Any:
    return flower("compat.common.recorddict_compat")
