"""Devices and networks: laws, purity, units.

Worked numbers: docs/methods/timing-and-world.md#speed.
"""

import numpy as np
import pytest

from motley.core.errors import ConfigError, DataError
from motley.core.keys import Streams
from motley.world import DEVICES, NETWORKS, devices, network

KEY = Streams(0).key("device")
MANY = np.arange(20_000)
DRAWN = [devices.UniformDevice(), devices.LogNormalDevice(), devices.ShiftedExponential()]
LINKS = [network.UniformNetwork((1, 5), (5, 20)), network.LogNormalNetwork(3.0, 0.5, 10.0)]


def seconds(device, ids=MANY, round_index=1, examples=500, steps=10, key=KEY):
    return device.step_s(
        key, ids, round_index, np.full(len(ids), examples), np.full(len(ids), steps)
    )


def within(values, mean, variance):
    return abs(np.mean(values) - mean) < 4 * np.sqrt(variance / len(values))


def test_uniform_seconds():
    """U(0.1, 0.5): mean 0.3, variance 0.4^2 / 12."""
    drawn = seconds(devices.UniformDevice(0.1, 0.5))
    assert within(drawn, 0.3, 0.16 / 12)
    assert 0.1 < drawn.min() < 0.101
    assert 0.499 < drawn.max() < 0.5


def test_log_normal_seconds():
    """log of it is N(log median, sigma^2)."""
    log = np.log(seconds(devices.LogNormalDevice(0.3, 0.6)))
    assert within(log, np.log(0.3), 0.36)
    assert within((log - np.log(0.3)) ** 2, 0.36, 2 * 0.36**2)


def test_shifted_exponential_full_work():
    """T = a N + Exp(mean lambda N): N = 500, lambda = 10 has mean 5500, deviation 5000, and never
    less than 500; N = 20 mean 220, deviation 200, and never less than 20. Every round has a draw of
    its own."""
    device = devices.ShiftedExponential(1, 10)
    for n in (500, 20):
        whole = seconds(device, examples=n) * 10
        assert within(whole, 11 * n, (10 * n) ** 2)
        assert whole.min() >= n
        assert (seconds(device, examples=n, round_index=2) * 10 != whole).all()


def test_slowest_of_ten_shifted_exponentials():
    """E[max of 10] = 500 + 5000 H_10 = 15144.84; the variance of the maximum is 5000^2 sum
    1/i^2."""
    expected = 500 + 5000 * sum(1 / i for i in range(1, 11))
    assert round(expected, 2) == 15144.84
    slowest = (seconds(devices.ShiftedExponential(1, 10)) * 10).reshape(2000, 10).max(axis=1)
    assert within(slowest, expected, 5000**2 * sum(1 / i**2 for i in range(1, 11)))


def test_a_client_without_work_takes_no_time():
    assert devices.ShiftedExponential().step_s(
        KEY, np.array([0]), 1, np.array([0]), np.array([0])
    ).tolist() == [0.0]


def test_constant_seconds():
    assert seconds(devices.ConstantDevice(0.25), np.arange(3)).tolist() == [0.25] * 3


@pytest.mark.parametrize("device", DRAWN, ids=repr)
def test_devices_are_pure(device):
    """The same answer twice, for any company of ids; another seed, another answer."""
    assert (seconds(device) == seconds(device)).all()
    assert (seconds(device, np.array([9, 4])) == seconds(device)[[9, 4]]).all()
    assert (seconds(device) != seconds(device, key=Streams(1).key("device"))).all()


@pytest.mark.parametrize(
    "make", [devices.UniformDevice, devices.LogNormalDevice, devices.ShiftedExponential]
)
def test_per_client_forgets_the_round(make):
    assert (
        seconds(make(per="client"), round_index=1) == seconds(make(per="client"), round_index=2)
    ).all()
    assert (
        seconds(make(per="round"), round_index=1) != seconds(make(per="round"), round_index=2)
    ).all()


