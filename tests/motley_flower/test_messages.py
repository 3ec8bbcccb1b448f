"""Messages and their replies: order, limits, lost nodes, replies that cannot be read."""

from __future__ import annotations

import signal
import threading

import pytest

from motley_flower.limited_grid import LimitedGrid
from motley_flower.messages import LinkError, Outbox, exchange, flower
from tests.motley_flower.fake_grid import FakeGrid, FakeNode, echo_nodes


def message(node, kind="query.x"):
    words = flower()
    return words.Message(words.RecordDict({"c": words.ConfigRecord({"n": node})}), node, kind)


def test_the_result_is_in_the_order_of_the_messages_and_names_lost_nodes():
    grid = FakeGrid(echo_nodes(0, 1, 2))
    grid.nodes[1007].delay_s = 5.0
    grid.events.append((0.5, lambda: grid.kill(1014)))
    answers = exchange(
        grid, [message(n) for n in (1014, 1007, 1000, 4)], limit_s=100, clock=grid.clock
    )
    assert [answer.node for answer in answers] == [1014, 1007, 1000, 4]
    assert [bool(answer.error) for answer in answers] == [True, False, False, True]
    assert answers[0].reply.metadata.src_node_id == 1  # the error reply does not name the node
    assert answers[1].arrived_s == pytest.approx(5.0, abs=0.3)
    assert answers[2].arrived_s == pytest.approx(1.0, abs=0.3)
    assert 45 < grid.now_s < 47


def test_an_exchange_ends_at_its_limit():
    grid = FakeGrid(echo_nodes(0) | {5: FakeNode(lambda message, context: None)})
    answers = exchange(grid, [message(1000), message(5)], limit_s=10, clock=grid.clock)
    assert answers[0].reply is not None
    assert answers[1].reply is None
    assert "10 s" in answers[1].error
    assert 10 <= grid.now_s < 11


def test_a_reply_that_cannot_be_read_affects_its_sender_alone():
    grid = FakeGrid(echo_nodes(0, 1))
    grid.nodes[1000].unreadable = True
    answers = exchange(grid, [message(1000), message(1007)], limit_s=10, clock=grid.clock)
    assert answers[0].unreadable
    assert answers[1].reply is not None


def test_a_broken_connection_of_the_server_is_raised():
    grid = FakeGrid(echo_nodes(0))
    outbox = Outbox(grid, grid.clock)
    outbox.send([message(1000)])
    grid.pull_messages = lambda ids: (_ for _ in ()).throw(ConnectionError("refused"))
    with pytest.raises(ConnectionError):
        outbox.collect()


def test_a_second_reply_to_a_message_is_ignored():
    grid = FakeGrid(echo_nodes(0))
    outbox = Outbox(grid, grid.clock)
    (answer,) = outbox.send([message(1000)])
    grid.sleep(2)
    (reply,) = grid.pull_messages(["message-0"])
    grid.pull_messages = lambda ids: [reply, reply]
    assert outbox.collect() == [answer]
    assert outbox.collect() == []


