"""FedCS: the checks of docs/methods/selectors.md#fedcs, worked by hand; the fast greedy against the
plain one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import Selector, build, fedcs
from motley.selectors.fedcs import FedCS, greedy

UPDATE = (10.0, 4.0, 7.0, 2.0)
UPLOAD = (3.0, 5.0, 2.0, 6.0)
DOWNLOAD = (1.0, 2.0, 1.0, 3.0)
IDS = np.array([4, 7, 11, 20])


def asked(rule, t=1, ids=IDS, m=3, download=DOWNLOAD, update=UPDATE, upload=UPLOAD, seed=0):
    selector = Selector(rule, seed)
    who = selector.probe(t, ids, m)
    at = np.searchsorted(ids, who)
    columns = {
        "download_estimate_s": download,
        "compute_estimate_s": update,
        "upload_estimate_s": upload,
    }
    signals = {name: np.asarray(column, float)[at] for name, column in columns.items()}
    selector.observe(t, Reports(who, Outcome.PROBED, signals=signals))
    return selector


def plain(download, update, upload, deadline, most, selection=0.0, aggregation=0.0):
    """The published greedy, word for word: every client is looked at, also after one that does not
    fit."""
    rest = list(range(len(download)))
    chosen = []
    theta = 0.0
    down = 0.0
    while rest and len(chosen) < most:
        x = min(
            rest,
            key=lambda k: (
                max(download[k], down) - down + upload[k] + max(0.0, update[k] - theta),
                k,
            ),
        )
        after = theta + upload[x] + max(0.0, update[x] - theta)
        if selection + max(download[x], down) + after + aggregation < deadline:
            chosen.append(x)
            theta = after
            down = max(download[x], down)
        rest.remove(x)
    return chosen, down + theta


@pytest.mark.parametrize(
    ("deadline", "ids", "total"), [(15, [11, 4], 14), (20, [11, 4], 14), (25, [11, 4, 7], 20)]
)
def test_checks_worked_by_hand(deadline, ids, total):
    """First sums d + u + ul = (14, 11, 10, 11): client 2, Theta = 9, T^D = 1. Then 0 + 3 + 1 = 4,
    1 + 5 = 6, 2 + 6 = 8: client 0, Theta = 13, total 14. Then 1 + 5 = 6: total 20, which is not
    below 20; then 1 + 6 = 7: 27."""
    cohort = asked(FedCS(deadline=float(deadline))).select(1, IDS, 3)
    assert cohort.ids.tolist() == ids
    assert cohort.notes["planned_s"] == total
    assert cohort.notes["abandoned"] == 0.0


def test_server_times_count():
    assert asked(FedCS(deadline=25.0, selection=3.0, aggregation=2.0)).select(
        1, IDS, 3
    ).ids.tolist() == [11, 4]


def test_nobody_fits_and_the_round_is_abandoned():
    """The quickest alone takes 10 s."""
    cohort = asked(FedCS(deadline=10.0)).select(1, IDS, 3)
    assert cohort.ids.tolist() == []
    assert cohort.notes["abandoned"] == 1.0
    assert cohort.notes["planned_s"] == 0.0


def test_at_most_m_unless_filled():
    assert asked(FedCS(deadline=99.0), m=1).select(1, IDS, 1).ids.tolist() == [11]
    assert asked(FedCS(deadline=99.0, fill=True), m=1).select(1, IDS, 1).ids.tolist() == [
        11,
        4,
        7,
        20,
    ]
    assert asked(FedCS(deadline=99.0, fill=True)).select(1, IDS, 0).ids.tolist() == []


def test_only_this_rounds_answers_of_the_available_count():
    selector = asked(FedCS(deadline=99.0))
    assert selector.select(1, IDS[[0, 3]], 3).ids.tolist() == [20, 4]
    assert selector.select(1, IDS[[0, 2]], 3).ids.tolist() == [11, 4]  # one is behind the last
    assert selector.select(2, IDS, 3).ids.tolist() == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0])
def test_a_client_without_an_estimate_is_not_chosen(bad):
    cohort = asked(FedCS(deadline=99.0), update=(10.0, 4.0, bad, 2.0)).select(1, IDS, 4)
    assert 11 not in cohort.ids
    assert len(cohort.ids) == 3


def test_share_asks_some():
    ids = np.arange(10)
    some = Selector(FedCS(share=0.25))
    assert [len(some.probe(t, ids, 2)) for t in (1, 2)] == [3, 3]  # ceil(2.5)
    assert len({tuple(some.probe(t, ids, 2).tolist()) for t in range(20)}) > 5
    assert not FedCS(share=0.25).deterministic
    assert FedCS().deterministic


def test_probing_costs_no_model():
    """System signals only: whoever is asked downloads nothing."""
    assert all(name.endswith("_estimate_s") for name in FedCS().needs().probed)


SECONDS = st.lists(st.tuples(*[st.integers(0, 12)] * 3), min_size=1, max_size=40)


@given(SECONDS, st.integers(1, 80), st.integers(1, 40))
@settings(max_examples=200)
def test_greedy_is_the_published_one(seconds, deadline, most):
    """Whole numbers: no rounding. Thinning out is switched on from the first client by few = 0."""
    download, update, upload = np.array(seconds, float).T
    expected = plain(download, update, upload, deadline, most)
    for few in (0, fedcs._FEW):
        before = fedcs._FEW
        fedcs._FEW = few
        try:
            taken, total = greedy(download, update, upload, float(deadline), most)
        finally:
            fedcs._FEW = before
        assert (taken.tolist(), total) == expected
    assert (np.diff(np.sort(taken)) > 0).all()
    assert total < deadline or not len(taken)


@pytest.mark.parametrize(
    "kind", ["uniform", "no_uplink_time", "one_uplink", "free_download", "fill"]
)
def test_greedy_among_many(kind):
    """8,000 clients, where thinning out matters; against passes over everybody."""
    rng = np.random.default_rng(5)
    n = 8000
    most = 30
    download = rng.uniform(0.5, 2, n)
    update = rng.uniform(10, 50, n)
    upload = rng.uniform(1, 5, n)
    if kind == "no_uplink_time":
        upload[:] = 0.0
    elif kind == "one_uplink":
        upload[:] = 1.7
    elif kind == "free_download":
        download[:] = 0.0
    elif kind == "fill":
        most = n
    taken, total = greedy(download, update, upload, 60.0, most)
    down = theta = 0.0
    for x in taken:  # each is the cheapest of those left when it was taken
        cost = np.maximum(download, down) + np.maximum(update, theta) + upload
        cost[taken[: np.flatnonzero(taken == x)[0]]] = np.inf
        assert cost[x] <= cost.min() * (1 + 1e-12)
        down = max(down, download[x])
        theta = max(theta, update[x]) + upload[x]
    assert total == down + theta
    cost = np.maximum(download, down) + np.maximum(update, theta) + upload
    cost[taken] = np.inf
    assert len(taken) == most or cost.min() >= 60.0


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"deadline": 0.0}, "got deadline = 0.0; expected a positive number of seconds"),
        ({"selection": -1.0}, "got selection = -1.0; expected at least 0 seconds"),
        ({"deadline": 5.0, "aggregation": 5.0}, "no time is left for any client"),
        ({"share": 0.0}, r"got share = 0.0; expected a share in \(0, 1\]"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "fedcs", **record})
