"""What was sent is billed whether or not it was used, what never left a client nowhere; and a rule
hears of a client that was cut what a deployed server knows: nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from motley.core.records import Outcome, Reports, SignalRequirements
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.selectors.uniform import Uniform
from motley.timing.timeline import plan
from motley.transport.ledger import Ledger
from tests.rows import Rows

HEARD = ("local_steps", "download_s", "compute_s", "upload_s", "bits_up")


@dataclass(frozen=True)
class Listening(Uniform):
    """Keeps what it hears of seconds, steps and bits."""

    heard: ClassVar[list[Reports]] = []

    def needs(self) -> SignalRequirements:
        return SignalRequirements(columns=frozenset(HEARD))

    def observe(self, state: Any, draw: int, reports: Reports) -> Any:
        self.heard.append(reports)
        return super().observe(state, draw, reports)


def built(**keys: Any) -> tuple[RoundLoop, Rows]:
    """Six clients of two samples: two steps of one number, an upload of 32 bits and its heads."""
    base: dict[str, Any] = {
        "task": {
            "name": "quadratic",
            "minima": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "examples": [2] * 6,
        },
        "population": 6,
        "cohort": 2,
        "partition": "by_writer",
        "engine": "sequential",
        "stop": {"rounds": 6},
        "local": {"batch_size": 1},
        "evaluate": {"every": 10**6, "per_client": False},
    }
    loop = build(Experiment(**{**base, **keys}))
    rows = Rows()
    loop.write_to(rows)
    return loop, rows


def columns(rows: Rows, table: str, name: str) -> np.ndarray[Any, Any]:
    return np.concatenate([np.atleast_1d(one[name]) for one in rows.tables.get(table, [])])


def test_how_much_of_an_upload_has_left_by_hand() -> None:
    """Download 1 s, two steps of 1 s, upload 4 s: from 3 s to 7 s. At 4 s a quarter has left; the
    client that drops out in the middle of its work never sends anything."""
    lines = plan([0, 1], [0, 1], 0, 2, 0.0, 1.0, 1e6, 1.0, 4e6, 1.0, [np.nan, 0.5])
    moments = (2.0, 3.0, 4.0, 6.0, 7.0, 9.0)
    assert [lines.sent_share(t).tolist() for t in moments] == [
        [share, 0.0] for share in (0.0, 0.0, 0.25, 0.75, 1.0, 1.0)
    ]
    assert np.isnan(lines.known_until(6.0).arrives_s).tolist() == [True, False]
    assert np.isnan(lines.known_until(1.9).arrives_s).tolist() == [True, True]
    assert [lines.known_until(t).dropped.tolist() for t in (1.9, 2.0)] == [
        [False, False],
        [False, True],
    ]
    assert lines.known_until(7.0).arrives_s.tolist() == [7.0, 2.0]


def test_a_link_that_takes_no_time_sends_all_or_nothing() -> None:
    lines = plan([0], [0], 0, 2, 0.0, 1.0, 0, np.inf, 4e6, np.inf)
    assert [lines.sent_share(t).tolist() for t in (1.9, 2.0)] == [[0.0], [1.0]]


def test_a_cut_upload_is_billed_up_to_the_cut_and_a_late_one_in_full() -> None:
    """Two steps of 1 s, then an upload of so many bits at as many bits a second: at D = 2.25 s a
    quarter of each has left. At 3 s all six of six have arrived, three are wanted, and all are
    paid for."""
    loop, _ = built()
    bits = loop.channel.upload_bits
    link = {"name": "constant", "up_mbps": bits / 1e6}
    link = {"network": link, "device": {"name": "constant", "seconds": 1.0}}
    cut, rows = built(synchrony={"name": "deadline", "seconds": 2.25}, **link)
    cut.step()
    assert columns(rows, "clients", "outcome").tolist() == ["late"] * 2
    assert columns(rows, "clients", "bits_up").tolist() == [bits // 4] * 2
    assert cut.state.ledger.total("upload", "up") == 2 * (bits // 4)
    assert cut.state.ledger.paper_bits == 2 * (32 // 4)

    late, rows = built(
        cohort=3, synchrony={"name": "deadline", "over_select": 2.0, "seconds": 3.0}, **link
    )
    late.step()
    outcome = columns(rows, "clients", "outcome")
    assert sorted(outcome.tolist()) == ["accepted"] * 3 + ["late"] * 3
    assert columns(rows, "clients", "bits_up").tolist() == [bits] * 6
    assert late.state.ledger.total("upload", "up") == 6 * bits


def test_a_rule_hears_nothing_of_a_client_that_was_cut_or_lost() -> None:
    """The numbers of the accepted alone are there; of the late ones outcome and download."""
    Listening.heard.clear()
    loop, rows = built(
        selector=Listening(),
        cohort=3,
        device={"name": "uniform", "low": 1.0, "high": 3.0},
        network={"name": "constant", "up_mbps": 1e-3},
        failures={"name": "drop_out", "rate": 0.3},
        synchrony={"name": "deadline", "over_select": 2.0, "seconds": 4.0},
        stop={"rounds": 12},
    )
    while not loop.done:
        loop.step()
    reports = [one for one in Listening.heard if len(one) and one.outcome[0] != Outcome.ENROLLED]
    outcomes = np.concatenate([one.outcome for one in reports])
    known = np.stack(
        [np.concatenate([np.isfinite(getattr(one, name)) for one in reports]) for name in HEARD]
    )
    assert {int(one) for one in outcomes} == {Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED}
    for outcome, there in (
        (Outcome.ACCEPTED, True),
        (Outcome.LATE, False),
        (Outcome.DROPPED, False),
    ):
        assert (known[:, outcomes == outcome] == there).all(), outcome
    cut = columns(rows, "clients", "bits_up")[columns(rows, "clients", "outcome") == "late"]
    whole = loop.channel.upload_bits
    assert ((cut > 0) & (cut < whole)).any()  # some were cut in the middle of their upload


@pytest.mark.parametrize(
    ("synchrony", "step_s"),
    [
        ({"name": "deadline", "seconds": 1.0}, {"name": "constant", "seconds": 1.0}),
        ({"name": "deadline", "over_select": 3.0}, {"name": "uniform", "low": 0.2, "high": 3.0}),
    ],
    ids=["deadline", "over-selection"],
)
def test_a_drop_after_the_server_step_has_not_happened(
    synchrony: dict[str, Any], step_s: dict[str, Any]
) -> None:
    """A client breaks off at its planned moment. Only if that is no later than the step the server
    knows; else the client is late, has sent nothing and is told as such in all places."""
    Listening.heard.clear()
    loop, rows = built(
        selector=Listening(),
        device=step_s,
        failures={"name": "drop_out", "rate": 0.5},
        synchrony=synchrony,
        stop={"rounds": 10},
    )
    planned: dict[int, float] = {}
    collect = loop.backend.collect

    def watched(*given: Any) -> Any:
        lines = loop.state.clients.in_flight.timelines
        lines = lines[lines.dropped]
        planned.update(zip(lines.dispatch.tolist(), lines.arrives_s.tolist(), strict=True))
        return collect(*given)

    loop.backend.collect = watched  # type: ignore[method-assign]
    while not loop.done:
        loop.step()
    seen = {"late": 0, "dropped": 0}
    reports = [one for one in Listening.heard if len(one) and one.outcome[0] != Outcome.ENROLLED]
    told = dict(zip((row["round"] for row in rows.tables["clients"]), reports, strict=True))
    for row, mine in zip(rows.tables["rounds"], rows.tables["clients"], strict=True):
        for dispatch, outcome, bits, client in zip(
            mine["dispatch"], mine["outcome"], mine["bits_up"], mine["client"], strict=True
        ):
            if dispatch not in planned:
                assert outcome != "dropped"
                continue
            expected = "dropped" if planned[dispatch] <= row["time_s"] else "late"
            assert (outcome, np.nan_to_num(bits)) == (expected, 0.0)
            heard = told[mine["round"]]
            assert heard.outcome[heard.ids == client].tolist() == [Outcome[expected.upper()]]
            seen[outcome] += 1
        assert row["dropped"] == list(mine["outcome"]).count("dropped")
    assert min(seen.values()) > 0, seen


SYNCHRONIES: list[dict[str, Any]] = [
    {"name": "synchronous"},
    {"name": "synchronous", "idle_s": 0.0},
    {"name": "deadline", "seconds": 3.5},
    {"name": "deadline", "over_select": 2.0},
    {"name": "deadline", "seconds": 5.0, "late": "partial", "min_uploads": 2},
    {"name": "buffered", "buffer": 3, "max_staleness": 1},
    {"name": "buffered", "buffer": 2, "refill": "idle"},
    {"name": "asynchronous", "max_staleness": 2},
]
WORLDS: list[dict[str, Any]] = [
    {},
    {"failures": {"name": "drop_out", "rate": 0.4}},
    {"failures": {"name": "crash", "rate": 0.3}},
    {"failures": {"name": "non_finite", "rate": 0.3}},
    {"availability": {"name": "day_night", "share": 0.3, "spread": 0.3, "day_s": 60.0}},
    {"availability": {"name": "bernoulli", "p": 0.2}, "selector": {"name": "poisson", "rate": 0.3}},
    {"selector": {"name": "power_of_choice", "d": 4}},
    {"selector": {"name": "fedcs", "deadline": 8.0}},
]


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("synchrony", SYNCHRONIES, ids=str)
def test_rows_add_up_and_the_clock_stands_still_for_a_reason(
    synchrony: dict[str, Any], world: dict[str, Any]
) -> None:
    """In every round the rows' bits are the ledger's, and their outcomes the round's; whoever was
    asked has one row or is in flight at the end; and no time passes only where clients had arrived
    already, where the rule has chosen nobody, or where without idle time the next round may find
    somebody at once."""
    loop, rows = built(
        synchrony=synchrony,
        device={"name": "uniform", "low": 0.5, "high": 3.0},
        network={"name": "constant", "up_mbps": 1e-3, "down_mbps": 1e-2},
        stop={"rounds": 8},
        **world,
    )
    while not loop.done:
        loop.step()
    rounds = rows.tables["rounds"]
    clients = {one["round"]: one for one in rows.tables.get("clients", [])}
    for row in rounds:
        mine = clients.get(row["round"], {"bits_up": np.zeros(0), "outcome": []})
        assert row["up_bits"] == np.nansum(mine["bits_up"])
        counted = [list(mine["outcome"]).count(kind) for kind in ("accepted", "late", "dropped")]
        assert counted == [row[kind] for kind in ("accepted", "late", "dropped")]
    dispatches = columns(rows, "clients", "dispatch") if clients else np.zeros(0)
    flying = loop.state.clients.in_flight.timelines.dispatch
    assert sorted([*dispatches, *flying]) == list(range(loop.state.dispatch))
    ended = [sum(row[k] for k in ("accepted", "late", "dropped", "rejected")) for row in rounds]
    assert sum(ended) + len(flying) == loop.state.dispatch
    times = [0.0, *(row["time_s"] for row in rounds)]
    for before, row, count in zip(times, rounds, ended, strict=False):
        overlaps = synchrony["name"] in ("buffered", "asynchronous")
        chose_nobody = row.get("available", 0) > 0 and not row.get("selected")
        at_once = synchrony.get("idle_s") == 0 and "bernoulli" in str(world)
        assert row["time_s"] >= before
        reason = (overlaps and count > 0) or chose_nobody or (at_once and not count)
        assert row["time_s"] > before or reason, row
    ledger = loop.state.ledger
    assert ledger.total("upload", "up") == sum(row["up_bits"] for row in rounds)


def test_a_ledger_of_before_has_nothing_that_came_late() -> None:
    ledger = Ledger()
    ledger.post("upload", "up", [1], 100, round=1)
    saved = {
        "round": 1,
        "_totals": {pair: n for pair, n in ledger._totals.items() if pair[0] != "late"},
        "_paper": 100,
        "_tail": [],
    }
    again = Ledger()
    again.restore(saved)
    again.post("late", "up", [2], 50, round=2)
    assert (again.total("upload"), again.total("late"), again.total_bits) == (100, 50, 150)
    assert again.paper_bits == 100
