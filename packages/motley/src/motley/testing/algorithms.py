"""The contract suite of algorithms, in one function: :func:`check_algorithm`.

Eight clients of unequal size, three of which take part in a round, train a small network with the
method, with and without BatchNorm, on every engine that accepts it. A method may keep layers with
the clients. A method of your own is tested by one line:

>>> from motley.algorithms.fedprox import FedProx
>>> check_algorithm(FedProx(mu=0.1))

Each point of the contract is a function of its own below, named in :data:`CHECKS`; a failure is an
``AssertionError`` that starts with the point's name. All computations are in float64; a method
takes about a second.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.algorithms.fedavg import plain_fedavg
from motley.algorithms.local_optimisers import SGD, Solver
from motley.algorithms.parts import (
    UPDATES,
    ClientState,
    ExtraExchange,
    JobContext,
    LocalRule,
    Method,
    PersonalRule,
    Server,
    ServerContext,
    ServerState,
    Upload,
    aggregate,
)
from motley.algorithms.task_loss import loss_of
from motley.algorithms.weights import Weighting, divide_by, own_weights
from motley.core.arrays import Floats, Ints
from motley.core.components import overrides
from motley.core.keys import Key, Streams
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines import ENGINES
from motley.engines.engine import Engine, Job, Setting, TrainResult, client_losses
from motley.tasks.flat import FlatNetwork, initial
from motley.tasks.task import Federation, ModelState, Task

SIZES = (7, 1, 13, 12, 4, 11, 5, 9)
COHORTS = ((2, 0, 5), (1, 2, 7), (5, 6, 3), (2, 4, 0))
"""Client ids of each round: some clients take part again, some never do."""
BATCHED = ("threads", "batched", "vmap", "debug")


def mlp() -> nn.Module:
    """Return a model without buffers, which every engine accepts."""
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


def normed() -> nn.Module:
    """Return a model with floating and integer buffers."""
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


MODELS: Mapping[str, Callable[[], nn.Module]] = {"an MLP": mlp, "an MLP with BatchNorm": normed}


class Adapted(nn.Module):
    """A frozen linear layer and a low-rank adapter of rank 4."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_A = nn.Linear(inputs, 4, bias=False)
        self.lora_B = nn.Linear(4, outputs, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, inputs]`` to ``[B, outputs]``."""
        out: Tensor = self.frozen(x) + self.lora_B(self.lora_A(x))
        return out


def adapted(model: Callable[[], nn.Module]) -> nn.Module:
    """Return a model of :data:`MODELS` whose linear layers are frozen and have adapters."""
    return nn.Sequential(
        *(
            Adapted(layer.in_features, layer.out_features) if type(layer) is nn.Linear else layer
            for layer in model().children()
        )
    )


@cache
def _training_numbers() -> tuple[Tensor, Tensor, Ints]:
    """Return inputs, labels and their order among the clients."""
    count = sum(SIZES)
    key = Key(0).fold("contract")
    x = torch.from_numpy(key.normal(np.arange(count), 6))
    y = torch.from_numpy((4 * key.fold("labels").uniform(np.arange(count))[:, 0]).astype(np.int64))
    return x, y, key.fold("order").numpy().permutation(count)


@cache
def _server_numbers(purpose: str) -> Floats:
    return Key(4).fold(purpose).normal(np.arange(60), 6)


def _server_inputs(purpose: str) -> Tensor:
    """Return samples of the server, of which a rule may change its copy alone."""
    return torch.from_numpy(_server_numbers(purpose).copy())


def _federation() -> Federation:
    x, y, order = _training_numbers()
    x, y = x.clone(), y.clone()
    train = Ragged(np.concatenate([[0], np.cumsum(SIZES)]), order.copy())
    empty = Ragged(np.zeros(len(SIZES) + 1, np.int64), np.zeros(0, np.int64))
    return Federation(
        x,
        y,
        train,
        labels=y[torch.from_numpy(train.values)].clone(),
        validation=empty,
        test=empty,
        global_test=None,
        classes=4,
    )


@dataclass
class Play:
    """A small federation that runs a method round by round, without clock, traffic or selector.

    Parameters
    ----------
    method: the method under test.
    weights: weighting of updates.
    solver: local optimizer.
    model: of :data:`MODELS`, with adapters for a method that is made for them.
    engine: name.
    """

    method: Method
    weights: Weighting
    solver: Solver
    model: str = "an MLP"
    engine: str = "sequential"
    server: ServerState = field(init=False)
    client_states: dict[int, ClientState] = field(init=False)

    def __post_init__(self) -> None:
        model = MODELS[self.model]
        self._task = Task(
            "contract", _federation(), partial(adapted, model) if self.method.adapters else model
        )
        algorithm = self.method.change(plain_fedavg())
        work = LocalWork(batch_size=5, epochs=2)
        self.setting = Setting(
            task=self._task,
            algorithm=algorithm,
            solver=self.solver,
            work=work,
            streams=Streams(3),
            dtype=torch.float64,
            threads=2,
        )
        self.algorithm = self.setting.algorithm  # bound to the model
        self._initial = initial(self.setting.task.model, Key(1), torch.float64)
        self._network = FlatNetwork(self.setting.task.model, torch.float64)
        self._begin()

    def _begin(self) -> None:
        """Take the state before the first round, and no engine."""
        state = copy.deepcopy(self._initial)
        self.server = self.algorithm.server.init(self.algorithm.local.sent(state), len(SIZES))
        self.first = self.algorithm.local.initial_state(state)
        self.client_states = {}
        self._engines: dict[str, Engine] = {}

    def on(self, engine: str) -> Play:
        """Return a play of the same model and samples that has run no round, with a loss, rules and
        a server that saw no other."""
        play = copy.copy(self)
        play.engine = engine
        algorithm = self.method.change(plain_fedavg())
        play.setting = dataclasses.replace(self.setting, task=self._task, algorithm=algorithm)
        play.algorithm = play.setting.algorithm
        play._begin()
        return play

    def refuses(self) -> str | None:
        """Return why the engine does not accept this method; None if it does."""
        kind: type[Engine] = ENGINES.get(self.engine)
        return kind.refuses(self.setting)

    def jobs(self, number: int, cohort: tuple[int, ...]) -> list[Job]:
        """Return jobs with all the local steps of each client, except that the last of the cohort
        has one step less; where clients train slices, of several widths."""
        steps = self.setting.work.total(np.array([SIZES[c] for c in cohort]))
        steps[-1] = max(1, steps[-1] - 1)
        slicing = self.algorithm.local.slicing
        offset = 0 if slicing is None else slicing.offset(number)
        widths = [1.0 if slicing is None else (1.0, 0.5, 0.25)[c % 3] for c in cohort]
        planned = zip(cohort, steps.tolist(), widths, strict=True)
        return [
            Job(c, 10 * number + i, s, 0.1, width=width, offset=offset)
            for i, (c, s, width) in enumerate(planned)
        ]

    def kept(self, cohort: tuple[int, ...]) -> dict[int, ClientState | None]:
        """Return the cohort's client states."""
        return (
            {} if self.first is None else {c: self.client_states.get(c, self.first) for c in cohort}
        )

    def train(self, number: int, cohort: tuple[int, ...]) -> list[TrainResult]:
        """Return the results of one round's local training, in order of client id."""
        engine = self._made(self.engine)
        download = self.algorithm.local.download(self.server)
        ordered = tuple(sorted(cohort))
        done = list(
            engine.train(self.jobs(number, ordered), download, self.kept(ordered), frozenset())
        )
        engine.close()
        return done

    def _made(self, name: str) -> Engine:
        """Return the engine of this name, made when it is first asked for: as in a run, it trains
        in all rounds."""
        if name not in self._engines:
            kind: type[Engine] = ENGINES.get(name)
            self._engines[name] = kind(self.setting)
        return self._engines[name]

    def round(self, number: int, cohort: tuple[int, ...]) -> list[TrainResult]:
        """Run one round: train, aggregate, step the server, keep the client states."""
        done = self.train(number, cohort)
        own = own_weights(self.weights, np.array(SIZES))
        counted = {t.client: float(own[t.client]) for t in done}
        uploads = [
            Upload(t.parts, counted[t.client], client=t.client, own_weight=counted[t.client])
            for t in done
        ]
        total = aggregate(self.algorithm.aggregator, uploads, divide_by(self.weights))
        states = {t.client: t.client_state for t in done if t.client_state is not None}
        self.server, kept_after = self.algorithm.server.update_with_clients(
            self.server, total, states, self.context(number, list(counted))
        )
        self.client_states |= kept_after
        return done

    def context(self, number: int, accepted: Sequence[int]) -> ServerContext:
        """Return the server context of a round with these clients: network, public samples,
        validation samples, and the clients' losses and weights."""
        setting = self.setting
        task = setting.task
        own = own_weights(self.weights, np.array(SIZES))
        return ServerContext(
            layout=task.layout,
            population=len(SIZES),
            accepted=len(accepted),
            network=self._network,
            public=_server_inputs("public"),
            validation=(_server_inputs("held"), torch.arange(60) % 4),
            criterion=loss_of(task),
            key=Key(4).fold(number),
            losses=lambda *arguments: client_losses(self._made("sequential"), *arguments),
            own_weights=(float(own[list(accepted)].sum()), float(own.sum())),
        )

    def run(self, cohorts: Sequence[tuple[int, ...]] = COHORTS) -> Play:
        """Run the rounds of these cohorts."""
        for number, cohort in enumerate(cohorts):
            self.round(number, cohort)
        return self


