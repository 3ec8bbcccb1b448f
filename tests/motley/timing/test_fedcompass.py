"""FedCompass: a schedule worked by hand, the same decisions as a second writing of the scheduler
with queues and timers, and a run that goes on after a kill."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.parts import Part, Upload, aggregate
from motley.core import codec
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.aggregation import scaled
from motley.rounds.staleness import mixed
from motley.tasks.task import ModelState
from motley.timing.fedcompass import FedCompass
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait
from motley.timing.timeline import Timelines, plan


def one(
    client: int, dispatch: int, start_s: float, steps: int, step_s: float, drop: float = np.nan
):
    return plan(
        client=np.array([client]),
        dispatch=np.array([dispatch]),
        version=0,
        steps=np.array([steps]),
        start_s=start_s,
        step_s=np.array([step_s]),
        bits_down=0,
        down_mbps=np.inf,
        bits_up=0,
        up_mbps=np.inf,
        drop_at=drop,
    )


def played(rule: FedCompass, speed: Any, clients: int, until_s: float, lost: Any = None):
    """Return the server steps as (seconds, accepted clients, discarded) and the dispatches as
    (seconds, client, local steps), without training.

    Parameters
    ----------
    speed: of client and dispatch, seconds a step.
    lost: of client and dispatch, the share of the work after which it breaks off; NaN: it does not.
    """
    memory, lines = rule.init(), Timelines.empty()
    now, version, dispatch = 0.0, 0, 0
    asked_s: float | None = None
    steps_taken: list[tuple[float, list[int], list[int]]] = []
    sent: list[tuple[float, int, int]] = []
    changes = np.zeros(0, np.int64)
    found = 0
    while now <= until_s:
        view = ServerView(
            now_s=now,
            cohort=clients,
            version=version,
            dispatched=asked_s is not None,
            in_flight=lines,
            dispatched_s=asked_s or 0.0,
            changes=changes,
            sent=found,
            available=found,
            memory=memory,
        )
        memory = rule.observed(view)
        view = dataclasses.replace(view, memory=memory)
        decision = rule.decide(view)
        if isinstance(decision, Wait):
            assert decision.until_s > now
            now = decision.until_s
        elif isinstance(decision, ServerStep):
            stay = decision.remaining(view)
            steps_taken.append(
                (
                    round(now, 6),
                    sorted(lines.client[decision.accept].tolist()),
                    sorted(lines.client[decision.cancel].tolist()),
                )
            )
            version += 1
            lines = lines[np.flatnonzero(stay)]
            changes = (changes + 1)[stay]
            asked_s = None
        else:
            assert isinstance(decision, Dispatch)
            busy = set(lines.client[(lines.arrives_s > now) | lines.dropped].tolist())
            ids = np.array(sorted(set(range(clients)) - busy - set(decision.without)), np.int64)
            ids = ids[: decision.count]
            asked_s, found = now, len(ids)
            if not len(ids):
                continue
            steps, memory = rule.assigned(view, ids, dispatch)
            for k, q in zip(ids.tolist(), steps.tolist(), strict=True):
                drop = np.nan if lost is None else lost(k, dispatch)
                row = one(k, dispatch, now, q, speed(k, dispatch), drop)
                lines = Timelines.concat(lines, row)
                sent.append((round(now, 6), k, q))
                dispatch += 1
            changes = np.append(changes, np.zeros(len(ids), np.int64))
    return steps_taken, sent


def test_a_schedule_by_hand():
    """Speeds 1, 2, 5 s; the numbers of the module's text."""
    rule = FedCompass(min_steps=3, max_steps=10)
    steps, sent = played(rule, lambda k, _: (1.0, 2.0, 5.0)[k], 3, 74.0)
    assert sent[:6] == [
        (0.0, 0, 10),
        (0.0, 1, 10),
        (0.0, 2, 10),
        (10.0, 0, 10),
        (20.0, 0, 10),
        (20.0, 1, 5),
    ]
    assert [(s, k, q) for s, k, q in sent if s == 50.0] == [
        (50.0, 0, 10),
        (50.0, 1, 5),
        (50.0, 2, 5),
    ]
    assert [(s, accepted) for s, accepted, _ in steps][:8] == [
        (10.0, [0]),
        (20.0, [1]),
        (20.0, [0]),
        (30.0, [0, 1]),
        (40.0, [0, 1]),
        (50.0, [2]),
        (50.0, [0, 1]),
        (60.0, [0, 1]),
    ]
    # with Q_min = 2 the slow client joins the group of 60 with 2 steps
    _, sent = played(
        FedCompass(min_steps=2, max_steps=10), lambda k, _: (1.0, 2.0, 5.0)[k], 3, 55.0
    )
    assert (50.0, 2, 2) in sent


