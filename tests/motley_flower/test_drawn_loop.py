"""Verified draws in Motley's own loop: clients recompute their cohorts, a server that was killed
goes on with its chain, and one that draws anew or makes up a cohort gets no answer."""

from __future__ import annotations

import dataclasses
import json

import pytest

from motley.core.errors import ConfigError
from motley_flower.deployed.deployed_backend import DeployedClients
from motley_flower.deployed.grid_transport import bytes_in
from motley_flower.deployed.protocol import open_order
from motley_flower.deployed.secure_rounds import DeployedSums
from motley_flower.deployed.server_app import Limits
from motley_flower.secure.drawable import DrawTable
from motley_flower.secure.keyfiles import as_register, new_identity
from motley_flower.secure.terms import SecureOptions
from motley_flower.secure.verifiable_draws import DrawServer, verify_draws
from tests.motley_flower.client_runtimes import columns
from tests.motley_flower.fake_grid import FakeGrid
from tests.motley_flower.test_secure_loop import federation, keys, secured, setting

__all__ = ["keys"]

DRAWN = SecureOptions(clip=1.0, bits=24, draws=6, cohort=4)
BY_SAMPLES = {"name": "uniform", "variant": "weighted_wor"}
BY_TIERS = {"name": "tifl", "tiers": 2, "credits": 6, "interval": 6, "retier": 6}


def drawn(**changed):
    """Four of six clients a round, three of which are enough for a sum."""
    return setting(**{"cohort": 4, "stop": {"rounds": 4}, **changed})


def cohorts(run):
    """Round -> client -> outcome."""
    found: dict[int, dict[int, str]] = {}
    told = columns(run, "clients")
    for t, client, outcome in zip(told["round"], told["client"], told["outcome"], strict=True):
        found.setdefault(int(t), {})[int(client)] = str(outcome)
    return found


def transcript(run, keys):
    """The rows of a run's transcript, by round, after it was verified."""
    told = (run.directory / "draws.json").read_text()
    rows = {row["round"]: row for row in json.loads(told)["rounds"]}
    assert verify_draws(told, as_register(keys / "register.json")) == len(rows)
    return rows


@pytest.mark.parametrize(
    ("selector", "rule"),
    [("uniform", "uniform"), (BY_SAMPLES, "weighted"), (BY_TIERS, "tiers")],
    ids=["uniform", "weighted", "tiers"],
)
def test_every_cohort_is_recomputed_by_its_clients_and_afterwards(keys, selector, rule):
    # which tifl asks for
    setup = drawn(selector=selector, split={"test": "global", "validation": 0.2})
    options = SecureOptions(clip=1.0, bits=24, draws=6, cohort=4, draw_rule=rule)
    real = secured(federation(setup, keys, options=options), setup, keys, options)
    rows = transcript(real, keys)
    assert sorted(rows) == [1, 2, 3, 4]
    assert cohorts(real) == {t: dict.fromkeys(row["cohort"], "accepted") for t, row in rows.items()}
    assert columns(real, "rounds")["probed"].tolist() == [0, 0, 0, 0]


def test_without_draws_nothing_is_written(keys):
    setup = setting(stop={"rounds": 1})
    assert not (secured(federation(setup, keys), setup, keys).directory / "draws.json").exists()


def test_a_server_that_makes_up_a_cohort_gets_no_answer(keys, monkeypatch):
    setup = drawn()
    honest = DeployedSums.draw

    def made_up(self, now, selector, saved, count):
        cohort, saved = honest(self, now, selector, saved, count)
        if now.draw_index == 2:
            cohort = tuple(k for k in range(6) if k not in cohort[:2])
            self._drawn = cohort, self._drawn[1]
        return cohort, saved

    monkeypatch.setattr(DeployedSums, "draw", made_up)
    real = secured(federation(setup, keys, options=DRAWN), setup, keys, DRAWN)
    told = cohorts(real)
    assert set(told[1].values()) == {"accepted"}
    assert set(told[2].values()) == {"dropped"}
    why = columns(real, "incidents")["reason"].tolist()
    assert sum("the cohort of round 2 is not the one that was drawn" in one for one in why) == 4


class KilledError(BaseException):
    """As if the process were gone."""


