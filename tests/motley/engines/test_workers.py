"""Which worker gets which call, in what order answers come, and what happens when workers die: on
workers that a test controls."""

import threading
import time
from collections import Counter

import pytest

from motley.core.errors import EngineError
from motley.engines.workers import (
    MAX_DEATHS,
    Failed,
    RemoteWorker,
    WorkerCall,
    WorkerDied,
    WorkerPool,
)


class Scripted(RemoteWorker[str]):
    """Answers a call with its name, after ``delays[name]`` seconds; dies over it ``deaths[name]``
    times before."""

    def __init__(self, deaths=None, delays=None, error=None):
        self.deaths = Counter(deaths)
        self.delays = delays or {}
        self.error = error
        self.started = 0
        self.executed = []
        self.closed = threading.Event()

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


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    """Nobody looks up each second, nor pauses, as beside processes that take seconds."""
    monkeypatch.setattr("motley.engines.workers._LOOK_S", 0.05)
    monkeypatch.setattr("motley.engines.workers._PAUSE_S", 0.01)


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
@pytest.mark.parametrize("delays", [{}, {"a": 0.05}, {"b": 0.05, "g": 0.05}])
def test_answers_come_in_the_order_of_the_calls_whichever_worker_is_faster_or_dies(
    pool, deaths, delays
):
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
    assert _executed(worker, 4) == list("abcd")
    assert next(answers) == "b"
    assert _executed(worker, 5) == list("abcde")
    assert "".join(answers) == "cdefghij"


def _executed(worker, count):
    """What a worker has executed a moment after so many calls."""
    give_up = time.monotonic() + 5
    while len(worker.executed) < count and time.monotonic() < give_up:
        time.sleep(0.001)
    time.sleep(0.02)
    return worker.executed


def test_one_call_costs_only_so_many_workers(pool):
    worker = Scripted({"a": MAX_DEATHS})
    made = pool(worker)
    with pytest.raises(
        EngineError,
        match=r"3 workers died one after the other over client a \(the last one by a blow\)",
    ):
        list(made.run(calls("ab"), "x", 1))
    assert worker.started == 1 + MAX_DEATHS
    # there is a fresh worker for the next run
    assert list(made.run(calls("cd"), "x", 2)) == ["c", "d"]


def test_deaths_over_one_call_are_not_counted_for_another(pool):
    assert list(pool(Scripted({"a": 2, "b": 2})).run(calls("ab"), "x", 2)) == ["a", "b"]


def test_an_error_in_a_worker_is_the_callers_and_other_calls_are_forgotten(pool):
    made = pool(
        Scripted(error=EngineError("three is a crowd")),
        Scripted(error=EngineError("three is a crowd")),
    )
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


class Gone(Scripted):
    """Dies over its first call, as its machine is lost, and can be started again only when ``back``
    is set."""

    def __init__(self):
        super().__init__()
        self.back = threading.Event()

    def start(self):
        if self.started and not self.back.is_set():
            raise WorkerDied("with its node", counts=False)
        super().start()

    def execute(self, call, shared, silent=None):
        if not self.back.is_set():
            self.executed.append(call.arguments["name"])
            raise WorkerDied("with its node", counts=False)
        return super().execute(call, shared, silent)


def test_the_call_of_a_lost_worker_is_done_by_another_one_while_it_cannot_come_back(pool):
    lost = Gone()
    other = Scripted(delays=dict.fromkeys("abcd", 0.05))
    made = pool(lost, other)
    assert "".join(made.run(calls("abcd"), "x", 4)) == "abcd"
    assert lost.executed
    assert sorted(other.executed) == list("abcd")
    lost.back.set()
    other.delays = dict.fromkeys("efgh", 0.2)
    assert "".join(made.run(calls("efgh"), "x", 4)) == "efgh"
    assert lost.started == 2  # it came back and took a part


def test_losing_machines_does_not_count_as_deaths_over_a_call(pool):
    class Unlucky(Scripted):
        def execute(self, call, shared, silent=None):
            self.executed.append(call.arguments["name"])
            if len(self.executed) <= 2 * MAX_DEATHS:
                raise WorkerDied("with its node", counts=False)
            return call.arguments["name"]

    assert list(pool(Unlucky()).run(calls("a"), "x", 1)) == ["a"]


class Silent(Scripted):
    """Says over its first call that it seems to be gone, has ``then`` done, and answers, or dies,
    when ``wakes`` is set."""

    def __init__(self, dies, then):
        super().__init__()
        self.dies = dies
        self.then = then
        self.wakes = threading.Event()
        self.done = threading.Event()

    def execute(self, call, shared, silent=None):
        if self.executed:
            return super().execute(call, shared, silent)
        self.executed.append(call.arguments["name"])
        silent()
        silent()  # one more worker is enough
        self.then()
        self.wakes.wait(5)
        self.done.set()
        if self.dies:
            raise WorkerDied("by a blow")
        return "late"

    def close(self):
        self.wakes.set()
        super().close()


@pytest.mark.parametrize("dies", [True, False])
def test_the_call_of_a_silent_worker_is_done_once_more_and_the_first_answer_counts(pool, dies):
    other = Scripted(delays={"b": 0.05})
    silent = Silent(dies, lambda: made.add(other))
    made = pool(silent)
    assert list(made.run(calls("ab"), "x", 2)) == ["a", "b"]
    silent.wakes.set()
    assert silent.done.wait(5)
    assert list(made.run(calls("cd"), "x", 2)) == ["c", "d"]
    assert silent.executed[0] == "a"
    assert other.executed[:2] == ["a", "b"]


def test_a_worker_that_is_added_takes_calls_at_once(pool):
    """The first one, busy when the other is added, is so until that has done the rest."""
    done = threading.Event()

    class Slow(Scripted):
        def execute(self, call, shared, silent=None):
            made.add(added)
            done.wait(5)
            return super().execute(call, shared, silent)

    class Added(Scripted):
        def execute(self, call, shared, silent=None):
            answer = super().execute(call, shared, silent)
            if self.executed == ["b", "c"]:
                done.set()
            return answer

    slow = Slow()
    added = Added()
    made = pool(slow)
    assert list(made.run(calls("abc"), "x", 3)) == ["a", "b", "c"]
    assert (slow.executed, added.executed) == (["a"], ["b", "c"])


def test_what_waits_is_told_for_how_long_no_worker_has_been_ready():
    heard = []
    never = threading.Event()

    class Unplaced(Scripted):
        def start(self):
            never.wait(5)
            raise WorkerDied("with its engine", counts=False)

        def close(self):
            never.set()
            super().close()

    def on_wait(without_s):
        heard.append(without_s)
        if without_s > 0.05:
            raise EngineError("there is no room")

    made = WorkerPool([Unplaced()], lambda: None, on_wait)
    with pytest.raises(EngineError, match="there is no room"):
        list(made.run(calls("a"), "x", 1))
    made.close()
    assert heard[-1] > 0.05


def test_a_worker_that_dies_whenever_it_is_started_ends_the_run(pool):
    class Stillborn(Scripted):
        def start(self):
            super().start()
            raise WorkerDied("as ModuleNotFoundError")

    worker = Stillborn()
    made = pool(worker)
    said = r"a worker cannot be started: 3 died one after the other \(as ModuleNotFoundError\)"
    for _ in range(2):
        with pytest.raises(EngineError, match=said):
            list(made.run(calls("a"), "x", 1))
    assert worker.started == MAX_DEATHS
