"""Hostile messages, starts, deaths, restarts and claims of identity in random order, against a
strategy and ten honest clients.

Two hostile clients are in the file of clients; nodes that are in none start, claim to be somebody,
die and come back. The server is killed half way and goes on in its folder.
``python -m pytest -m slow -s tests/motley_flower/test_campaign_strategy.py`` is the long form, and
prints its figures."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import psutil
import pytest

import motley
from motley.selectors import build
from motley_flower.messages import flower
from motley_flower.strategy.strategy_state import MOST_REFUSALS
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import model, reply, weights
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.keys import client_file, public_key
from tests.motley_flower.strategy.test_refused_steps import fair, with_loss
from tests.motley_flower.strategy.test_replies import GARBAGE, fine, metrics

HONEST = tuple(range(10))
HOSTILE = (10, 11)
TIMEOUT_S = 20.0
QUERY_S = 10.0
WAIT_S = 10.0
LIMIT_S = WAIT_S + QUERY_S + 2 * TIMEOUT_S + 3.0
"""Of a round: for clients, for a probe, for training and for an evaluation, each with its polls."""
A_ROUND = 8
"""Acts of nodes in a round, beside what the hostile clients answer."""
QUIET = 4
"""Rounds at the end in which no node acts any more, so that the server has looked at all of
them."""
SEEN_S = 6.0
"""Seconds that an unknown node lives at least: between two looks of the server nobody can notice
it."""
MOST_GROWN = 100e6
"""Bytes that the server and all clients, in one process, may grow by."""
EVIL = "loss\n2026-11-25 ERROR all is lost\x1b[2J\u202e"

UPLOADS = {
    # it enrols with more
    **{name: make for name, make in GARBAGE.items() if name != "more than was enrolled"},
    "an array with a line of the log": lambda: {
        "arrays": model(**{EVIL: np.ones(3, np.float32)}),
        "metrics": metrics(),
    },
    "a number with a line of the log": lambda: {
        "arrays": fine(),
        "metrics": metrics(**{EVIL: 1.0}),
    },
    "a name of a megabyte": lambda: {"arrays": fine(), "metrics": metrics(**{"k" * 10**6: 1.0})},
}
"""What a hostile client sends in place of its upload: each is rejected."""
ENROLMENTS = {
    "a histogram of 3 classes": (
        {"label_histogram": [1, 2, 3]},
        "refused",
        "has labels of 3 classes; expected 10",
    ),
    "no histogram": ({"label_histogram": None}, "refused", "label_histogram"),
    "-3 samples": ({"num-examples": -3}, "refused", "expected a whole number"),
    "2^53 samples": ({"num-examples": 2**53}, "capped", "says that it has 9.0072e+15 samples"),
    "a name with a line of the log": ({EVIL: 1.0}, "refused", "it has the name"),
    "an app that raises": (None, "refused", "its client app raised RuntimeError"),
    "silence": (None, "unanswered", "no answer"),
}
"""What a hostile client answers at enrolment, the incident, and what it says."""


class KilledError(BaseException):
    """As if the server's process were gone."""