class Queue:
    """The scheduler written a second time, from its description: events in order of time, groups
    with timers, a buffer of late updates."""

    def __init__(self, q_min: int, q_max: int, momentum: float, factor: float) -> None:
        self.q_min, self.q_max, self.momentum, self.factor = q_min, q_max, momentum, factor
        self.speed: dict[int, float] = {}
        self.group_of: dict[int, int] = {}
        self.groups: dict[int, dict[str, Any]] = {}
        self.buffer: set[int] = set()
        self.late = 0
        self.made = 0
        self.log: list[tuple[float, list[int]]] = []
        self.orders: list[tuple[float, int, int]] = []

    def arrive(self, now: float, k: int, took: float, steps: int) -> list[tuple[int, int]]:
        new = took / steps
        old = self.speed.get(k)
        self.speed[k] = new if old is None else (1 - self.momentum) * old + self.momentum * new
        if k not in self.group_of:
            self.log.append((now, [k]))
            return [(k, self.assign(now, k))]
        number = self.group_of[k]
        group = self.groups[number]
        group["coming"].discard(k)
        if now > group["latest"]:
            self.buffer.add(k)
            self.late += 1
            if not group["coming"]:
                del self.groups[number]
            return [(k, self.assign(now, k))]
        group["here"].append(k)
        return [] if group["coming"] else self.close(now, number)

    def close(self, now: float, number: int) -> list[tuple[int, int]]:
        group = self.groups.get(number)
        if group is None or not group["here"]:
            return []
        here = group.pop("here")
        self.log.append((now, sorted({*here, *self.buffer})))
        self.buffer = set()
        group.update(here=[], expected=0.0, latest=0.0)
        if not group["coming"]:
            del self.groups[number]
        return [(k, self.assign(now, k)) for k in sorted(here, key=lambda k: self.speed[k])]

    def assign(self, now: float, k: int) -> int:
        speed = self.speed[k]
        best = None
        for number, group in self.groups.items():
            fit = math.floor((group["expected"] - now) / speed + 1e-6)
            if self.q_min <= fit <= self.q_max and (best is None or fit >= best[1]):
                best = number, fit
        if best is not None:
            self.groups[best[0]]["coming"].add(k)
            self.group_of[k] = best[0]
            return best[1]
        fits = [
            math.floor(
                (
                    group["latest"]
                    + min(self.speed[j] for j in (*group["coming"], *group["here"])) * self.q_max
                    - now
                )
                / speed
                + 1e-6
            )
            for group in self.groups.values()
            if now < group["latest"]
        ]
        fits = [fit for fit in fits if fit <= self.q_max]
        steps = max(self.q_min, max(fits)) if fits else self.q_max
        self.groups[self.made] = {
            "coming": {k},
            "here": [],
            "expected": now + steps * speed,
            "latest": now + self.factor * steps * speed,
        }
        self.group_of[k] = self.made
        self.made += 1
        return steps

    def play(self, speed: Any, clients: int, until_s: float) -> None:
        dispatch = clients
        under_way = {
            k: (self.q_max * speed(k, k), 0.0, self.q_max) for k in range(clients)
        }  # arrival, start, steps
        while True:
            timers = [(g["latest"], 1, n) for n, g in self.groups.items() if g["here"]]
            events = sorted([(s, 0, k) for k, (s, _, _) in under_way.items()] + timers)
            now, kind, which = events[0]
            if now > until_s:
                return
            if kind:
                orders = self.close(now, which)
            else:
                _, start, steps = under_way.pop(which)
                orders = self.arrive(now, which, now - start, steps)
            # the round loop numbers clients of one moment by id
            for k, steps in sorted(orders):
                under_way[k] = (now + steps * speed(k, dispatch), now, steps)
                self.orders.append((round(now, 6), k, steps))
                dispatch += 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("jitter", [0.0, 0.2, 0.7], ids=str)
