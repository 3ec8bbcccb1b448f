"""Devices, links and drop-outs whose laws stand in a file."""

import numpy as np
import pytest

from motley.core.errors import ConfigError, DataError
from motley.core.keys import Streams, normal_quantile
from motley.experiments.config import Experiment
from motley.world import AVAILABILITY, DEVICES, FAILURES, NETWORKS
from motley.world.recorded import (
    RecordedAvailability,
    RecordedDevice,
    RecordedFailures,
    RecordedNetwork,
)

KEY = Streams(0).key("device")
MANY = np.arange(20_000)
TWO = "client,step_s,unsure\n0,1,0\n0,2,0\n0,4,0\n1,10,0\n1,10,0\n1,10,0\n"


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "laws.csv"
        path.write_text(text)
        return str(path)

    return write


def seconds(device, ids=MANY, round_index=1, key=KEY):
    return device.step_s(key, ids, round_index, np.ones(len(ids)), np.ones(len(ids)))


def within(values, mean, variance):
    return abs(np.mean(values) - mean) < 4 * np.sqrt(variance / len(values))


def test_a_draw_by_hand(written):
    """Quantiles 1, 2, 4 at 0, 1/2, 1: u below 1/2 gives 1 + 2 u, above it 4 u; client 1 always
    takes 10 s."""
    ids = np.arange(2)
    u = KEY.fold("moment", 3).uniform(ids)[0, 0]
    drawn = seconds(RecordedDevice(written(TWO)), ids, 3)
    assert drawn[0] == pytest.approx(1 + 2 * u if u < 0.5 else 4 * u)
    assert drawn[1] == 10


def test_clients_in_turn_follow_their_law(written):
    """Half of the even clients take U(1, 2) seconds, half U(2, 4): mean 2.25, and E x^2 =
    (7/3 + 28/3) / 2; the odd ones 10."""
    drawn = seconds(RecordedDevice(written(TWO)))
    assert within(drawn[::2], 2.25, 35 / 6 - 2.25**2)
    assert (drawn[1::2] == 10).all()


def test_draws_are_pure(written):
    device = RecordedDevice(written(TWO.replace(",0\n", ",0.5\n")), values=3)
    drawn = seconds(device)
    assert (drawn == seconds(device)).all()
    assert (seconds(device, np.array([9, 4])) == drawn[[9, 4]]).all()
    assert (seconds(device, round_index=2)[::2] != drawn[::2]).all()
    assert (seconds(device, key=Streams(1).key("device")) != drawn).all()


def test_how_unsure_a_client_is_stays_in_all_rounds(written):
    """log(seconds / 10) is N(0, 0.5^2) over clients, and the same in every round."""
    device = RecordedDevice(written("client,step_s,unsure\n0,10,0.5\n"))
    logs = np.log(seconds(device) / 10)
    assert within(logs, 0, 0.25)
    assert within(logs**2, 0.25, 2 * 0.5**4)
    assert (seconds(device, round_index=7) == seconds(device)).all()


def test_every_seed_weighs_what_was_recorded_anew(written):
    """Two values, four seen once each: the mass between the first and the second quantile is
    Beta(2, 2), mean 1/2 and variance 1/20, in every seed the same for all clients."""
    device = RecordedDevice(written("client,step_s\n0,0\n0,1\n0,2\n"), values=4)
    share = [
        np.mean(seconds(device, MANY[:4000], key=Streams(s).key("device")) < 1) for s in range(200)
    ]
    assert within(share, 0.5, 1 / 20)
    assert within((np.array(share) - 0.5) ** 2, 1 / 20, 3 / 560 - 1 / 400)


def test_a_link_in_seconds_per_megabit(written):
    """A quarter of a second per megabit is 4 Mb/s; none is an infinite link."""
    link = RecordedNetwork(written("client,up_s,down_s\n0,0.25,0\n1,2,0.5\n"))
    ids = np.arange(3)
    assert link.uplink_mbps(KEY, ids, 1).tolist() == [4.0, 0.5, 4.0]
    assert link.downlink_mbps(KEY, ids, 1).tolist() == [np.inf, 2.0, np.inf]


def test_up_and_down_are_drawn_apart(written):
    link = RecordedNetwork(written("client,up_s,down_s\n0,1,1\n0,2,2\n"))
    up, down = link.uplink_mbps(KEY, MANY, 1), link.downlink_mbps(KEY, MANY, 1)
    assert abs(np.corrcoef(up, down)[0, 1]) < 4 / np.sqrt(len(MANY))


def test_up_and_down_measured_as_one_are_drawn_as_one(written):
    link = RecordedNetwork(written("client,up_s,down_s\n0,1,2\n0,2,4\n"), together=True)
    up, down = link.uplink_mbps(KEY, MANY, 1), link.downlink_mbps(KEY, MANY, 1)
    assert up == pytest.approx(2 * down)
    assert up.std() > 0.1


def test_a_slow_round_is_slow_for_all(written):
    """Of laws that are normal in their quantiles' places, two clients' places in a round correlate
    by ``common``; over rounds they are independent, and each keeps its law."""
    device = RecordedDevice(written("client,step_s\n0,0\n0,1\n"), common=0.6)
    pair = np.array([4, 9])
    u = np.array([seconds(device, pair, round_index=t) for t in range(1500)])
    z = normal_quantile(u)
    assert within(z[:, 0] * z[:, 1], 0.6, 1 + 0.6**2)
    assert within(z[1:, 0] * z[:-1, 1], 0, 1)
    assert within(u[:, 0], 0.5, 1 / 12)
    assert within((u[:, 0] - 0.5) ** 2, 1 / 12, 1 / 80 - 1 / 144)


