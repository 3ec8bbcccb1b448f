"""Let a Motley selector choose the clients of any Flower strategy; everything else stays the
strategy's.

    strategy = with_selector(FedAdam(...), motley.selectors.build("oort"), m=10)
    strategy.start(grid, initial_arrays, num_rounds=50)
    strategy.motley.rows                      # the participation table

The strategy is copied into a class that inherits from its own. Its ``configure_train`` is given a
grid of the chosen nodes alone, so that all nodes it can sample are chosen; where it leaves some of
them out, they are sent the message that it wrote to the others. ``aggregate_train`` gets the
replies that passed the checks, sorted by client. See ``docs/deploy/``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from motley.core.errors import ConfigError
from motley.core.files import private_files
from motley.selectors import CATALOGUE, build
from motley.selectors.selector import Selector
from motley_flower.client_list import ClientList
from motley_flower.limited_grid import ForwardingGrid, LimitedGrid
from motley_flower.messages import WALL_CLOCK, Grid, WallClock, exchange, flower
from motley_flower.real_run import log_sentences_alone
from motley_flower.strategy.attributes import attribute, copy_of, temporarily, without_traces
from motley_flower.strategy.coordinator import SelectionCoordinator
from motley_flower.strategy.legacy import adapted
from motley_flower.strategy.round_observer import RoundObserver
from motley_flower.strategy.settings import SelectionSettings
from motley_flower.strategy.stepping import GuardedStep

if TYPE_CHECKING:
    from motley_flower.secure.terms import SecureOptions
    from motley_flower.strategy.secure_sums import SecureSums

PATIENCE_S = 5.0
"""How long a strategy may wait for more nodes; the grid that it is given does not change."""
EXPIRY_S = 30.0
"""How long Flower keeps a message after the exchange that it belongs to."""


def with_selector(
    strategy: Any,
    selector: Selector[Any] | str,
    m: int,
    *,
    key: str = "partition-id",
    query_limit_s: float = 120.0,
    wait_s: float = 120.0,
    uploads: Literal["as_sent", "any"] = "as_sent",
    largest_upload: float = 1e9,
    max_examples: float | None = None,
    weights: Literal["strategy", "selector"] = "strategy",
    rounds_done: int = 0,
    clients_sent: int = 0,
    save: str | os.PathLike[str] | None = None,
    clock: WallClock = WALL_CLOCK,
    link_s: float = 300.0,
    longest_pause: int = 16,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
    secure_aggregation: SecureOptions | None = None,
    register: Mapping[int, bytes] | str | os.PathLike[str] | None = None,
    clients: str | os.PathLike[str] | None = None,
    classes: int | None = None,
) -> Any:
    """Return a strategy like this one whose clients ``selector`` chooses, ``m`` a round; the name
    of a rule is that rule, seed 0.

    Parameters
    ----------
    strategy: of Flower's Message API, or of the older one (``flwr.server.strategy``). It is copied;
    the selector replaces its fractions and minima of training, and ``min_available_nodes`` is how
    many clients a round waits for, at most ``wait_s``. key ..
    longest_pause: see :class:`~motley_flower.strategy.settings.SelectionSettings`.
    out: the run's folder: tables, traffic, selector and model after every round, a report at the
    end. Started again with the same folder, the strategy goes on at the next round. None: nothing
    is kept.
    progress: print a line about every round on standard error.
    secure_aggregation: the server gets the sum of the updates alone; the client app needs
    :class:`~motley_flower.strategy.secure_client.MaskedUpdates`.
    register: all clients' public keys, or their file.
    clients: the file of clients, ``clients.toml``: only nodes whose key it names are clients, and
    each is the client that it names. None: a node is the client that it says, and an id is worth
    nothing.
    classes: of labels, for rules that want their counts; None: what more than half of the clients
    say.

    Raises
    ------
    ConfigError: an object that is no strategy or no selector, a strategy that trains nobody, or a
    selector that needs what no client of a deployment can report.
    """
    log_sentences_alone()
    strategy = adapted(strategy)
    _check_strategy(strategy)
    selector = _built(selector)
    settings = SelectionSettings(
        key=key,
        query_limit_s=query_limit_s,
        wait_s=wait_s,
        uploads=uploads,
        largest_upload=largest_upload,
        max_examples=max_examples,
        weights=weights,
        rounds_done=rounds_done,
        clients_sent=clients_sent,
        save=save,
        clock=clock,
        link_s=link_s,
        longest_pause=longest_pause,
        clients=None if clients is None else ClientList(clients),
        classes=classes,
    )
    wrapped = _wrapped(strategy, f"{type(strategy).__name__}With{type(selector.rule).__name__}")
    wrapped.motley = SelectionCoordinator(
        selector, m, settings, attribute(strategy, "weighted_by_key")
    )
    if secure_aggregation is not None:
        wrapped.motley.secure = _secure_sums(strategy, wrapped.motley, secure_aggregation, register)
    wrapped.motley.observer = _observer(wrapped.motley, type(strategy).__name__, out, progress)
    return wrapped


def _wrapped(strategy: Any, name: str) -> Any:
    """Return a copy of a strategy that is of a class of this name, with the methods of
    :class:`_SelectingStrategy` before its own."""
    kind: Any = type(name, (_SelectingStrategy, type(strategy)), {})
    wrapped = kind.__new__(kind)
    vars(wrapped).update(vars(strategy))
    return wrapped


def _check_strategy(strategy: Any) -> None:
    """Refuse what is no strategy of the Message API.

    Raises
    ------
    ConfigError: it is not, or has a selector already.
    """
    lacks = [
        name
        for name in ("configure_train", "aggregate_train", "start")
        if not callable(getattr(strategy, name, None))
    ]
    if isinstance(strategy, type) or lacks:
        raise ConfigError(
            f"got {strategy!r:.80}; expected a Flower strategy of the Message API, such as "
            "flwr.serverapp.strategy.FedAvg()"
        )
    if isinstance(strategy, _SelectingStrategy):
        raise ConfigError("this strategy has a selector already; give the original strategy")
    if attribute(strategy, "fraction_train") == 0:
        raise ConfigError(
            "got fraction_train = 0, with which a strategy trains nobody, and the selector asks m "
            "clients a round; leave fraction_train out",
            key="strategy",
        )


def _built(selector: Selector[Any] | str) -> Selector[Any]:
    """Return the selector, that of a rule's name built with seed 0.

    Raises
    ------
    ConfigError: it is neither a selector nor the name of a rule that can do without a horizon.
    """
    if isinstance(selector, Selector):
        return selector
    if not isinstance(selector, str):
        raise ConfigError(
            f"got {selector!r:.80}; expected the name of a rule, or a selector with options: "
            'motley.selectors.build({"name": "oort", "alpha": 1.0}, seed=0)',
            key="selector",
        )
    if CATALOGUE.build(selector).needs().horizon:
        raise ConfigError(
            f"{selector} anneals towards the last round and must know it; expected "
            f'motley.selectors.build("{selector}", horizon=50) of 50 rounds in place of its name',
            key="selector",
        )
    return build(selector)


def _observer(
    coordinator: SelectionCoordinator, name: str, out: str | os.PathLike[str] | None, progress: bool
) -> RoundObserver:
    if out is None:
        return RoundObserver(coordinator, name, progress)
    from motley_flower.recorded.recorded_run import RecordedRun  # loads torch

    return RecordedRun(coordinator, out, name, progress)


def _secure_sums(
    strategy: Any, coordinator: SelectionCoordinator, options: SecureOptions, register: Any
) -> SecureSums:
    """Return secure aggregation for a run.

    Raises
    ------
    ConfigError: what needs single uploads, no register, or the extra is not installed.
    """
    from motley_flower.strategy.secure_sums import SecureSums, check_secure

    check_secure(
        strategy=strategy,
        selector=coordinator.selector,
        m=coordinator.m,
        settings=coordinator.settings,
        options=options,
    )
    coordinator.registry.lacks = None  # the register names clients, and so must every node
    if register is None:
        raise ConfigError(
            'secure aggregation needs the clients\' public keys; expected register="register.json"',
            "register",
        )
    return SecureSums(
        options=options,
        register=register,
        selector=coordinator.selector,
        m=coordinator.m,
        settings=coordinator.settings,
        reader=coordinator.reader,
        registry=coordinator.registry,
        state=coordinator.state,
    )


class _SelectingStrategy:
    """The methods that are put before a strategy's own. The coordinator's observer is told of every
    round; rounds that it replays ask no client."""

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

    def _start(self, grid: Grid, *args: Any, **options: Any) -> Any:
        limited, start = LimitedGrid(grid, self.motley.settings.link_s), super().start  # type: ignore[misc]
        bound = inspect.signature(start).bind(
            _RecordingGrid(limited, self.motley), *args, **options
        )
        bound.apply_defaults()
        if self.motley.settings.clients is not None:
            self.motley.settings.clients.log_run(limited)
        with private_files(), self.motley.observer.going(self, bound.arguments):
            return start(*bound.args, **bound.kwargs)

    start = _start

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        """Return the strategy's messages, addressed to the chosen clients; none where the round is
        replayed."""
        coordinator = self.motley
        if coordinator.observer.replays_training(server_round):
            return []
        coordinator.observer.begin_round(server_round)
        min_clients = max(attribute(self, "min_available_nodes", 0), coordinator.m)
        nodes = coordinator.open_round(
            grid=grid,
            model=arrays,
            model_key=attribute(self, "arrayrecord_key", "arrays"),
            min_clients=min_clients,
            records=lambda nodes: self._records(server_round, arrays, config, grid, nodes),
        )
        if not nodes:
            return []
        n = len(nodes)
        with temporarily(
            self, {"fraction_train": 1.0, "min_train_nodes": n, "min_available_nodes": n}
        ):
            try:
                subset = _GridSubset(grid, nodes, coordinator.clock)
                messages = super().configure_train(server_round, arrays, config, subset)  # type: ignore[misc]
                return coordinator.address(messages)
            except _TooFewNodesError:
                raise ConfigError(
                    f"the strategy waits for more nodes than the {n} chosen in round "
                    f"{server_round}; expected one that takes the nodes of the grid it is given (a "
                    f"minimum of nodes of its own? choose m = {coordinator.m} to fit it)"
                ) from None

    def _records(
        self, server_round: int, arrays: Any, config: Any, grid: Any, nodes: Sequence[int]
    ) -> dict[int, dict[str, Any]]:
        """Return by node what the strategy would send to it beside the model, if it were chosen:
        the strategy may add to the configuration, as FedProx does. A copy of the strategy writes
        it; of one that cannot be copied, it is the configuration of ``start``."""
        config = flower().ConfigRecord({**config, "server-round": server_round})
        plain = {attribute(self, "configrecord_key", "config"): config}
        twin = copy_of(self)
        if twin is None:
            return dict.fromkeys(nodes, plain)
        n = len(nodes)
        subset = _GridSubset(grid, nodes, self.motley.clock)
        numbers = {"fraction_train": 1.0, "min_train_nodes": n, "min_available_nodes": n}
        with temporarily(twin, numbers), without_traces("flwr"):
            try:
                messages = super(_SelectingStrategy, twin).configure_train(  # type: ignore[misc]
                    server_round, arrays, config, subset
                )
            except _TooFewNodesError:
                messages = []
        written = {message.metadata.dst_node_id: dict(message.content) for message in messages}
        shared = next(iter(written.values()), plain)
        return {node: written.get(node, shared) for node in nodes}

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Return the strategy's step on the usable replies, or that of the round that is replayed;
        the selector observes the round."""
        coordinator = self.motley
        if coordinator.observer.replays_training(server_round):
            return coordinator.observer.training(server_round)
        replies = list(replies)
        usable = coordinator.read_replies(replies)
        failed = [reply for reply in replies if reply.has_error()]
        aggregate = super().aggregate_train  # type: ignore[misc]
        step = GuardedStep(
            self, coordinator, lambda accepted: aggregate(server_round, [*accepted, *failed])
        )
        arrays, metrics = step.take(usable) if usable or failed else (None, None)
        if coordinator.rehearsal:
            step.put_back()
        model = arrays if coordinator.close_round(arrays) else None
        coordinator.observer.trained(server_round, model, metrics)
        return model, metrics

    def configure_evaluate(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> list[Any]:
        """Return the strategy's messages to nodes that it samples of those connected; none where
        the round is replayed."""
        coordinator = self.motley
        if coordinator.observer.replays_evaluation(server_round):
            return []
        coordinator.refresh(grid, arrays)
        nodes = [
            coordinator.registry.node_of[client] for client in coordinator.registry.clients.tolist()
        ]
        if not nodes:
            return []
        n = min(attribute(self, "min_evaluate_nodes", 0), len(nodes))
        with temporarily(self, {"min_evaluate_nodes": n, "min_available_nodes": n}):
            try:
                subset = _GridSubset(grid, nodes, coordinator.clock)
                messages = super().configure_evaluate(server_round, arrays, config, subset)  # type: ignore[misc]
                return coordinator.open_evaluation(messages)
            except _TooFewNodesError:
                return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> Any:
        """Return the strategy's mean of the usable evaluations, or that of the round that is
        replayed."""
        observer = self.motley.observer
        if observer.replays_evaluation(server_round):
            return observer.evaluation(server_round)
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        usable = self.motley.usable_evaluations(
            [reply for reply in replies if not reply.has_error()]
        )
        try:
            metrics = super().aggregate_evaluate(server_round, [*usable, *failed])  # type: ignore[misc]
        except flower("serverapp.exception").InconsistentMessageReplies:
            metrics = None
        observer.evaluated_by_clients(server_round, metrics)
        return metrics


class _TooFewNodesError(Exception):
    """A strategy waits for more nodes than the grid that it is given has."""


class _GridSubset(ForwardingGrid):
    """A grid that shows some of its nodes only."""

    def __init__(self, grid: Grid, nodes: Sequence[int], clock: WallClock) -> None:
        super().__init__(grid)
        self._nodes = list(nodes)
        self._clock = clock
        self._end_s = clock.now() + PATIENCE_S
        self._calls = 0

    def get_node_ids(self) -> list[int]:
        """Return the nodes; raise if they are asked for again and again."""
        self._calls += 1
        if self._calls > 2 and self._clock.now() > self._end_s:
            raise _TooFewNodesError
        return list(self._nodes)

    def get_nodes(self) -> list[Any]:
        """Return Flower's descriptions of the nodes."""
        self.get_node_ids()
        connected = {node.node_id: node for node in self._grid.get_nodes()}
        return [connected[node] for node in self._nodes if node in connected]


class _RecordingGrid(ForwardingGrid):
    """A grid that lets the coordinator record the times and errors of its messages."""

    def __init__(self, grid: Grid, coordinator: SelectionCoordinator) -> None:
        super().__init__(grid)
        self._coordinator = coordinator

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> list[Any]:
        """Send messages and return the replies, as Flower's method does; a time-out is required."""
        if timeout is None:
            raise ConfigError(
                "got no time-out for an exchange; expected start(..., timeout=seconds): nothing "
                "waits without a limit"
            )
        messages = list(messages)
        # no node works on what nobody waits for any more; the exchange itself ends before
        for message in messages:
            message.metadata.ttl = min(message.metadata.ttl, timeout + EXPIRY_S)
        registry = self._coordinator.registry
        sent = exchange(
            grid=self._grid,
            messages=messages,
            limit_s=timeout,
            clock=self._coordinator.clock,
            beside=registry.attend,
        )
        self._coordinator.record(sent)
        for answer in sent:
            if answer.reply is not None and answer.reply.has_error():  # a strategy may log it
                answer.reply.error = flower().Error(answer.reply.error.code, answer.error)
        return [answer.reply for answer in sent if answer.reply is not None]