class Campaign:
    """One deployment under attack.

    Attributes
    ----------
    acts: what was done, by kind. expected: (client, event) -> how many incidents there must be.
    said: (client, event, words) of which each must be an incident. began: seconds at which each
    round ended. grown: bytes by which the process has grown since round 2.
    """

    def __init__(self, folder, seed, acts, hostile=True, storm=False):
        folder.mkdir()
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self.hostile = hostile
        self.storm = storm
        self.rounds = acts // (A_ROUND + 1) + QUIET
        self.acts = Counter()
        self.expected = Counter()
        self.said = set()
        self.ended = []
        self.grown = 0
        self._first = None
        self._next = 5000
        self._spoilt = 0
        self._enrols = dict.fromkeys(HOSTILE, "2^53 samples")
        self._since = {}
        self._killed = not hostile
        honest = {
            100 + k: FakeNode(with_loss("own"), {"partition-id": k}, public_key=public_key(k))
            for k in HONEST
        }
        theirs = {
            100 + k: FakeNode(partial(self._app, k), {"partition-id": k}, public_key=public_key(k))
            for k in HOSTILE
        }
        self.grid = FakeGrid(honest | theirs if hostile else honest)
        names = [f"site_{k:02d}" for k in HONEST] + ["mallory", "trudy"]
        self.clients = client_file(folder / "clients.toml", names)

    def run(self):
        """Run to the end, once killed half way, and return the final model and the run."""
        try:
            return self._start()
        except KilledError:
            return self._start()

    def _start(self):
        n = len(HONEST) + len(HOSTILE)
        strategy = fair()
        strategy.fraction_evaluate = 1.0
        strategy.min_available_nodes = len(HONEST)
        wrapped = with_selector(
            strategy,
            build("hetero_select_v1", seed=0),
            n,
            clock=self.grid.clock,
            out=self.folder / "run",
            wait_s=WAIT_S,
            query_limit_s=QUERY_S,
            clients=self.clients,
            progress=False,
        )
        result = wrapped.start(
            self.grid, model(), num_rounds=self.rounds, timeout=TIMEOUT_S, evaluate_fn=self._between
        )
        return weights(result), motley.load(self.folder / "run")

    # ------------------------------------------------------------------ hostile clients of the file

    def _act(self, kind, client=None, event=None, said=""):
        self.acts[kind] += 1
        if said:
            self.said.add((client, event, said))
        elif event is not None:
            self.expected[client, event] += 1

    def _app(self, client, message, context):
        kind = message.metadata.message_type
        if kind == "query.motley_enrol":
            return self._enrolment(client, message, context)
        if kind == "query.motley_probe":
            return self._probe(client, message, context)
        return (
            self._evaluation(client, message)
            if kind == "evaluate"
            else self._upload(client, message, context)
        )

    def _enrolment(self, client, message, context):
        claimed = context.node_config["partition-id"]
        changes, event, said = ENROLMENTS[self._enrols[client]]
        if claimed != client and changes is not None and event == "capped":
            self._act(
                "a client claims to be another",
                client,
                "refused",
                f"says that it is client {claimed} ",
            )
        self._act(f"an enrolment: {self._enrols[client]}", client, event, said)
        if changes is None:
            if event == "refused":
                raise RuntimeError(EVIL * 1000)
            return None
        told = {"partition-id": claimed, "num-examples": 30, "label_histogram": [3] * 10, **changes}
        words = flower()
        return reply(
            message,
            told=words.MetricRecord(
                {name: value for name, value in told.items() if value is not None}
            ),
        )

    def _probe(self, client, message, context):
        drawn = self.rng.random()
        if drawn < 0.5:
            return with_loss("own")(message, context)
        self._act("a probe's answer that is nonsense", client, "unanswered", "cannot be measured")
        if drawn < 0.75:
            return reply(message, probed=flower().MetricRecord({EVIL: 1.0}))
        raise RuntimeError(EVIL)

    def _evaluation(self, client, message):
        samples = float(self.rng.choice([1e30, -1.0, np.nan]))
        self._act(
            "an evaluation of 1e30, -1 or nan samples",
            client,
            "rejected",
            "an evaluation cannot be used",
        )
        return reply(
            message, metrics=flower().MetricRecord({"num-examples": samples, "eval_loss": 0.0})
        )

    def _upload(self, client, message, context):
        drawn = self.rng.random()
        if drawn < 0.03:
            self._act("silence", client, "lost")
            return None
        if drawn < 0.1:
            self._act("an app that raises", client, "lost")
            raise RuntimeError(EVIL * 1000)
        if drawn < 0.2 and client == HOSTILE[0]:
            self._spoilt += 1
            self._act("a loss of -1", client, "rejected")
            self.expected[client, "set aside"] += self._spoilt == MOST_REFUSALS
            return with_loss(-1.0)(message, context)
        kind = self.rng.choice(sorted(UPLOADS))
        self._act(f"an upload: {kind}", client, "rejected")
        return reply(message, **UPLOADS[kind]())

    # ------------------------------------------------------------------------------------- nodes

    def _between(self, step, arrays):
        """After a round: measure, kill the server once, and let nodes act now or within the next
        round."""
        self.ended.append(self.grid.now_s)
        rss = psutil.Process().memory_info().rss
        if step >= 2:
            self._first = self._first or rss
            self.grown = max(self.grown, rss - self._first)
        if step == self.rounds // 2 and not self._killed:
            self._killed = True
            raise KilledError
        for _ in range(A_ROUND if self.hostile and step <= self.rounds - QUIET else 0):
            self.grid.events.append(
                (self.grid.now_s + float(self.rng.uniform(0, 2.5)), self._of_a_node)
            )
        if self.storm and step <= self.rounds - QUIET:
            self.grid.events.append(
                (self.grid.now_s + float(self.rng.uniform(0, 2.5)), self._honest_trouble)
            )

    def _of_a_node(self):
        strangers = [
            node for node, since in self._since.items() if since <= self.grid.now_s - SEEN_S
        ]
        kind = (
            self.rng.choice(["start"] * 4 + ["client"] + ["death", "restart"] * 2)
            if strangers
            else "start"
        )
        if kind == "start":
            self._next += 1
            key = public_key(self._next) if self.rng.random() < 0.2 else b""
            self._since[self._next] = self.grid.now_s
            config = {"partition-id": int(self.rng.choice(HONEST))}
            self.grid.nodes[self._next] = FakeNode(with_loss("own"), config, public_key=key)
            self._act("an unknown node claims to be a client", -1, "refused")
        elif kind == "client":
            client = int(self.rng.choice(HOSTILE))
            self._enrols[client] = str(
                self.rng.choice([*sorted(ENROLMENTS), *["2^53 samples"] * 6])
            )
            self._act("a hostile client starts again")
            self.grid.restart(
                100 + client, {"partition-id": int(self.rng.choice([*HONEST, client]))}
            )
        elif kind == "death":
            self._act("an unknown node dies")
            node = int(self.rng.choice(strangers))
            del self.grid.nodes[node], self._since[node]
        else:
            self._act("an unknown node starts again as somebody else")
            self.grid.restart(
                int(self.rng.choice(strangers)), {"partition-id": int(self.rng.choice(HONEST))}
            )

    def _honest_trouble(self):
        node = 100 + int(self.rng.choice(HONEST))
        if self.grid.nodes[node].killed_at is not None:
            self.grid.revive(node)
        elif self.rng.random() < 0.3:
            self.grid.kill(node)
        else:
            self.grid.restart(node)


