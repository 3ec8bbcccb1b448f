"""Who gets which order, in what order answers come, and what happens when workers die: on workers that a test moves by hand."""

from collections import deque

import pytest

from motley.core.errors import EngineError
from motley.engines.worker_pool import LIVES, Died, Failed, Order, WorkerPool, WorkerTransport


class Hands(WorkerTransport[str]):
    """Workers whose answers are their orders' names; ``moves`` says who answers (``2``) or dies (``"2"``) next, else the first
    that has something to do."""

    def __init__(self, moves=()):
        self.moves, self.log, self.desks, self.sent = deque(moves), [], {}, 0

    def start(self, worker):
        self.log.append(f"start {worker}")
        self.desks[worker] = deque()

    def seen(self):
        raise NotImplementedError

    def post(self, what):
        self.log.append(f"post {what}")
        return what

    def send(self, worker, order, posted):
        self.desks[worker].append(order.own[0])
        self.sent += 1

    def wait(self):
        move = self.moves.popleft() if self.moves else min(w for w, desk in self.desks.items() if desk)
        if isinstance(move, str):
            return int(move), Died("by a blow")
        done = self.desks[move].popleft()
        return move, Failed(done) if isinstance(done, Exception) else done

    def close(self):
        self.log.append("close")


def orders(names):
    return [Order("train", (name,), f"client {name}") for name in names]


@pytest.mark.parametrize("moves", [(), (1, 1, 0), ("0", 1, "1", "0"), (1, "1", "1", 0)])
def test_answers_come_in_the_order_of_the_orders_whoever_is_faster_or_dies(moves):
    hands = Hands(moves)
    assert "".join(WorkerPool(hands, 2).run(orders("abcdefgh"), "x", 8)) == "abcdefgh"
    assert hands.log.count("post x") == 1


def test_nobody_sits_on_two_orders_while_another_has_none():
    hands = Hands()
    crew = WorkerPool(hands, 3)
    it = crew.run(orders("abcd"), "x", 4)
    assert next(it) == "a"
    assert hands.sent == 3
    assert [list(hands.desks[w]) for w in range(3)] == [[], ["b"], ["c"]]
    assert list(it) == ["b", "c", "d"]


def test_results_that_wait_are_bounded():
    """Worker 0 is slow: before its first answer was handed on, four orders were given out and no more."""
    hands = Hands([1, 1, 0])
    it = WorkerPool(hands, 2).run(orders("abcdefghij"), "x", 4)
    assert next(it) == "a"
    assert hands.sent == 4
    assert "".join(it) == "bcdefghij"


def test_the_order_in_work_costs_only_so_many_workers():
    hands = Hands(["0"] * LIVES)
    crew = WorkerPool(hands, 1)
    with pytest.raises(EngineError, match="3 workers died one after the other over client a"):
        list(crew.run(orders("ab"), "x", 2))
    assert hands.log.count("start 0") == 1 + LIVES
    assert list(crew.run(orders("cd"), "x", 2)) == ["c", "d"]  # there is a fresh one for whoever tries again


def test_the_order_that_only_waited_is_not_to_blame():
    """Two deaths over a, two over b: nobody reached three."""
    hands = Hands(["0", "0", 0, "0", "0", 0])
    assert list(WorkerPool(hands, 1).run(orders("ab"), "x", 2)) == ["a", "b"]


def test_an_error_in_a_worker_is_the_callers_and_what_else_was_under_way_is_forgotten():
    hands = Hands([1])
    crew = WorkerPool(hands, 2)
    with pytest.raises(EngineError, match="three is a crowd"):
        list(crew.run([*orders("a"), Order("train", (EngineError("three is a crowd"),), ""), *orders("c")], "x", 3))
    assert list(crew.run(orders("de"), "y", 2)) == ["d", "e"]


def test_whoever_stops_listening_gets_nothing_old_later():
    crew = WorkerPool(Hands(), 2)
    assert next(crew.run(orders("abcd"), "x", 4)) == "a"
    assert list(crew.run(orders("efgh"), "y", 4)) == ["e", "f", "g", "h"]
    assert list(crew.run([], "z", 1)) == []


def test_a_death_over_forgotten_orders_harms_nobody():
    hands = Hands([0])
    crew = WorkerPool(hands, 2)
    assert next(crew.run(orders("abcd"), "x", 4)) == "a"
    hands.moves.extend(["0", "1"])
    assert list(crew.run(orders("ef"), "y", 2)) == ["e", "f"]