def test_defaults_of_per():
    assert (
        devices.UniformDevice().per,
        devices.ShiftedExponential().per,
        network.UniformNetwork().per,
    ) == (
        "client",
        "round",
        "round",
    )


def test_uniform_links():
    """U(1, 5) up: mean 3, variance 16 / 12; U(5, 20) down: 12.5 and 225 / 12; independent."""
    link = LINKS[0]
    up = link.uplink_mbps(KEY, MANY, 1)
    down = link.downlink_mbps(KEY, MANY, 1)
    assert within(up, 3, 16 / 12)
    assert within(down, 12.5, 225 / 12)
    assert abs(np.corrcoef(up, down)[0, 1]) < 4 / np.sqrt(len(MANY))


def test_log_normal_links_have_their_median():
    link = LINKS[1]
    assert within(np.log(link.uplink_mbps(KEY, MANY, 1)), np.log(3), 0.25)
    assert within(np.log(link.downlink_mbps(KEY, MANY, 1)), np.log(10), 0.25)


@pytest.mark.parametrize("link", LINKS, ids=repr)
def test_links_are_pure_and_drawn_per_round(link):
    for draw in (link.uplink_mbps, link.downlink_mbps):
        assert (draw(KEY, np.array([9, 4]), 3) == draw(KEY, MANY, 3)[[9, 4]]).all()
        assert (draw(KEY, MANY, 3) != draw(KEY, MANY, 4)).all()


@pytest.mark.parametrize(
    "link", [network.UniformNetwork(per="client"), network.LogNormalNetwork(per="client")], ids=repr
)
def test_links_drawn_once(link):
    assert (link.uplink_mbps(KEY, MANY, 3) == link.uplink_mbps(KEY, MANY, 4)).all()


@pytest.mark.parametrize(
    "link",
    [
        network.NoDelay(),
        network.UniformNetwork(),
        network.LogNormalNetwork(),
        network.ConstantNetwork(2.0),
    ],
    ids=repr,
)
def test_no_downlink_is_free_in_time(link):
    assert np.isinf(link.downlink_mbps(KEY, MANY[:3], 1)).all()


def test_constant_and_free_links():
    link = network.ConstantNetwork(2.0, 8.0)
    assert link.uplink_mbps(KEY, MANY[:2], 1).tolist() == [2.0, 2.0]
    assert link.downlink_mbps(KEY, MANY[:2], 1).tolist() == [8.0, 8.0]
    assert np.isinf(network.NoDelay().uplink_mbps(KEY, MANY[:2], 1)).all()


def test_tenfold_spread_from_a_file():
    device = DEVICES.build({"name": "uniform", "low": 0.05, "high": 0.5})
    link = NETWORKS.build(
        {"name": "uniform", "up_mbps": [1, 10], "down_mbps": [2, 20], "per": "client"}
    )
    drawn = seconds(device)
    assert drawn.max() / drawn.min() == pytest.approx(10, rel=0.01)
    assert link.up_mbps == (1.0, 10.0)


# ---------------------------------------------------------------- inverted links

INVERTED = network.InvertedNetwork()
RANKED = network.InvertedNetwork(law="rank")


def test_inverted_links_by_hand():
    """B = 1 + 4 (1 - L / max L): losses 4, 3, 1, 0 are 1, 3/4, 1/4, 0 of the largest: 1, 2, 4, 5
    Mb/s."""
    assert INVERTED.coupled_mbps(KEY, MANY[:4], 1, np.array([4.0, 3.0, 1.0, 0.0])).tolist() == [
        1.0,
        2.0,
        4.0,
        5.0,
    ]


def test_alike_losses_make_everybody_slow_as_published():
    """With losses within 0.25 to 0.75 % of the largest, links are 1 + 4 (0.0025 to 0.0075) = 1.01
    to 1.03 Mb/s."""
    losses = np.concatenate([np.linspace(2.3 * 0.9925, 2.3 * 0.9975, 9), [2.3]])
    links = INVERTED.coupled_mbps(KEY, MANY[:10], 1, losses)
    assert links[:9].min() == pytest.approx(1.01)
    assert links[:9].max() == pytest.approx(1.03)