def dying_in(t, monkeypatch):
    """Let the server die when round t is under way, its cohort told and its link revealed; return
    what was told, by round."""
    honest = DeployedSums.open
    told = []

    def die(self, state, cohort):
        opened = honest(self, state, cohort)
        told.append((state.draw_index, self._drawn))
        if len(told) == t:
            raise KilledError
        return opened

    monkeypatch.setattr(DeployedSums, "open", die)
    return told


def killed(t, setup, on, keys, monkeypatch):
    """A deployment up to the middle of round t."""
    told = dying_in(t, monkeypatch)
    with pytest.raises(KilledError):
        secured(on, setup, keys, DRAWN)
    return told


def test_a_server_that_is_killed_in_mid_round_leaves_it_out_and_goes_on_with_its_chain(
    keys, monkeypatch
):
    setup = drawn()
    on = federation(setup, keys, options=DRAWN)
    told = killed(3, setup, on, keys, monkeypatch)
    real = secured(on, setup, keys, DRAWN)
    assert [t for t, _ in told] == [1, 2, 3, 3, 4]
    rows = transcript(real, keys)
    assert sorted(rows) == [1, 2, 3, 4]
    expected = {
        t: dict.fromkeys(row["cohort"], "dropped" if t == 3 else "accepted")
        for t, row in rows.items()
    }
    assert cohorts(real) == expected
    asked = [
        open_order(bytes_in(m))
        for m in on.sent
        if m.metadata.message_type == "query.motley" and bytes_in(m)
    ]
    # before the kill
    assert sum(order.round == 3 and order.secure[:1] == b"\x01" for order in asked) == 4


def test_clients_refuse_a_second_attempt_of_a_drawn_round(keys, monkeypatch):
    """A server that asks again, with one client fewer, would have the difference of two sums of one
    round."""
    setup = drawn()
    on = federation(setup, keys, options=DRAWN)
    killed(3, setup, on, keys, monkeypatch)
    monkeypatch.setattr(DrawServer, "check", lambda *_: None)
    real = secured(on, setup, keys, DRAWN)
    assert set(cohorts(real)[3].values()) == {"dropped"}
    why = columns(real, "incidents")["reason"].tolist()
    assert sum("got round 3 after round 3; a drawn round is asked once" in one for one in why) == 4


def test_a_server_that_is_killed_after_the_last_round_still_writes_the_transcript(keys):
    setup = drawn(stop={"rounds": 2})
    on = federation(setup, keys, options=DRAWN)

    def die(done):
        if done.round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        secured(on, setup, keys, DRAWN, told=die)
    assert sorted(transcript(secured(on, setup, keys, DRAWN), keys)) == [1, 2]


def test_a_server_that_draws_anew_is_refused_by_all_clients(keys, monkeypatch):
    setup = drawn()
    on = federation(setup, keys, options=DRAWN)
    killed(3, setup, on, keys, monkeypatch)
    honest = DeployedClients.restore

    def forgetting(self, saved):
        honest(self, saved)
        self.draws = b""

    monkeypatch.setattr(DeployedClients, "restore", forgetting)
    with pytest.raises(
        ConfigError, match="the draws cannot be agreed on: 0 of 6 clients are left for the draws"
    ):
        secured(on, setup, keys, DRAWN)


def test_a_server_with_another_register_does_not_go_on(keys, monkeypatch):
    setup = drawn()
    on = federation(setup, keys, options=DRAWN)
    killed(2, setup, on, keys, monkeypatch)
    register = json.loads((keys / "register.json").read_text())
    (keys / "register.json").write_text(json.dumps({**register, "5": new_identity(keys / "other")}))
    with pytest.raises(
        ConfigError,
        match="register: got a register of 6 clients; expected the one that the clients agreed on",
    ):
        secured(on, setup, keys, DRAWN)


def test_a_drawn_client_that_is_not_connected_has_dropped_out(keys):
    setup = drawn(cohort=5, stop={"rounds": 6})
    options = dataclasses.replace(DRAWN, cohort=5)
    on = federation(setup, keys, options=options)
    on.events.append((12.0, lambda: on.kill(103)))
    real = secured(
        on,
        setup,
        keys,
        options,
        limits=Limits(start_s=30.0, work_s=60.0, query_s=60.0, poll_s=0.25, look_s=2.0),
    )
    rows = transcript(real, keys)
    told = cohorts(real)
    missing = [t for t, row in rows.items() if 3 in row["cohort"] and 3 not in told[t]]
    assert missing
    for t in missing:
        assert told[t] == {k: "accepted" for k in rows[t]["cohort"] if k != 3}


