"""Hostile messages, starts, deaths, restarts and claims of identity in random order, against
Motley's own loop and ten honest clients.

``python -m pytest -m slow -s tests/motley_flower/test_campaign.py`` is the long form, and prints
its figures."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.torch import load_file

from motley_flower.client_list import fingerprint
from tests.motley_flower.campaign import HONEST, HOSTILE, LIMITS, Campaign
from tests.motley_flower.client_runtimes import columns
from tests.motley_flower.keys import public_key

MOST_GROWN = 100e6
"""Bytes that the server and all twelve clients, in one process, may grow by."""
MOST_STRANGERS = 101
"""Refusals of unknown nodes that are noted in a run; the last says that further ones are not."""


def _check(campaign, done):
    """Check all that holds whatever happens; return the longest round in seconds."""
    clients = columns(done, "clients")
    rounds = columns(done, "rounds")
    outcomes = clients["outcome"][np.isin(clients["client"], HONEST)]
    assert "rejected" not in outcomes
    assert "accepted" not in clients["outcome"][np.isin(clients["client"], HOSTILE)]
    longest = float(np.diff(rounds["time_s"], prepend=rounds["start_s"][0]).max())
    assert longest <= LIMITS.work_s + 2 * LIMITS.look_s
    assert campaign.grown < MOST_GROWN
    told = done.tables["incidents"].to_pylist()
    found = {
        key: sum((row["client"], row["event"]) == key for row in told) for key in campaign.expected
    }
    strangers = campaign.expected[-1, "refused"]
    assert {k: n for k, n in found.items() if k[1] not in ("lost", "refused")} == {
        k: n for k, n in campaign.expected.items() if k[1] not in ("lost", "refused")
    }
    # and those whose node started again
    assert all(found[key] >= n for key, n in campaign.expected.items() if key[1] == "lost")
    assert found[-1, "refused"] == min(strangers, MOST_STRANGERS)
    said = {
        (row["client"], row["reason"].partition("says that it is client ")[2].partition(" ")[0])
        for row in told
    }
    assert {(client, str(other)) for client, other in campaign.claims} <= said
    for client in HONEST:  # nobody has taken an honest client's place, and none was blamed
        mine = {row["event"] for row in told if row["client"] == client}
        silent = {"unanswered"} if campaign.storm else set()  # a node that died had a question open
        blamed = {
            "rejected",
            "refused",
            "waits",
            "set aside",
            "capped",
            "unanswered",
            "answered late",
        } - silent
        assert not mine & blamed
        places = [
            row["reason"] for row in told if (row["client"], row["event"]) == (client, "changed")
        ]
        # from its own node to its own node
        assert all(place.count(fingerprint(public_key(client))) == 2 for place in places)
    assert all(row["reason"].isprintable() and len(row["reason"]) <= 300 for row in told)
    return longest


def _against(tmp_path, seed, acts):
    campaign = Campaign(tmp_path / "hostile", seed, acts)
    done = campaign.run()
    longest = _check(campaign, done)
    clients = columns(done, "clients")
    honest = clients["outcome"][np.isin(clients["client"], HONEST)]
    assert honest.tolist() == ["accepted"] * len(HONEST) * len(done.column("rounds", "round"))
    peaceful = Campaign(tmp_path / "peaceful", seed, acts, hostile=False).run()
    one, other = (load_file(run.directory / "model.safetensors") for run in (done, peaceful))
    far = max(float((one[name] - other[name]).abs().max()) for name in one)
    assert far < 1e-9
    return campaign, done, longest, far


def test_hostile_clients_and_strangers_change_nothing(tmp_path):
    campaign, *_ = _against(tmp_path, seed=1, acts=100)
    assert sum(campaign.acts.values()) >= 100


def test_honest_clients_that_die_and_come_back_lose_no_place(tmp_path):
    _storm(tmp_path, seed=2, acts=60)


def _storm(tmp_path, seed, acts):
    campaign = Campaign(tmp_path / "storm", seed, acts, storm=True)
    done = campaign.run()
    longest = _check(campaign, done)
    clients = columns(done, "clients")
    honest = clients["outcome"][np.isin(clients["client"], HONEST)]
    assert set(honest) == {"accepted", "dropped"}
    back = {
        row["client"] for row in done.tables["incidents"].to_pylist() if row["event"] == "connected"
    }
    last = clients["round"] == clients["round"].max()
    assert (
        back
        & set(HONEST)
        & set(clients["client"][last & (clients["outcome"] == "accepted")].tolist())
    )
    return campaign, longest


@pytest.mark.slow
def test_two_thousand_hostile_acts(tmp_path):
    campaign, done, longest, far = _against(tmp_path, seed=11, acts=2000)
    acts = sum(campaign.acts.values())
    assert acts >= 2000
    print(f"\n{acts} acts in {len(done.column('rounds', 'round'))} rounds: {dict(campaign.acts)}")
    print(
        f"longest round {longest:.2f} s of {LIMITS.work_s:g}; grown {campaign.grown / 1e6:.1f} MB; "
        f"models differ by {far:.1e}"
    )


@pytest.mark.slow
def test_two_thousand_hostile_acts_while_honest_clients_die_and_come_back(tmp_path):
    campaign, longest = _storm(tmp_path, seed=12, acts=2000)
    print(
        f"\n{sum(campaign.acts.values())} acts, longest round {longest:.2f} s; grown "
        f"{campaign.grown / 1e6:.1f} MB"
    )
