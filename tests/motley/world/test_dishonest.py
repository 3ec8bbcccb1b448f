"""Clients that lie: who, when, about what, and what they claim."""

import numpy as np
import pytest

from motley.core.claims import TOPICS
from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.world import DISHONEST
from motley.world.dishonest import Coalition, ConstantClaim, CopiedBest, NoLies, ScaledClaim
from motley.world.failures import Corrupted

KEY = Streams(0).key("fail")
MANY = np.arange(20_000)


def test_nobody_lies():
    assert not NoLies().liars(KEY, MANY, 1).any()
    assert not NoLies().topics()
    assert DISHONEST.build("none") == NoLies()


def test_who_lies_is_a_function_of_the_key_and_the_client():
    """In any company, in any round; a share of 20,000 within four standard errors of 0.3."""
    liars = ConstantClaim(share=0.3)
    first = liars.liars(KEY, MANY, 1)
    assert np.array_equal(first, liars.liars(KEY, MANY, 9))
    assert np.array_equal(liars.liars(KEY, np.array([9, 4]), 2), first[[9, 4]])
    assert abs(first.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(MANY))
    assert not np.array_equal(first, liars.liars(Streams(1).key("fail"), MANY, 1))


def test_the_same_clients_lie_and_corrupt_their_uploads():
    corrupted = Corrupted(share=0.3).corrupted(KEY, MANY)
    assert np.array_equal(Coalition(share=0.3).liars(KEY, MANY, 1), corrupted)
    assert not (Coalition(share=0.1).liars(KEY, MANY, 1) & ~corrupted).any()


def test_a_list_of_clients_and_a_first_round():
    liars = ScaledClaim(clients=(1, 3), start=5)
    assert [liars.liars(KEY, np.arange(4), t).tolist() for t in (0, 4, 5)] == [
        [False] * 4,
        [False] * 4,
        [False, True, False, True],
    ]
    # round 0: enrolment
    assert ScaledClaim(clients=(1,)).liars(KEY, np.arange(2), 0).tolist() == [False, True]


def test_strategies_worked_by_hand():
    """Liars whose true numbers are 1 and 9 hear 2, 4, 8: the most is 8; the 0.5 quantile is entry
    int(0.5 * 2) = 1, so 4."""
    true = np.array([1.0, 9.0])
    heard = np.array([8.0, 2.0, 4.0])
    for strategy, claims in (
        (ConstantClaim(value=1e308), [1e308, 1e308]),
        (ScaledClaim(factor=3.0), [3.0, 27.0]),
        (CopiedBest(), [8.0, 8.0]),
        (Coalition(quantile=0.5), [4.0, 9.0]),
        (Coalition(quantile=1.0), [8.0, 9.0]),
    ):
        assert strategy.claims(true, strategy.goal(heard)).tolist() == claims
    for strategy in (CopiedBest(), Coalition()):
        assert strategy.claims(true, np.nan).tolist() == true.tolist(), (
            "nothing was heard yet: the truth"
        )


def test_topics():
    assert ConstantClaim().topics() == set(TOPICS)
    assert ConstantClaim(signals=("loss", "norms")).topics() == {"loss", "norms"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"name": "constant", "share": 2.0}, "dishonest: got share = 2.0"),
        ({"name": "constant", "start": 0}, "dishonest: got start = 0; expected a round, from 1"),
        (
            {"name": "constant", "signals": []},
            "dishonest: got signals = \\[\\]; name what clients lie about",
        ),
        ({"name": "constant", "signals": ["los"]}, "did you mean 'loss'"),
        ({"name": "constant", "clients": [-1]}, "dishonest: got clients = \\[-1\\]"),
        (
            {"name": "constant", "value": float("nan")},
            "dishonest.value: got nan; expected a number",
        ),
        ({"name": "scaled", "factor": 0.0}, "dishonest: got factor = 0.0"),
        (
            {"name": "coalition", "quantile": 0.0},
            "dishonest: got quantile = 0.0; expected a share in \\(0, 1\\]",
        ),
        ({"name": "coalitions"}, "did you mean 'coalition'"),
    ],
)
def test_bad_input(record, message):
    with pytest.raises(ConfigError, match=message):
        DISHONEST.build(record)