def test_a_second_writing_decides_alike(seed, jitter):
    """Six clients whose speeds differ tenfold and vary by dispatch, so that some come late: the
    same steps with the same clients, and the same numbers of local steps."""
    key = Key(seed)
    base = 0.1 + key.fold("base").uniform(np.arange(6))[:, 0]

    def speed(k: int, dispatch: int) -> float:
        return float(base[k] * math.exp(jitter * key.fold(dispatch).normal([k])[0, 0]))

    steps, sent = played(FedCompass(4, 20, momentum=0.6, latest=1.2), speed, 6, 150.0)
    queue = Queue(4, 20, momentum=0.6, factor=1.2)
    queue.play(speed, 6, 150.0)
    assert [(s, k) for s, k, _ in steps] == [(round(s, 6), k) for s, k in queue.log]
    assert sent[6:] == queue.orders
    assert len(steps) > 20
    assert min(q for _, _, q in sent) < 20
    assert max(len(accepted) for _, accepted, _ in steps) > 1
    assert (queue.late > 0) == (jitter > 0)


def test_a_client_that_broke_off_is_waited_for_until_the_group_ends():
    """Clients of 1 s. At 10 each takes a step alone; 0 opens a group (T = 20, L = 25) that 1 joins,
    and breaks off half way: at 20 client 1 is there, at 25 the server steps on it alone."""
    steps, _ = played(
        FedCompass(min_steps=2, max_steps=10),
        lambda k, _: 1.0,
        2,
        30.0,
        lost=lambda k, dispatch: 0.5 if (k, dispatch) == (0, 2) else np.nan,
    )
    assert [(s, accepted) for s, accepted, _ in steps][:3] == [
        (10.0, [0]),
        (10.0, [1]),
        (25.0, [1]),
    ]


def test_a_late_update_waits_for_the_next_group_and_its_client_goes_on():
    """Client 1 takes 1 s a step, then 2: its second update comes at 30, after L = 25. It is sent
    out again at 30, and its update is in the step of client 0's next group."""
    steps, sent = played(
        FedCompass(min_steps=2, max_steps=10, momentum=1.0),
        lambda k, dispatch: 2.0 if (k, dispatch) == (1, 3) else 1.0,
        2,
        41.0,
    )
    by_time = [(s, accepted) for s, accepted, _ in steps]
    assert by_time[:3] == [(10.0, [0]), (10.0, [1]), (25.0, [0])]
    assert (30.0, 1) in [(s, k) for s, k, _ in sent]
    assert (35.0, [0, 1]) in by_time


def weigh(form: str) -> ServerStep:
    rule = FedCompass(form=form)  # type: ignore[arg-type]
    lines = one(0, 0, 0.0, 1, 1.0)
    memory = rule.init().put([0], {"dispatch": 0.0})
    view = ServerView(1.0, 2, 1, True, lines, changes=np.array([1]), memory=memory)
    step = rule.decide(dataclasses.replace(view, memory=rule.observed(view)))
    assert isinstance(step, ServerStep)
    return step


