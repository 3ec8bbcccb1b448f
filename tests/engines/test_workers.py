"""Which worker gets which call, in what order answers come, and what happens when workers die: on workers that a test controls."""

import threading
import time
from collections import Counter

import pytest

from motley.core.errors import EngineError
from motley.engines.workers import MAX_DEATHS, Failed, RemoteWorker, WorkerCall, WorkerDied, WorkerPool


class Scripted(RemoteWorker[str]):
    """Answers a call with its name, after ``delays[name]`` seconds; dies over it ``deaths[name]`` times before."""

    def __init__(self, deaths=None, delays=None, error=None):
        self.deaths, self.delays, self.error = Counter(deaths), delays or {}, error
        self.started, self.executed, self.closed = 0, [], threading.Event()

    def start(self):
        if self.closed.is_set():
            raise WorkerDied("with its engine")
        self.started += 1

    def execute(self, call, shared, silent=None):
        name = call.arguments["name"]
        self.executed.append(name)
        if self.closed.wait(self.delays.get(name, 0)):
            raise WorkerDied("by a blow")
        if self.deaths[name]:
            self.deaths[name] -= 1
            raise WorkerDied("by a blow")
        return Failed(self.error) if name == "x" else name

    def close(self):
        self.closed.set()


def calls(names):
    return [WorkerCall("train", {"name": name}, f"client {name}") for name in names]


@pytest.fixture
def pool():
    """Pools that are closed in the end."""
    made = []

    def make(*workers):
        made.append(WorkerPool(workers, lambda: None))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("deaths", [{}, {"a": 1, "c": 2}, {"h": 2}])
@pytest.mark.parametrize("delays", [{}, {"a": 0.2}, {"b": 0.1, "g": 0.1}])
def test_answers_come_in_the_order_of_the_calls_whichever_worker_is_faster_or_dies(pool, deaths, delays):
    workers = [Scripted(deaths, delays), Scripted({}, delays)]
    assert "".join(pool(*workers).run(calls("abcdefgh"), "x", 8)) == "abcdefgh"


def test_no_worker_gets_a_second_call_while_another_has_none(pool):
    workers = [Scripted(delays=dict.fromkeys("abc", 0.1)) for _ in range(3)]
    assert "".join(pool(*workers).run(calls("abc"), "x", 3)) == "abc"
    assert sorted(worker.executed for worker in workers) == [["a"], ["b"], ["c"]]


def test_answers_that_nobody_took_are_bounded(pool):
    """Four calls are given out before the first answer is taken, and one more for each that is."""
    worker = Scripted()
    answers = pool(worker).run(calls("abcdefghij"), "x", 4)
    assert next(answers) == "a"
    time.sleep(0.1)
    assert worker.executed == list("abcd")
    assert next(answers) == "b"
    time.sleep(0.1)
    assert worker.executed == list("abcde")
    assert "".join(answers) == "cdefghij"


def test_one_call_costs_only_so_many_workers(pool):
    worker = Scripted({"a": MAX_DEATHS})
    made = pool(worker)
    with pytest.raises(EngineError, match=r"3 workers died one after the other over client a \(the last one by a blow\)"):
        list(made.run(calls("ab"), "x", 1))
    assert worker.started == 1 + MAX_DEATHS
    assert list(made.run(calls("cd"), "x", 2)) == ["c", "d"]  # there is a fresh worker for the next run


def test_deaths_over_one_call_are_not_counted_for_another(pool):
    assert list(pool(Scripted({"a": 2, "b": 2})).run(calls("ab"), "x", 2)) == ["a", "b"]


def test_an_error_in_a_worker_is_the_callers_and_other_calls_are_forgotten(pool):
    made = pool(Scripted(error=EngineError("three is a crowd")), Scripted(error=EngineError("three is a crowd")))
    with pytest.raises(EngineError, match="three is a crowd"):
        list(made.run(calls("axc"), "x", 3))
    assert list(made.run(calls("de"), "y", 2)) == ["d", "e"]


def test_a_run_that_was_left_gives_nothing_to_the_next_one(pool):
    made = pool(Scripted(), Scripted())
    assert next(made.run(calls("abcd"), "x", 4)) == "a"
    assert list(made.run(calls("efgh"), "y", 4)) == ["e", "f", "g", "h"]
    assert list(made.run([], "z", 1)) == []


def test_closing_ends_a_call_under_way(pool):
    made = pool(Scripted(delays={"a": 60}))
    threading.Timer(0.1, made.close).start()
    with pytest.raises(WorkerDied):
        next(made.run(calls("a"), "x", 1))