def test_ranked_links_keep_their_law_and_turn_the_order_around():
    losses = KEY.exponential(MANY)[:, 0]
    links = RANKED.coupled_mbps(KEY, MANY, 1, losses)
    assert (np.diff(links[np.argsort(losses)]) <= 0).all()
    assert (np.sort(links) == np.sort(RANKED.uplink_mbps(KEY, MANY, 1))).all()
    assert within(links, 3, 16 / 12)


def test_ties_of_losses_go_by_the_key():
    first, second = (
        RANKED.coupled_mbps(KEY, MANY, round_index, np.ones(len(MANY))) for round_index in (1, 2)
    )
    assert abs(np.corrcoef(first, MANY)[0, 1]) < 4 / np.sqrt(len(MANY))
    assert (first != second).any()


@pytest.mark.parametrize("link", [INVERTED, RANKED], ids=repr)
def test_inverted_links_of_unknown_losses(link):
    """Nothing known: plain draws; NaN counts as the mean, infinity as the largest; all zero is all
    the same."""
    assert within(link.coupled_mbps(KEY, MANY, 1, np.full(len(MANY), np.nan)), 3, 16 / 12)
    odd = np.array([np.inf, 2.0, np.nan, 1.0])
    assert (
        link.coupled_mbps(KEY, MANY[:4], 1, odd).tolist()
        == link.coupled_mbps(KEY, MANY[:4], 1, np.array([2, 2, 1.5, 1])).tolist()
    )
    assert np.isfinite(link.coupled_mbps(KEY, MANY[:3], 1, np.zeros(3))).all()
    assert link.wants() == {"loss": 8}
    assert network.UniformNetwork().wants() == {}
    assert (
        LINKS[0].coupled_mbps(KEY, MANY, 1, np.ones(len(MANY)))
        == LINKS[0].uplink_mbps(KEY, MANY, 1)
    ).all()


# ---------------------------------------------------------------- measured devices and links


def written(path, rows):
    path.write_text(rows)
    return str(path)


def test_a_measured_device_by_hand(tmp_path):
    file = written(tmp_path / "speed.csv", "device,step_s\na,0.5\nb,0.1\nc,2\n")
    assert seconds(devices.TraceDevice(file), np.arange(5)).tolist() == [0.5, 0.1, 2.0, 0.5, 0.1]