@dataclass(frozen=True)
class Snapshot:
    """What there is between two rounds: the server's state and what it sends, the clients' states
    and the one of new clients."""

    server: ServerState
    sent: Mapping[str, Tensor]
    client_states: dict[int, ClientState]
    first: ClientState | None


@dataclass
class Watched:
    """A run of all rounds on the sequential engine: the objects of each stage and copies of them,
    made when the stage was reached, and the results of each round's training."""

    play: Play
    stages: list[Snapshot] = field(default_factory=list)
    copies: list[Snapshot] = field(default_factory=list)
    trained: list[list[TrainResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._look()
        for number, cohort in enumerate(COHORTS):
            self.trained.append(self.play.round(number, cohort))
            self._look()

    def _look(self) -> None:
        play = self.play
        sent = play.algorithm.local.download(play.server)
        stage = Snapshot(play.server, sent, dict(play.client_states), play.first)
        self.stages.append(stage)
        self.copies.append(copy.deepcopy(stage))


@dataclass
class Case:
    """A method under test, with weighting and local optimizer; the points of the contract look at
    one run of each model."""

    method: Method
    weights: Weighting
    solver: Solver
    _watched: dict[str, Watched] = field(init=False, default_factory=dict)
    _unplayed: dict[str, Play] = field(init=False, default_factory=dict)

    def play(self, model: str = "an MLP") -> Play:
        """Return a federation that has run no round, of objects that saw no other."""
        return Play(method=self.method, weights=self.weights, solver=self.solver, model=model)

    def unplayed(self, model: str = "an MLP") -> Play:
        """Return the one federation of a model in which no round is run: a point looks at it, or
        plays one :meth:`Play.on` its setting."""
        if model not in self._unplayed:
            self._unplayed[model] = self.play(model)
        return self._unplayed[model]

    def watched(self, model: str) -> Watched:
        """Return the run of a model of :data:`MODELS`."""
        if model not in self._watched:
            self._watched[model] = Watched(self.unplayed(model).on("sequential"))
        return self._watched[model]


def _require(true: bool, message: str) -> None:
    if not true:
        raise AssertionError(message)


def _state(play: Play) -> dict[str, Tensor]:
    return _evolving(play.server, play.client_states)


def _evolving(server: ServerState, client_states: Mapping[int, ClientState]) -> dict[str, Tensor]:
    """Return everything that evolves, by name."""
    model = server.model
    out = {"x": model.x, "buffers": model.buffers, "counters": model.counters, **server.extra}
    for client, client_state in sorted(client_states.items()):
        out |= {f"client {client}: {name}": value for name, value in client_state.items()}
    return out


def _same(
    actual: Mapping[str, Tensor], want: Mapping[str, Tensor], subject: str, rtol: float = 0.0
) -> None:
    _require(
        actual.keys() == want.keys(),
        f"{subject}: {sorted(actual.keys() ^ want.keys())} on one side only",
    )
    for name, value in want.items():
        if value.is_floating_point():
            scale = max(float(value.abs().max()) if value.numel() else 0.0, 1e-12)
            far = float((actual[name] - value).abs().max()) / scale if value.numel() else 0.0
            _require(far <= rtol, f"{subject}: {name} differs by {far:.2g} of its size")
        else:
            _require(bool(torch.equal(actual[name], value)), f"{subject}: {name} differs")


def _declared(case: Case) -> None:
    method = case.method
    params = vars(type(method)).get("__dataclass_params__")
    _require(params is not None and params.frozen, "a method is a frozen dataclass of options")
    _require(bool(method.paper.key), "a method names its paper")
    algorithm = case.unplayed().algorithm
    for part in (algorithm.loss, algorithm.local, algorithm.aggregator, algorithm.server):
        _require(
            dataclasses.is_dataclass(part) or type(part) is LocalRule,
            f"{type(part).__name__} is no frozen dataclass",
        )
        reason = part.refuses(algorithm, case.solver, case.weights)
        _require(reason is None, f"the method refuses itself: {reason}")


def _capabilities(case: Case) -> None:
    for kind in MODELS:
        play = case.unplayed(kind)
        rule = play.algorithm.local
        server = play.algorithm.server
        loss = play.algorithm.loss
        model = initial(play.setting.task.model, Key(1), torch.float64)
        shifted = ModelState(model.x + 1, model.buffers + 1, model.counters + 1)
        download = rule.download(play.server)
        starts = [rule.start(download, rule.initial_state(state)) for state in (model, shifted)]
        inputs = play.setting.task.federation.x[:3]
        targets = play.setting.task.federation.y[:3]
        network = FlatNetwork(play.setting.task.model, torch.float64)
        empty = JobContext(
            x=model.x,
            download=download,
            client_state=rule.initial_state(model),
            steps=1,
            lr=0.1,
            num_examples=3,
            solver_norm=1.0,
            layout=play.setting.task.layout,
        )
        exchange = server.extra_exchange(len(inputs), 4)
        personal = rule.personal
        stray = [
            name
            for name in ("adaptation", "before_examination")
            if hasattr(type(rule), name) and not isinstance(rule, PersonalRule)
        ]
        _require(
            not stray,
            f"nobody calls {', '.join(stray)} of {type(rule).__name__}; extend PersonalRule",
        )
        first = rule.initial_state(model)
        changed = None if first is None else {name: value + 1 for name, value in first.items()}
        used = [rule.examined(download, state) for state in (first, changed)]
        models = 1 if rule.choice is None else rule.choice.models
        chosen = [
            {**(first or {}), "choice": torch.tensor([j])} for j in range(models) if models > 1
        ]
        starts += [rule.start(download, state) for state in chosen]
        used += [rule.examined(download, state) for state in chosen]
        own_start = any(not torch.equal(starts[0].x, start.x) for start in starts)
        own_model = any(not torch.equal(used[0].x, examined.x) for examined in used)
        sends_all = rule.sent(model).x.numel() == model.x.numel()
        prepared = loss.prepare(empty, partial(network.outputs, model), inputs, targets)
        asks = exchange != ExtraExchange() or overrides(server, Server, "update_with_clients")
        declared = {
            "is personal": (rule, personal is not None, own_model),
            "starts_own": (rule, personal is not None and personal.starts_own, own_start),
            "sends_all": (rule, rule.sends_whole, sends_all),
            "prepares": (loss, loss.prepares, bool(prepared)),
            "asks_clients": (server, server.asks_clients, asks),
        }
        for name, (part, declaration, value) in declared.items():
            _require(
                declaration == value,
                f"{type(part).__name__} declares {name} = {declaration}, which is not so; {kind}",
            )


def _uploads(case: Case) -> None:
    for model in MODELS:
        seen = case.watched(model)
        declared = seen.play.algorithm.local.uploads
        sizes = set()
        for trained in seen.trained[0]:
            named = {name for name, part in trained.parts.items() if part.fold in UPDATES}
            _require(named == declared, f"uploads {sorted(named)}, but declares {sorted(declared)}")
            sizes.add(
                tuple(sorted((name, part.value.numel()) for name, part in trained.parts.items()))
            )
        _require(
            len(sizes) == 1,
            "uploads of different lengths: what is billed would depend on the client",
        )


def _layers_at_home(case: Case) -> None:
    for kind in MODELS:
        play = case.unplayed(kind)
        rule = play.algorithm.local
        model = initial(play.setting.task.model, Key(1), torch.float64)
        if rule.sends_whole:
            continue
        first = rule.initial_state(model)
        _require(
            first is not None, "some of the model is not sent, and initial_state keeps none of it"
        )
        back = rule.start(rule.download(play.server), first)
        _same(
            vars(back),
            vars(model),
            f"start does not put together again what sent and initial_state took apart, {kind}",
        )
        lengths = {name: part.numel() for name, part in vars(rule.sent(model)).items()}
        for trained in case.watched(kind).trained[0]:
            entries = (
                trained.parts["delta"].value.numel() if "delta" in trained.parts else lengths["x"]
            )
            _require(
                entries == lengths["x"],
                f"delta has {entries} entries, and sent keeps {lengths['x']}, {kind}",
            )
            update = rule.update(trained.parts)
            size = model.x.numel()
            _require(
                update.numel() == size,
                f"update has {update.numel()} entries; expected the whole model's {size}, {kind}",
            )
            change = int((update != 0).sum())
            _require(
                change <= lengths["x"],
                f"update changes {change} entries, and {lengths['x']} are shared, {kind}",
            )


def _engines(case: Case) -> None:
    """Two rounds: new clients, and one with a state."""
    for model in MODELS:
        after = case.watched(model).copies[2]
        for engine in BATCHED:
            play = case.unplayed(model).on(engine)
            if play.refuses() is None:
                _same(
                    _state(play.run(COHORTS[:2])),
                    _evolving(after.server, after.client_states),
                    f"{engine} against the reference, {model}",
                    rtol=1e-9,
                )


def _client_states(case: Case) -> None:
    for model in MODELS:
        seen = case.watched(model)
        for cohort, before, after in zip(COHORTS, seen.copies, seen.copies[1:], strict=False):
            for client, client_state in before.client_states.items():
                if client not in cohort:
                    _same(
                        after.client_states[client],
                        client_state,
                        f"client {client} did not take part, but its state changed",
                    )
            if before.first is not None and after.first is not None:
                _same(
                    after.first,
                    before.first,
                    "the initial state, which all clients share, was changed in place",
                )


def _values(case: Case) -> None:
    seen = case.watched("an MLP with BatchNorm")
    # before the first round a server may hold NaN, for what it has not heard yet
    for stood, copied in zip(seen.stages[1:], seen.copies[1:], strict=True):
        _same(stood.sent, copied.sent, "a download was changed by training")
        _same(
            {"x": stood.server.model.x, **stood.server.extra},
            {"x": copied.server.model.x, **copied.server.extra},
            "an old server state was changed by a step",
        )


def _resume(case: Case) -> None:
    """Each round is played from a copy of what stood before it, by objects that saw no other: so
    whatever a method or an engine remembers elsewhere is missing."""
    model = "an MLP with BatchNorm"
    seen = case.watched(model)
    for cut in range(1, len(COHORTS)):
        second = case.play(model)
        stood = copy.deepcopy(seen.copies[cut])
        second.server, second.client_states = stood.server, stood.client_states
        second.round(cut, COHORTS[cut])
        after = seen.copies[cut + 1]
        _same(
            _evolving(second.server, second.client_states),
            _evolving(after.server, after.client_states),
            f"went on after round {cut}",
        )


def _buffers(case: Case) -> None:
    seen = case.watched("an MLP with BatchNorm")
    buffers = seen.play.setting.task.layout.buffers
    size = sum(entry.size for entry in buffers)
    (spread,) = (entry.slice for entry in buffers if entry.name.endswith("running_var"))
    first, *later = (stage.server.model for stage in seen.copies)
    for number, model in enumerate(later):
        # perhaps of several widths
        variance = model.buffers.view(-1, size)[:, spread]
        _require(
            bool((variance >= 0).all()), f"a running variance below 0 after round {number + 1}"
        )
        _require(model.counters.dtype == first.counters.dtype, "integer buffers lost their type")


def _finite(case: Case) -> None:
    play = case.watched("an MLP").play
    for name, value in _state(play).items():
        _require(bool(torch.isfinite(value.double()).all()), f"{name} is not finite")
    sent = play.algorithm.local.sent(initial(play.setting.task.model, Key(1), torch.float64))
    _require(play.server.model.x.numel() == sent.x.numel(), "the server's model changed its length")


CHECKS: dict[str, Callable[[Case], None]] = {
    "options are frozen dataclasses, parts go together": _declared,
    "capabilities are what was declared": _capabilities,
    "uploads are what was declared, and of one length": _uploads,
    "layers that stay at home come back": _layers_at_home,
    "buffers stay what they are": _buffers,
    "states of the other clients stay": _client_states,
    "states are values": _values,
    "resume in mid-run": _resume,
    "every engine that accepts it agrees": _engines,
    "finite": _finite,
}
"""The points of the contract: name -> check."""


def check_algorithm(
    method: Method, weights: Weighting | None = None, solver: Solver | None = None
) -> None:
    """Check the whole contract.

    Parameters
    ----------
    method: an instance, its options set.
    weights: weighting of updates; None: the method's own, else ``examples``.
    solver: local optimizer; None: SGD with learning rate 0.1.

    Raises
    ------
    AssertionError: a point of the contract is broken; the message starts with its name.
    """
    published = method.change(plain_fedavg()).weights
    wanted: Weighting = weights or published or "examples"  # type: ignore[assignment]
    case = Case(method, wanted, solver or SGD(lr=0.1))
    for name, check in CHECKS.items():
        try:
            check(case)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
