"""Lies in a run: what the selector hears, what updates weigh, and that nothing else changes."""

import json

import numpy as np
import pytest

from motley.core import codec
from motley.core.keys import Streams
from motley.core.records import Outcome, Reports
from motley.experiments.build import build
from motley.rounds.lies import claimed_examples, told
from motley.world.dishonest import Coalition, ConstantClaim, CopiedBest, NoLies, ScaledClaim
from tests.rows import Rows

KEY = Streams(0).key("fail")
FOUR = np.arange(4)
EXAMPLES = np.array([10, 20, 30, 40])


def heard(dishonest, reports, round_index=1, before=None, measured=False):
    return told(dishonest, KEY, reports, round_index, EXAMPLES, before or {}, measured)


BASE = {
    "task": {"name": "quadratic", "dim": 3, "examples": [2] * 12},
    "partition": "by_writer",
    "population": 12,
    "cohort": 4,
    "stop": {"rounds": 6},
    "local": {"batch_size": 1},
    "device": {"name": "uniform", "low": 0.1, "high": 0.9},
    "engine": "sequential",
    "dtype": "float64",
}


def run(saved=None, **keys):
    """A run of 6 rounds with 12 clients of 2 samples, 4 a round, perhaps from a saved state on; the
    loop and the tables."""
    rows = Rows()
    loop = build({**BASE, **keys}, writer=rows)
    if saved is not None:
        loop.restore(saved)
    while not loop.done:
        loop.step()
    return loop, {
        table: [row for call in calls for row in _rows(call)]
        for table, calls in rows.tables.items()
    }


def _rows(columns):
    """One dict per row of columns, of which some are a single value; numbers as words, so that NaN
    equals NaN."""
    length = max(
        (len(value) for value in columns.values() if isinstance(value, np.ndarray | list)),
        default=1,
    )
    spread = {
        name: np.asarray(value).tolist()
        if isinstance(value, np.ndarray | list)
        else [value] * length
        for name, value in columns.items()
    }
    return [{name: _plain(values[i]) for name, values in spread.items()} for i in range(length)]


def _plain(value):
    return "nan" if isinstance(value, float) and np.isnan(value) else value


def test_claims_by_hand():
    """Clients 1 and 3 lie. Losses 1, 2, 3, 4: the honest say 1 and 3. Seconds 1, 2, 4, 8: the
    honest appeal is 1 and 1/4; three times the appeal of 2 s and 8 s are 2/3 s and 8/3 s; the best
    honest is 1 s."""
    said = Reports(FOUR, Outcome.ACCEPTED, compute_s=[1, 2, 4, 8], signals={"loss": [1, 2, 3, 4]})
    who = {"clients": (1, 3), "signals": ("loss", "durations")}
    for dishonest, losses, seconds in (
        (NoLies(), [1, 2, 3, 4], [1, 2, 4, 8]),
        (ConstantClaim(value=50.0, **who), [1, 50, 3, 50], [1, 0.02, 4, 0.02]),
        (ScaledClaim(factor=3.0, **who), [1, 6, 3, 12], [1, 2 / 3, 4, 8 / 3]),
        (CopiedBest(**who), [1, 3, 3, 3], [1, 1, 4, 1]),
        (Coalition(quantile=1.0, **who), [1, 3, 3, 4], [1, 1, 4, 1]),
        (ConstantClaim(value=50.0, start=2, **who), [1, 2, 3, 4], [1, 2, 4, 8]),
    ):
        found = heard(dishonest, said).reports
        assert found.signal("loss").tolist() == losses, dishonest
        assert found.compute_s.tolist() == pytest.approx(seconds), dishonest


def test_a_coalition_alone_remembers_what_the_honest_said():
    """Client 0 says 7 in one round; in the next only liars report. Before anybody honest spoke,
    they say the truth."""
    dishonest = CopiedBest(clients=(1, 3), signals=("loss",))
    alone = Reports([1, 3], Outcome.ACCEPTED, signals={"loss": [1.0, 2.0]})
    assert heard(dishonest, alone).reports.signal("loss").tolist() == [1, 2]
    first = heard(dishonest, Reports([0, 1], Outcome.ACCEPTED, signals={"loss": [7.0, 1.0]}))
    assert first.heard == {"reported loss": 7.0}
    assert heard(dishonest, alone, before=first.heard).reports.signal("loss").tolist() == [7, 7]


def test_vectors_and_histograms():
    """A gradient of length 5 at ten times its length; a histogram of 6 samples claimed as 60,
    evenly over 3 classes."""
    dishonest = ScaledClaim(clients=(1,), factor=10.0)
    probed = heard(
        dishonest, Reports([0, 1], Outcome.PROBED, signals={"gradient": [[3.0, 4.0], [3.0, 4.0]]})
    )
    assert probed.reports.signal("gradient").tolist() == [[3, 4], [30, 40]]
    assert [probed.rows[name].tolist() for name in ("claimed", "true")] == [[50], [5]]
    enrolled = heard(
        dishonest,
        Reports([0, 1], Outcome.ENROLLED, signals={"label_histogram": [[6, 0, 0], [6, 0, 0]]}),
        0,
    )
    assert enrolled.reports.signal("label_histogram").tolist() == [[6, 0, 0], [20, 20, 20]]
    uploaded = heard(
        dishonest, Reports([0, 1], Outcome.ACCEPTED, signals={"gradient": [[3.0, 4.0], [3.0, 4.0]]})
    )
    assert uploaded.reports.signal("gradient").tolist() == [[3, 4], [3, 4]], (
        "made by the server of the upload"
    )