def test_how_far_an_update_moves_the_model():
    """alpha s(1) / K = .9 * .707107 / 2 = .318198: an update of .4 from 0 moves 1 to 1.127279, and
    as a model to .809081."""
    step = weigh("updates")
    assert step.scale is not None
    assert step.scale.tolist() == pytest.approx([0.318198], abs=1e-6)
    assert not step.mix
    assert weigh("models").mix

    def moved(upload: Upload) -> float:
        return 1.0 + float(aggregate(Mean(), [upload], "weight")["delta"][0])

    factor = float(step.scale[0])
    empty = torch.zeros(0)
    newest = ModelState(torch.ones(1, dtype=torch.float64), empty, empty.long())
    sent = Upload({"delta": Part(torch.tensor([0.4], dtype=torch.float64), "mean")}, 1.0)
    received = {"x": torch.zeros(1, dtype=torch.float64)}
    assert moved(scaled(sent, factor)) == pytest.approx(1.127279, abs=1e-6)
    assert moved(mixed(sent, factor, newest, received)) == pytest.approx(0.809081, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_steps": 0}, "got min_steps = 0 and max_steps = 100"),
        ({"min_steps": 30, "max_steps": 20}, "got min_steps = 30 and max_steps = 20"),
        ({"momentum": 0.0}, "got momentum = 0.0"),
        ({"latest": 0.9}, "got latest = 0.9"),
        ({"alpha": 1.5}, "got alpha = 1.5"),
        ({"form": "sums"}, "got form = 'sums'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        FedCompass(**options)


# ------------------------------------------------------------------------------------ in a run

KEYS: dict[str, Any] = {
    "task": {"name": "quadratic", "minima": [0.0, 1.0, 2.0, 3.0]},
    "partition": "by_writer",
    "population": 4,
    "cohort": 4,
    "stop": {"rounds": 12},
    "local": {"steps": 5, "batch_size": 1, "optimizer": {"lr": 0.1}},
    "device": {"name": "log_normal", "median": 0.1, "sigma": 1.0},
    "evaluate": {"every": 12},
    "synchrony": {"name": "fedcompass", "min_steps": 2, "max_steps": 10},
}


def test_a_run_goes_on_to_the_same_bits_after_a_kill():
    whole, first, second = (build(Experiment(**KEYS)) for _ in range(3))
    for _ in range(6):
        whole.step()
        first.step()
    second.restore(codec.decode(codec.encode(first.save())))
    for _ in range(6):
        expected, got = whole.step(), second.step()
        assert (got.asked, got.time_s, got.total_bits) == (
            expected.asked,
            expected.time_s,
            expected.total_bits,
        )
    assert second.state.server.model.x.tolist() == whole.state.server.model.x.tolist()
    assert codec.encode(second.state.remembered) == codec.encode(whole.state.remembered)


def test_a_run_moves_the_model_by_hand():
    """Two parabolas around 0 and 1, rate .1, links free. Each first update is a step alone, in
    order of dispatch: 10 steps lead a share 1 - .9^10 = .651322 of the way, of which .9 / 2 is
    taken, and of the second, which is one step stale, .9 / 2 times 2^-.5."""
    keys = {
        **KEYS,
        "task": {"name": "quadratic", "minima": [0.0, 1.0]},
        "population": 2,
        "cohort": 2,
        "device": {"name": "constant", "seconds": 0.1},
        "dtype": "float64",
    }
    loop = build(Experiment(**keys))
    x = float(loop.state.server.model.x[0])
    way = 1 - 0.9**10
    order = loop.step().asked
    first = x + 0.45 * way * (order[0] - x)
    assert float(loop.state.server.model.x[0]) == pytest.approx(first, abs=1e-12)
    loop.step()
    second = first + 0.45 * 2**-0.5 * way * (order[1] - x)
    assert float(loop.state.server.model.x[0]) == pytest.approx(second, abs=1e-12)


def test_two_that_say_how_long_clients_work_are_refused():
    loop = build(Experiment(**{**KEYS, "selector": "pyramidfl"}))

    def run() -> None:
        while not loop.done:
            loop.step()

    with pytest.raises(ConfigError, match=r"FedCompass says how many local steps.*PyramidFL"):
        run()


def test_methods_without_updates_are_refused():
    with pytest.raises(ConfigError, match="groups of arrival discount late updates"):
        build(
            Experiment(
                **{
                    **KEYS,
                    "task": {"name": "image", "data": "digits"},
                    "partition": "iid",
                    "algorithm": "fedproto",
                }
            )
        )