BANNER = """\
<class 'ray.exceptions.RayTaskError(ClientAppException)'>:\
<'\x1b[36mray::ClientAppActor.run()\x1b[39m (pid=7, ip=10.0.0.2)
  File "client_app.py", line 9, in train
    rate = message.content["config"]["lr"]
           ~~~~~~~~~~~~~~~~~~~~~~~~~^^^^^^
KeyError: 'lr'

The above exception was the direct cause of the following exception:

\x1b[36mray::ClientAppActor.run()\x1b[39m (pid=7, ip=10.0.0.2)
flwr.clientapp.client_app.ClientAppException:{" "}
Exception ClientAppException occurred. Message: 'lr''>""".replace('{" "}', " ")


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (
            1,
            "An exception was raised when attempting to load `ClientApp`",
            "its client app cannot be loaded",
        ),
        (
            2,
            "<class 'RuntimeError'>:<'no data'>",
            "its client app raised RuntimeError; the node's own log says more",
        ),
        (
            2,
            "<class 'motley.core.errors.StoreError'>:<'cannot write x'>",
            "its client app raised StoreError; the node's own log says more",
        ),
        (
            2,
            f"<class 'KeyError'>:<'{'x' * 400}'>",
            "its client app raised KeyError; the node's own",
        ),
        (
            2,
            f"<class 'ValueError'>:<'{'#' * 400}\nthe labels are missing\n\n'>",
            "its client app raised ValueError; the node's own log says more",
        ),
        (2, BANNER, "its client app raised KeyError; the node's own log says more"),
        (
            2,
            "<class 'KeyError'>:<'at app.py, line 9, in train'>",
            "its client app raised KeyError: at app.py, line 9, in train",
        ),
        (
            2,
            "<class 'ConfigError'>:<'Motley: the server runs another experiment'>",
            "its client app raised ConfigError: the server runs another experiment",
        ),
        (2, "in words\x1b[31m of its own\n", "its client app raised an exception; the node's own"),
        (77, "Ann Miller", "error 77"),
        (3, "Message Unavailable", "no answer before the message expired"),
        (5, "Node Unavailable", "its node is gone"),
        (8, "ClientApp stopped responding.", "the process of its client app was killed"),
        (0, None, "error 0"),
    ],
)
def test_flower_s_errors_in_plain_words(code, reason, said):
    words = flower()
    grid = FakeGrid(echo_nodes(0))
    grid.nodes[1000].app = lambda message, context: words.Message(
        words.Error(code, reason), reply_to=message
    )
    (answer,) = exchange(grid, [message(1000)], limit_s=10, clock=grid.clock)
    assert answer.error.startswith(said)
    assert len(answer.error) < 360
    assert answer.unanswered == (code == 3)


# ------------------------------------------------------------------------- a SuperLink that is gone


def test_a_call_that_never_returns_ends_at_its_limit():
    grid = FakeGrid(echo_nodes(0))
    returns = threading.Event()
    grid.pull_messages = lambda ids: returns.wait(60) and []
    with pytest.raises(
        LinkError,
        match=r"did not answer within 0.05 s; start it again with the --database of before",
    ):
        LimitedGrid(grid, 0.05).pull_messages(["a"])
    returns.set()


@pytest.mark.usefixtures("interruptible")
def test_a_signal_that_another_thread_raises_ends_a_call_that_hangs():
    """As Flower's own thread does when the SuperLink has ended; the call itself would go on."""
    grid = FakeGrid(echo_nodes(0))
    ends = threading.Event()
    returned = []
    grid.pull_messages = lambda ids: ends.wait(20) or returned.append(True) or []
    threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        LimitedGrid(grid, 60.0).pull_messages(["a"])
    assert not returned
    ends.set()


def test_a_run_that_was_stopped_says_so_and_is_no_client_s_fault():
    class RunNotRunningException(BaseException):
        """As Flower raises it."""

    def stopped(ids):
        raise RunNotRunningException

    grid = FakeGrid(echo_nodes(0))
    outbox = Outbox(LimitedGrid(grid, 5.0), grid.clock)
    outbox.send([message(1000)])
    grid.pull_messages = stopped
    with pytest.raises(
        LinkError,
        match=r"this run was stopped, by flwr stop or whoever .*; submit the app again to go on",
    ):
        outbox.collect()


def test_a_limited_grid_is_the_grid_otherwise():
    grid = FakeGrid(echo_nodes(0, 1))
    limited = LimitedGrid(grid, 5.0)
    assert limited.get_node_ids() == grid.get_node_ids()
    assert [node.node_id for node in limited.get_nodes()] == limited.get_node_ids()
    with pytest.raises(ZeroDivisionError):
        LimitedGrid(type("Broken", (), {"get_node_ids": lambda self: 1 / 0})(), 5.0).get_node_ids()