def test_links_are_slow_together(written):
    link = RecordedNetwork(written("client,up_s,down_s\n0,1,1\n0,2,2\n"), common=0.9)
    up = np.array([link.uplink_mbps(KEY, np.arange(2), t) for t in range(500)])
    assert np.corrcoef(up.T)[0, 1] > 0.7


def test_drop_outs(written):
    """Beta(1, 3) has mean 1/4, and so a quarter of the clients drops out, after a uniform share of
    its work; a client's rate stays."""
    failures = RecordedFailures(written("client,dropped,answered\n0,1,3\n"))
    rounds = np.array([failures.drop_at(KEY, MANY, t) for t in range(1, 9)])
    gone = ~np.isnan(rounds)
    assert within(gone[0], 0.25, 3 / 16)
    assert within(rounds[0][gone[0]], 0.5, 1 / 12)
    # E rate^2 = 1 * 2 / (4 * 5) of Beta(1, 3)
    assert within(gone[0] & gone[1], 0.1, 0.09)


PRESENT = "client,went,online_s,came,offline_s\n"


def test_presence_at_known_rates(written):
    """Rates known by a million changes each: a client that stays 30 s and is away for 10 s is
    online three quarters of the time, and after 3 s the correlation is exp(-3 (1/30 + 1/10))."""
    chain = RecordedAvailability(written(PRESENT + "0,1e6,3e7,1e6,1e7\n"), slot_s=3.0)
    ids = np.arange(4000)
    now, later = (chain.online(KEY, ids, 1, at) for at in (40.0, 43.0))
    assert within(now, 0.75, 3 / 16)
    both = 0.75**2 + 3 / 16 * np.exp(-0.4)
    assert within(now & later, both, both * (1 - both))
    assert (chain.online(KEY, ids, 9, 41.9) == now).all()
    assert (chain.online(KEY, ids[5:9], 1, 40.0) == now[5:9]).all()


def test_rates_that_few_changes_tell_differ_from_client_to_client(written):
    """Both rates of a client are exponential with the same mean, so its share of the time online is
    uniform: at two distant moments it is online with probability E p^2 = 1/3, not 1/4."""
    rows = "".join(f"{k},1,10,1,10\n" for k in range(4000))
    chain = RecordedAvailability(written(PRESENT + rows), slot_s=1.0)
    now, later = (chain.online(KEY, np.arange(4000), 1, at) for at in (0.0, 1e6))
    assert within(now, 1 / 2, 1 / 4)
    assert within(now & later, 1 / 3, 2 / 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step_s\n1\n", "there is no column 'client'"),
        ("client,step_s\n1,1\n0,1\n", "must hold the clients 0, 1, ... in this order, 1 row"),
        ("client,step_s\n0,1\n0,2\n1,1\n", "in this order, 2 row"),
        ("client,step_s\n0,2\n0,1\n", "column 'step_s' must be finite, at least 0 seconds, and"),
        ("client,step_s\n0,-1\n", "at least 0 seconds"),
        ("client,step_s,unsure\n0,1,-1\n", "column 'unsure' must be finite and at least 0"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(written, text, message):
    with pytest.raises(DataError, match=f"device: .*laws.csv: .*{message}"):
        DEVICES.build({"name": "recorded", "file": written(text)})


def test_other_bad_options(written):
    with pytest.raises(DataError, match="column 'came' must be above 0 and finite"):
        AVAILABILITY.build(
            {"name": "recorded", "file": written(PRESENT + "0,1,9,0,9\n"), "slot_s": 1.0}
        )
    with pytest.raises(ConfigError, match=r"got slot_s = 0.0; expected a finite number above 0"):
        AVAILABILITY.build(
            {"name": "recorded", "file": written(PRESENT + "0,1,9,1,9\n"), "slot_s": 0.0}
        )
    with pytest.raises(DataError, match="column 'dropped' must be above 0 and finite"):
        FAILURES.build({"name": "recorded", "file": written("client,dropped,answered\n0,0,1\n")})
    with pytest.raises(DataError, match="there is no column 'down_s'"):
        NETWORKS.build({"name": "recorded", "file": written("client,up_s\n0,1\n")})
    with pytest.raises(
        ConfigError, match=r"got common = 1.0; expected a share of at least 0 and be"
    ):
        DEVICES.build({"name": "recorded", "file": written(TWO), "common": 1.0})
    with pytest.raises(ConfigError, match="got values = 0; expected at least 1, or none"):
        DEVICES.build({"name": "recorded", "file": written(TWO), "values": 0})


def test_a_file_that_has_changed_is_another_run(written):
    keys = {"task": "quadratic", "population": 2, "cohort": 1, "stop": {"rounds": 1}}
    ids = [
        Experiment(**keys, device={"name": "recorded", "file": written(text)}).run_id()
        for text in (TWO, TWO.replace("10", "11"), TWO)
    ]
    assert ids[0] == ids[2] != ids[1]