def test_a_measured_link_from_parquet(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    file = str(tmp_path / "links.parquet")
    parquet.write_table(pa.table({"up_mbps": [1.0, 2.0], "down_mbps": [8, 16]}), file)
    link = network.TraceNetwork(file)
    assert link.uplink_mbps(KEY, np.arange(3), 7).tolist() == [1.0, 2.0, 1.0]
    assert link.downlink_mbps(KEY, np.arange(3), 7).tolist() == [8.0, 16.0, 8.0]


def test_measured_rows_drawn_at_random(tmp_path):
    """3 rows, 20 000 clients: each Binomial(20 000, 1/3); a client's row does not depend on the
    others."""
    link = network.TraceNetwork(written(tmp_path / "up.csv", "up_mbps\n1\n2\n3\n"), assign="random")
    up = link.uplink_mbps(KEY, MANY, 1)
    assert within(up, 2, 2 / 3)
    assert (link.uplink_mbps(KEY, np.array([9, 4]), 2) == up[[9, 4]]).all()
    assert np.isinf(link.downlink_mbps(KEY, MANY[:2], 1)).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("step\n1\n", r"there is no column 'step_s' \(did you mean 'step'\?\); its columns: step"),
        ("step_s\n", "it has no rows"),
        ("step_s\n1\nfast\n", "column 'step_s' holds a value that is no number"),
        ("a,step_s\n1,1\n2,\n", "column 'step_s' has no number in row 2"),
        ("step_s\n-1\n", "must be finite and at least 0 seconds"),
        ("a,step_s\n1\n", "cannot be read"),
        ("step_s,step_s\n1,2\n", "there is more than one column 'step_s'"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path, rows, message):
    file = written(tmp_path / "speed.csv", rows)
    with pytest.raises(DataError, match=f"speed.csv.*{message}"):
        devices.TraceDevice(file)
    with pytest.raises(DataError, match=f"device: .*speed.csv.*{message}"):
        DEVICES.build({"name": "trace", "file": file}, "device")


def test_a_missing_file_and_a_strange_one(tmp_path):
    sentence = (
        r"got 'nowhere.csv'; expected the path of a .csv or .parquet file that exists "
        r"\(relative paths start at /"
    )
    with pytest.raises(DataError, match=sentence):
        DEVICES.build({"name": "trace", "file": "nowhere.csv"})
    with pytest.raises(DataError, match=r"expected a .csv or a .parquet file"):
        network.TraceNetwork(written(tmp_path / "links.txt", "up_mbps\n1\n"))
    with pytest.raises(DataError, match="column 'up_mbps' must be above 0 megabits a second"):
        network.TraceNetwork(written(tmp_path / "links.csv", "up_mbps\n0\n"))
    with pytest.raises(ConfigError, match="got assign = 'turn'; expected 'in_turn'"):
        network.TraceNetwork("x.csv", assign="turn")


def test_a_changed_file_is_read_anew(tmp_path):
    import os

    file = written(tmp_path / "speed.csv", "step_s\n1\n")
    device = devices.TraceDevice(file)
    assert seconds(device, np.arange(1)).tolist() == [1.0]
    written(tmp_path / "speed.csv", "step_s\n2\n")
    os.utime(file, ns=(1, 1))
    assert seconds(device, np.arange(1)).tolist() == [2.0]


@pytest.mark.parametrize(
    ("catalogue", "record", "message"),
    [
        (
            DEVICES,
            {"name": "uniform", "low": 0},
            "device: got \\[low, high\\] = \\[0.0, 0.5\\]; expected 0 < low <= high",
        ),
        (DEVICES, {"name": "uniform", "low": 1, "high": 0.5}, "expected 0 < low <= high"),
        (
            DEVICES,
            {"name": "uniform", "per": "clients"},
            "device.per: got 'clients' .did you mean 'client'",
        ),
        (DEVICES, {"name": "constant", "seconds": -1}, "got seconds = -1.0"),
        (
            DEVICES,
            {"name": "log_normal", "median": 0},
            "got median = 0.0; expected a finite number above 0",
        ),
        (DEVICES, {"name": "shifted_exponential", "lambda_t": float("inf")}, "got lambda_t = inf"),
        (
            NETWORKS,
            {"name": "uniform", "up_mbps": [5, 1]},
            "got up_mbps = \\[5.0, 1.0\\]; expected 0 < low <= high",
        ),
        (NETWORKS, {"name": "uniform", "up_mbps": [1, 2, 3]}, "expected a list of 2"),
        (NETWORKS, {"name": "uniform", "down_mbps": [0, 1]}, "got down_mbps"),
        (NETWORKS, {"name": "constant"}, "network.up_mbps: 'constant' needs this option"),
        (
            NETWORKS,
            {"name": "constant", "up_mbps": 0},
            "got up_mbps = 0.0; expected a finite number above 0 megabits a second",
        ),
        (NETWORKS, {"name": "log_normal", "sigma": -1}, "got sigma = -1.0"),
        (NETWORKS, {"name": "inverted", "law": "ranks"}, "did you mean 'rank'"),
        (NETWORKS, {"name": "inverted", "batches": 0}, "got batches = 0; expected at least 1"),
    ],
)
def test_bad_options_are_named(catalogue, record, message):
    with pytest.raises(ConfigError, match=message):
        catalogue.build(record)