def _check(campaign, done):
    """Check all that holds whatever happens; return the longest round in seconds."""
    rows = done.tables["clients"].to_pylist()
    honest = {row["outcome"] for row in rows if row["client"] in HONEST}
    assert honest <= ({"accepted", "dropped"} if campaign.storm else {"accepted"})
    assert "accepted" not in {row["outcome"] for row in rows if row["client"] in HOSTILE}
    longest = float(np.diff(campaign.ended[1:]).max())
    assert longest <= LIMIT_S
    assert campaign.grown < MOST_GROWN
    told = done.tables["incidents"].to_pylist()
    for client, event, said in campaign.said:
        assert any(
            (row["client"], row["event"]) == (client, event) and said in row["reason"]
            for row in told
        ), (client, said)
    found = Counter(
        (row["client"], row["event"]) for row in told if "an evaluation cannot" not in row["reason"]
    )
    for (client, event), n in campaign.expected.items():
        if client == -1:
            # the last says that further ones are not noted
            assert found[client, event] >= min(n, 101)
        elif event == "lost":
            assert found[client, event] >= n  # and those whose node started again
        else:
            assert found[client, event] == n, (client, event)
    for client in HONEST:  # nobody has taken an honest client's place, and none was blamed
        mine = {row["event"] for row in told if row["client"] == client}
        assert mine <= ({"lost", "unanswered"} if campaign.storm else set())
    assert all(row["reason"].isprintable() and len(row["reason"]) <= 300 for row in told)
    return longest


def _against(tmp_path, seed, acts):
    campaign = Campaign(tmp_path / "hostile", seed, acts)
    found, done = campaign.run()
    longest = _check(campaign, done)
    assert np.isfinite(found).all()
    expected, _ = Campaign(tmp_path / "peaceful", seed, acts, hostile=False).run()
    far = float(np.abs(found - expected).max())
    assert far == 0.0  # the replies that are used are the same, in the same order
    return campaign, longest, far


@pytest.fixture(autouse=True)
def _no_report(monkeypatch):
    monkeypatch.setattr("motley_flower.recorded.run_files.RunFiles.report", lambda self: None)


def test_hostile_clients_and_strangers_change_nothing(tmp_path):
    campaign, *_ = _against(tmp_path, seed=1, acts=100)
    assert sum(campaign.acts.values()) >= 100


def test_honest_clients_that_die_and_come_back_lose_no_place(tmp_path):
    _storm(tmp_path, seed=2, acts=60)


def _storm(tmp_path, seed, acts):
    campaign = Campaign(tmp_path / "storm", seed, acts, storm=True)
    _, done = campaign.run()
    longest = _check(campaign, done)
    assert {
        row["outcome"] for row in done.tables["clients"].to_pylist() if row["client"] in HONEST
    } == {"accepted", "dropped"}
    return campaign, longest


def _figures(campaign, longest):
    acts = sum(campaign.acts.values())
    print(f"\n{acts} acts in {campaign.rounds} rounds: {dict(campaign.acts)}")
    print(f"longest round {longest:.2f} s of {LIMIT_S:g}; grown {campaign.grown / 1e6:.1f} MB")
    return acts


@pytest.mark.slow
def test_two_thousand_hostile_acts(tmp_path):
    campaign, longest, far = _against(tmp_path, seed=11, acts=2000)
    assert _figures(campaign, longest) >= 2000
    print(f"models differ by {far:.1e}")


@pytest.mark.slow
def test_two_thousand_hostile_acts_while_honest_clients_die_and_come_back(tmp_path):
    assert _figures(*_storm(tmp_path, seed=12, acts=2000)) >= 2000
