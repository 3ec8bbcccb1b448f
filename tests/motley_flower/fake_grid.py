"""A grid without a network: nodes are functions in this process, time is a number that only waiting
moves.

A node is killed as with ``kill -9``: it is listed, and may be sent messages, until its heartbeat is
missed; then what was sent to it is answered with an error that names node 1, as Flower's SuperLink
does; so is what has outlived its time to live. It may come back under its old id or a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from motley_flower.messages import WallClock, flower

__all__ = ["FakeGrid", "FakeNode", "echo", "echo_nodes"]


@dataclass
class FakeNode:
    """``app(message, context)`` gives a reply, raises (an error reply), or returns None: nothing,
    ever.

    ``delay_s``: how long an answer takes, or a function of the message. ``unreadable``: pulling its
    answer raises, as objects that cannot be inflated do.
    """

    app: Callable[[Any, Any], Any]
    config: dict[str, Any] = field(default_factory=dict)
    delay_s: float | Callable[[Any], float] = 1.0
    unreadable: bool = False
    killed_at: float | None = None
    activated_at: float = 0.0
    public_key: bytes = b""


class FakeGrid:
    """Grid of :class:`FakeNode`, by node id.

    ``clock`` goes to the adapter: its ``sleep`` moves time. ``events``: (seconds, function) pairs
    that happen when time passes them.
    """

    def __init__(self, nodes: dict[int, FakeNode] | None = None, heartbeat_s: float = 45.0) -> None:
        self.nodes = dict(nodes or {})
        self.heartbeat_s = heartbeat_s
        self.now_s = 0.0
        self.clock = WallClock(lambda: self.now_s, self.sleep)
        self.contexts: dict[int, Any] = {}
        self.run_config: dict[str, Any] = {}
        self.sent: list[Any] = []
        self.waiting: dict[str, tuple[float, Callable[[], Any]]] = {}
        self.deadlines: dict[str, float] = {}
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.slept = 0

    # -------------------------------------------------------------------------- what tests do to it

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        if self.slept > 100_000:
            raise AssertionError("somebody waits without a limit")
        self.now_s += seconds
        for event in [event for event in self.events if event[0] <= self.now_s]:
            self.events.remove(event)
            event[1]()

    def kill(self, node: int) -> None:
        """What it has not answered yet is lost."""
        self.nodes[node].killed_at = self.now_s
        for name, (at, _) in list(self.waiting.items()):
            message = self._message(name)
            if message.metadata.dst_node_id == node and at > self.now_s:
                self.waiting[name] = (
                    self.now_s + self.heartbeat_s,
                    lambda m=message: self._error(m, 5, "Node Unavailable", 1),
                )

    def revive(self, node: int, new_id: int | None = None) -> None:
        back = self.nodes[node]
        if new_id is None:
            back.killed_at = None
        else:
            self.nodes[new_id] = FakeNode(
                back.app, back.config, back.delay_s, back.unreadable, public_key=back.public_key
            )

    def restart(self, node: int, config: dict[str, Any] | None = None) -> None:
        """At once, under its id of before (the same key); what it was sent and has not answered is
        lost."""
        back = self.nodes[node]
        self.nodes[node] = FakeNode(
            back.app,
            config or back.config,
            back.delay_s,
            back.unreadable,
            activated_at=self.now_s,
            public_key=back.public_key,
        )
        self.contexts.pop(node, None)
        for name, (at, _) in list(self.waiting.items()):
            if self._message(name).metadata.dst_node_id == node and at > self.now_s:
                self.waiting[name] = at, lambda: None

    def _message(self, name: str) -> Any:
        return next(message for message in self.sent if message.metadata.message_id == name)

    def connected(self, node: int) -> bool:
        killed = self.nodes[node].killed_at
        return killed is None or self.now_s < killed + self.heartbeat_s

    # -------------------------------------------------------------------------------- Flower's grid

    def get_node_ids(self) -> list[int]:
        return [node for node in reversed(self.nodes) if self.connected(node)]  # in no useful order

    def get_nodes(self) -> list[Any]:
        return [
            SimpleNamespace(
                node_id=k,
                last_activated_at=str(self.nodes[k].activated_at),
                public_key=self.nodes[k].public_key,
            )
            for k in self.get_node_ids()
        ]

    def push_messages(self, messages: Any) -> list[str]:
        ids = []
        for message in messages:
            name = f"message-{len(self.sent)}"
            message.metadata.__dict__[
                "_message_id" if "_message_id" in message.metadata.__dict__ else "message_id"
            ] = name
            self.sent.append(message)
            node = message.metadata.dst_node_id
            if node not in self.nodes or not self.connected(node):
                ids.append("")
                continue
            ids.append(name)
            self.deadlines[name] = self.now_s + message.metadata.ttl
            target = self.nodes[node]
            if target.killed_at is not None:
                due = target.killed_at + self.heartbeat_s
                self.waiting[name] = (
                    due,
                    lambda m=message: self._error(m, 5, "Node Unavailable", 1),
                )
            else:
                delay_s = target.delay_s
                self.waiting[name] = (
                    self.now_s + (delay_s(message) if callable(delay_s) else delay_s),
                    lambda m=message, t=target: self._run(m, t),
                )
        return ids

    def pull_messages(self, message_ids: Any) -> list[Any]:
        replies = []
        for name in message_ids:
            if name not in self.deadlines:
                continue
            if name in self.waiting and self.waiting[name][0] <= self.now_s:
                reply = self.waiting.pop(name)[1]()
            elif self.deadlines[name] <= self.now_s:
                reply = self._error(self._message(name), 3, "Message Unavailable", 1)
            else:
                continue
            if reply is not None:
                del self.deadlines[name]
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
        ids = [name for name in self.push_messages(messages) if name]
        end_s = self.now_s + (float("inf") if timeout is None else timeout)
        replies = []
        while ids and self.now_s < end_s:
            came = self.pull_messages(ids)
            replies += came
            ids = [
                name
                for name in ids
                if name not in {reply.metadata.reply_to_message_id for reply in came}
            ]
            if ids:
                self.sleep(0.1)
        return replies

    def _run(self, message: Any, node: FakeNode) -> Any:
        app = flower()
        at = message.metadata.dst_node_id
        if at not in self.contexts:
            self.contexts[at] = app.Context(
                run_id=1,
                node_id=at,
                node_config=dict(node.config),
                state=app.RecordDict(),
                run_config=self.run_config,
                series_id=1,
            )
        try:
            reply = node.app(message, self.contexts[at])
        except Exception as problem:
            return self._error(message, 2, f"{type(problem)}:<'{problem}'>")  # as Flower says it
        if node.unreadable:
            raise ValueError("Unexpected set of `children`.")
        return reply

    def _error(self, message: Any, code: int, reason: str, src: int | None = None) -> Any:
        app = flower()
        reply = app.Message(app.Error(code, reason), reply_to=message)
        if src is not None:
            reply.metadata.__dict__[
                "_src_node_id" if "_src_node_id" in reply.metadata.__dict__ else "src_node_id"
            ] = src
        return reply


def echo(message: Any, context: Any) -> Any:
    """Answers enrolment, and anything else with what it was sent."""
    app = flower()
    if message.metadata.message_type == "query.motley_enrol":
        told = {
            "partition-id": context.node_config["partition-id"],
            "num-examples": context.node_config.get("examples", 10),
        }
        return app.Message(app.RecordDict({"told": app.MetricRecord(told)}), reply_to=message)
    return app.Message(message.content, reply_to=message)


def echo_nodes(*clients: int, **options: Any) -> dict[int, FakeNode]:
    """Node 1000 + 7 k is client k, whose app is :func:`echo`."""
    return {
        1000 + 7 * client: FakeNode(
            echo, {"partition-id": client, "examples": 10 * client}, **options
        )
        for client in clients
    }
