"""The ledger: conservation, two accounts, bounded memory, and saving."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.core.codec import decode, encode
from motley.core.errors import ContractError
from motley.core.saved_state import restore, save
from motley.transport import ALLOCATORS, BUDGETS, COMPRESSORS, FEEDBACKS
from motley.transport.allocators.allocator import Allocator
from motley.transport.budgets import Budget
from motley.transport.compressors.compressor import Compressor
from motley.transport.feedback import Feedback
from motley.transport.ledger import DIRECTIONS, KINDS, Ledger, message_bits, paper_bits

POSTS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.sampled_from(DIRECTIONS),
        st.lists(st.integers(0, 10**12), max_size=5),
        st.integers(0, 2),
    ),
    max_size=12,
)


def booked(posts):
    """A ledger with these posts; every post may turn to a later round."""
    ledger = Ledger()
    now = 0
    for kind, direction, bits, later in posts:
        now += later
        ledger.post(kind, direction, np.arange(len(bits)), bits, now)
    return ledger


@given(POSTS)
def test_nothing_is_lost_and_nothing_added(posts):
    ledger = booked(posts)
    for kind in KINDS:
        for direction in DIRECTIONS:
            expected = sum(sum(bits) for k, d, bits, _ in posts if (k, d) == (kind, direction))
            assert ledger.total(kind, direction) == expected
    assert ledger.total_bits == sum(sum(bits) for _, _, bits, _ in posts)
    assert ledger.total("model") + ledger.total("upload") == sum(
        sum(b) for k, _, b, _ in posts if k in ("model", "upload")
    )
    assert ledger.paper_bits == sum(
        sum(bits) for k, d, bits, _ in posts if (k, d) == ("upload", "up")
    )
    rounds = np.cumsum([later for *_, later in posts])
    last = [(d, bits) for (_, d, bits, _), r in zip(posts, rounds, strict=True) if r == rounds[-1]]
    assert ledger.current() == sum(sum(bits) for _, bits in last)
    for direction in DIRECTIONS:
        assert ledger.of(np.arange(5), direction).sum() == ledger.current(direction=direction)


@given(POSTS)
def test_it_goes_on_after_saving(posts):
    ledger = booked(posts)
    again = Ledger()
    restore(again, decode(encode(save(ledger))))
    for book in (ledger, again):
        book.post("upload", "up", [1, 2], [5, 7], ledger.round)
    assert encode(save(again)) == encode(save(ledger))
    assert again.of([2, 1, 9], "up").tolist() == ledger.of([2, 1, 9], "up").tolist()


def test_the_papers_count_updates_alone():
    ledger = Ledger()
    ledger.post("model", "down", [0, 1], 1000, 1)
    ledger.post("probe", "up", [0, 1], 32, 1)
    ledger.post("upload", "up", [0, 1], 1000, 1, paper_bits=[640, 320])
    assert (ledger.paper_bits, ledger.round_paper_bits, ledger.total_bits) == (960, 960, 4064)
    ledger.post("enrol", "up", [0], 320, 2)
    assert (ledger.paper_bits, ledger.round_paper_bits, ledger.current()) == (960, 0, 320)


def test_memory_does_not_grow_with_rounds():
    ledger = Ledger()
    sizes = set()
    for now in range(1, 50):
        ledger.post("model", "down", np.arange(10), 1000, now)
        ledger.post("upload", "up", np.arange(10), 1000, now)
        sizes.add((len(save(ledger)["_tail"]), len(save(ledger)["_totals"])))
    assert sizes == {(2, len(KINDS) * len(DIRECTIONS))}


def test_the_caller_keeps_his_arrays():
    ledger = Ledger()
    bits = np.array([5, 7])
    ledger.post("upload", "up", [1, 2], bits, 1)
    bits[:] = 0
    assert ledger.of([1, 2], "up").tolist() == [5, 7]


def test_bits_of_a_message():
    """Real numbers count 32 bits in any dtype, counters 64, flags 8: 32 * (6 + 2 + 4) + 64 * 3 +
    8 * 2 = 592."""
    message = {
        "x": torch.zeros(6, dtype=torch.float64),
        "buffers": torch.zeros(2),
        "half": torch.zeros(2, 2, dtype=torch.float16),
        "counters": torch.zeros(3, dtype=torch.int64),
        "flags": torch.zeros(2, dtype=torch.bool),
    }
    assert message_bits(message) == 592
    assert paper_bits(message) == 384
    assert message_bits({}) == 0


def test_a_model_of_the_reference():
    """0.5: 4 N + 4 |B_f| + 8 |B_i| bytes."""
    message = {
        "x": torch.zeros(100),
        "buffers": torch.zeros(10),
        "counters": torch.zeros(1, dtype=torch.int64),
    }
    assert message_bits(message) == 8 * (400 + 40 + 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("modle", "down", [0], 1, 1), "got kind 'modle' .did you mean 'model'"),
        (("model", "sideways", [0], 1, 1), "got direction 'sideways'; expected one of: down, up"),
        (("model", "down", [0], -1, 1), "got bits -1; expected whole numbers of at least 0"),
        (("model", "down", [0], 1.5, 1), "got bits 1.5"),
        (("model", "down", [0], float("nan"), 1), "got bits nan"),
        (("model", "down", [0, 1], [1, 2, 3], 1), r"got bits of shape \[3\] for 2 clients"),
        (("model", "down", [0], 8, 1, 8), "papers' account counts uploads only"),
        (("model", "down", [0], 8, 0), "a post of round 0 after one of round 1"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(arguments, message):
    ledger = Ledger()
    ledger.post("model", "down", [0], 8, 1)
    before = save(ledger)
    with pytest.raises(ContractError, match=message):
        ledger.post(*arguments)
    assert encode(save(ledger)) == encode(before)


def test_nobody():
    ledger = Ledger()
    ledger.post("model", "down", np.zeros(0, np.int64), 8, 1)
    assert ledger.total_bits == 0
    assert ledger.of([], "down").tolist() == []


def test_catalogues():
    for names, base in (
        (COMPRESSORS, Compressor),
        (FEEDBACKS, Feedback),
        (ALLOCATORS, Allocator),
        (BUDGETS, Budget),
    ):
        assert all(isinstance(names.build(name), base) for name in names.names())
    assert COMPRESSORS.names() == [
        "fedpaq",
        "identity",
        "qsgd",
        "randomk",
        "signs",
        "tensor_drop",
        "terngrad",
        "topk",
    ]
    assert ALLOCATORS.names() == [
        "by_score",
        "fedcg_lp",
        "flexcom",
        "from_selector",
        "optrate",
        "uniform",
    ]