def test_a_client_at_its_cap_takes_no_part(keys):
    setup = drawn(cohort=6, stop={"rounds": 3})
    options = dataclasses.replace(DRAWN, cohort=6)
    real = secured(federation(setup, keys, options=options, cap=2), setup, keys, options)
    assert [set(cohorts(real)[t].values()) for t in (1, 2, 3)] == [
        {"accepted"},
        {"accepted"},
        {"dropped"},
    ]
    why = columns(real, "incidents")["reason"].tolist()
    assert any(
        "client 2 has taken part in 2 rounds with this register, and its cap is 2" in one
        for one in why
    )


def test_a_client_drawn_by_another_number_of_samples_sends_nothing(keys, monkeypatch):
    options = SecureOptions(clip=1.0, bits=24, draws=6, cohort=6, draw_rule="weighted")
    setup = drawn(cohort=6, selector=BY_SAMPLES, stop={"rounds": 1})
    honest = DrawTable.of

    def lying(rule, selector, roster):
        numbers = honest(rule, selector, roster).numbers
        return DrawTable(rule, {**numbers, 4: numbers[4] + 1})

    monkeypatch.setattr(DrawTable, "of", lying)
    real = secured(federation(setup, keys, options=options), setup, keys, options)
    assert cohorts(real)[1] == {**dict.fromkeys(range(6), "accepted"), 4: "dropped"}
    why = columns(real, "incidents")["reason"].tolist()
    assert any(
        "client 4 has other samples than the " in one and "the cohorts are drawn" in one
        for one in why
    )


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"selector": "oort"}, {}, "draws: Oort draws from what clients report in rounds"),
        (
            {"selector": BY_SAMPLES},
            {},
            'the selector draws by "weighted" and the options say "uniform"',
        ),
        (
            {"selector": "tifl", "split": {"validation": 0.2}},
            {"draw_rule": "tiers"},
            "TiFL looks at losses, groups anew or runs out of credits",
        ),
        (
            {"defence": "on"},
            {},
            "a defence holds clients back, so that they cannot recompute the cohorts",
        ),
        (
            {"cohort": 5},
            {},
            r"cohort: got a cohort of 5, and the options draw cohorts of 4; write "
            r"SecureOptions\(..., cohort=5\)",
        ),
        (
            {"stop": {"rounds": 7}},
            {},
            r"draws = 6 are too few for round 7, the last; write SecureOptions\(..., draws=7\)",
        ),
        (
            {"stop": {"virtual_hours": 1}},
            {},
            r"got draws = 6 and an end that no number of rounds sets; write stop = \{ rounds = 6 "
            r"\}",
        ),
    ],
)
def test_what_is_refused(keys, changed, options, message):
    setup = drawn(**changed)
    with pytest.raises(ConfigError, match=message):
        secured(
            FakeGrid(),
            setup,
            keys,
            SecureOptions(**{"clip": 1.0, "bits": 20, "draws": 6, "cohort": 4, **options}),
        )


def test_rounds_that_lie_behind_the_selector_count(keys):
    setup = drawn()
    with pytest.raises(ConfigError, match="draws = 6 are too few for round 7"):
        secured(FakeGrid(), setup, keys, DRAWN, rounds_done=3)


def test_the_register_is_the_roster(keys):
    register = json.loads((keys / "register.json").read_text())
    (keys / "register.json").write_text(json.dumps({**register, "6": new_identity(keys / "key-6")}))
    setup = drawn()
    with pytest.raises(ConfigError, match="names client 6, and the experiment has clients 0 to 5"):
        secured(federation(setup, keys, options=DRAWN), setup, keys, DRAWN)


def test_draws_need_the_roster(keys):
    setup = drawn()
    on = federation(setup, keys, options=DRAWN)
    for k in (101, 103):
        del on.nodes[k]
    with pytest.raises(
        ConfigError, match="the draws cannot be agreed on: 4 of 6 clients are left for the draws"
    ):
        secured(on, setup, keys, DRAWN)