def test_an_absent_number_stays_absent_and_a_measured_one_true():
    said = Reports(
        FOUR,
        Outcome.ACCEPTED,
        compute_s=1.0,
        signals={"loss": [1, np.nan, 1, np.nan], "update_norm": [1, 1, 1, 1]},
    )
    dishonest = ConstantClaim(clients=(1, 2))
    assert heard(dishonest, said).reports.signal("loss").tolist() == pytest.approx(
        [1, np.nan, 1e308, np.nan], nan_ok=True
    )
    found = heard(dishonest, said, measured=True)
    assert (
        found.reports.signal("update_norm").tolist() == [1] * 4 == found.reports.compute_s.tolist()
    )
    assert set(found.rows["signal"]) == {"loss"}


@pytest.mark.parametrize(
    ("dishonest", "claimed"),
    [
        (NoLies(), [10, 20, 30, 40]),
        (ConstantClaim(clients=(1,)), [10, 10**12, 30, 40]),
        (ConstantClaim(clients=(1,), value=-5.0), [10, 0, 30, 40]),
        (ConstantClaim(clients=(1,), value=np.inf), [10, 10**12, 30, 40]),
        (ScaledClaim(clients=(1,)), [10, 200, 30, 40]),
        (CopiedBest(clients=(1,)), [10, 40, 30, 40]),
        (ConstantClaim(clients=(1,), signals=("loss",)), [10, 20, 30, 40]),
    ],
)
def test_claimed_sizes(dishonest, claimed):
    assert claimed_examples(dishonest, KEY, EXAMPLES, 1, bounded=False).tolist() == claimed
    assert claimed_examples(dishonest, KEY, EXAMPLES, 1, bounded=True).tolist() == claimed, (
        "as at enrolment"
    )


def test_nobody_grows_after_enrolment_where_sizes_are_bounded():
    later = ScaledClaim(clients=(1,), start=3)
    assert claimed_examples(later, KEY, EXAMPLES, 3, bounded=False)[1] == 200
    assert claimed_examples(later, KEY, EXAMPLES, 3, bounded=True)[1] == 20


def test_a_claimed_size_is_a_weight_and_the_true_one_stays_in_the_table():
    """Every client has 2 samples; client 5 claims 6."""
    lie = {"name": "scaled", "clients": [5], "factor": 3.0, "signals": ["num_examples"]}
    _, tables = run(cohort=12, dishonest=lie)
    by_client = {row["client"]: row for row in tables["clients"]}
    assert [by_client[5][name] for name in ("num_examples", "weight")] == [2, 6]
    assert [by_client[4][name] for name in ("num_examples", "weight")] == [2, 2]
    _, guarded = run(cohort=12, dishonest=lie, defence="on")
    assert {row["weight"] for row in guarded["clients"]} == {2}


def test_lies_that_nobody_uses_change_nothing():
    """Uniform selection looks at no number: tables, time and model stay, beside the notes and the
    table of claims."""
    honest, tables = run()
    lying, other = run(
        dishonest={"name": "constant", "share": 0.5, "signals": ["loss", "norms", "durations"]}
    )
    assert (honest.state.server.model.x == lying.state.server.model.x).all()
    assert tables["clients"] == other["clients"]
    for one, two in zip(tables["rounds"], other["rounds"], strict=True):
        assert {**one, "notes": None} == {**two, "notes": None}
    assert "claims" not in tables
    told = {(row["signal"], row["occasion"]) for row in other["claims"]}
    assert {("loss", "reported"), ("compute_s", "reported")} <= told
    liars = {row["client"] for row in other["claims"]}
    chosen = sum(row["client"] in liars for row in other["clients"])
    assert 0 < chosen == sum(_liars(row["notes"]) for row in other["rounds"])


def _liars(notes):
    return json.loads(notes)["liars"]


def test_a_liar_owns_a_rule_and_the_defence_takes_it_back():
    """ActiveFL prefers high losses: one liar of 1e308 among 12 is chosen in all rounds after its
    first; with the defence at most 1 + 2 even shares, of 6 rounds with 4 of 12."""
    keys = {"selector": {"name": "active_fl", "alpha3": 0.0}, "stop": {"rounds": 12}}
    lie = {"name": "constant", "clients": [5], "signals": ["loss"]}
    owned = sum(_liars(row["notes"]) for row in run(**keys, dishonest=lie)[1]["rounds"])
    held = sum(
        _liars(row["notes"]) for row in run(**keys, dishonest=lie, defence="on")[1]["rounds"]
    )
    assert owned >= 11
    assert held <= 9 + 1


def test_kill_and_resume():
    """The state after 3 of 6 rounds, through bytes, goes on as if nothing had happened."""
    keys = {
        "selector": {"name": "oort", "exploration": 0.3, "exploration_min": 0.2},
        "defence": {"clip": 0.9, "cap": 1.5},
        "dishonest": {"name": "coalition", "share": 0.4},
    }
    whole, tables = run(**keys)
    half, first = run(**keys, stop={"rounds": 3})
    again, rest = run(codec.decode(codec.encode(half.save())), **keys)
    for table in ("rounds", "clients", "claims"):
        assert first[table] + rest[table] == tables[table]
    assert (again.state.server.model.x == whole.state.server.model.x).all()
