"""Measured devices, links and availability: hand-worked numbers, laws, tables and their sources."""

import csv
import tomllib

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.world import AVAILABILITY, DEVICES, NETWORKS
from motley.world.measured import (
    MeasuredAvailability,
    MeasuredDevice,
    MeasuredNetwork,
    table_path,
)

KEY = Streams(0).key("device")
MANY = np.arange(20_000)
LAWS = [
    lambda key, ids: MeasuredDevice("pcs_2022").step_s(key, ids, 1, ids, ids),
    lambda key, ids: MeasuredNetwork({"IN": 1, "KE": 2}).uplink_mbps(key, ids, 1),
    lambda key, ids: MeasuredNetwork("DE", per="round").downlink_mbps(key, ids, 3),
    lambda key, ids: MeasuredAvailability(spread=1.0).online(key, ids, 1, 50_000.0),
]


def seconds(device, ids=MANY):
    return device.step_s(KEY, ids, 1, ids, ids)


def within(values, mean, variance):
    return abs(np.mean(values) - mean) < 4 * np.sqrt(variance / len(values))


def rows(name):
    with table_path(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("law", LAWS)
def test_draws_are_a_function_of_seed_and_client(law):
    """The same answer twice, for any company of ids; another seed, another answer."""
    assert np.array_equal(law(KEY, MANY), law(KEY, MANY))
    assert np.array_equal(law(KEY, np.array([9, 4])), law(KEY, MANY)[[9, 4]])
    assert not np.array_equal(law(Streams(1).key("device"), MANY), law(KEY, MANY))


def test_devices_countries_and_quantiles_are_independent():
    """All three are drawn from one key, and none follows another."""
    fast = seconds(MeasuredDevice("pcs_2022")) < 0.3
    link = MeasuredNetwork({"IN": 1, "SG": 1}, per="client").uplink_mbps(KEY, MANY, 1)
    home = MeasuredNetwork("SG").uplink_mbps(KEY, MANY, 1)  # the same quantile, if in Singapore
    for first, second in ((fast, link == home), (fast, home), (link == home, home)):
        assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(MANY))


# ---------------------------------------------------------------- devices


def test_timed_phones_need_what_was_timed():
    """The slow phone has 18,820 of 35,407 shares, so it is the median: 1.642 s, and the others
    0.588 and 0.179 s, each for its share of the clients."""
    drawn = seconds(MeasuredDevice("phones_trained_2021", median_s=1.642))
    found, many = np.unique(drawn.round(3), return_counts=True)
    assert found.tolist() == [0.179, 0.588, 1.642]
    for count, share in zip(many, np.array([159, 16_428, 18_820]) / 35_407, strict=True):
        assert abs(count - share * 20_000) < 4 * np.sqrt(20_000 * share * (1 - share))


def test_half_of_the_clients_are_slower_than_the_median():
    for table in ("phones_2020", "pcs_2022", "gpus_2026"):
        drawn = seconds(MeasuredDevice(table, median_s=2.0))
        deviation = 4 * np.sqrt(0.25 / len(MANY))
        assert (drawn < 2.0).mean() < 0.5 + deviation  # more where many share the median
        assert (drawn <= 2.0).mean() > 0.5 - deviation


def test_shares_of_segments():
    """Of two laptops to one integrated unit; seconds are of the whole table's median device, so
    both are slower than the table."""
    device = MeasuredDevice("pcs_2022", shares={"laptop": 2, "integrated": 1})
    drawn = seconds(device)
    table = rows("pcs_2022")
    rate = {row["device"]: float(row["rate"]) for row in table}
    order = sorted(table, key=lambda row: float(row["rate"]))
    half = sum(float(row["share"]) for row in table) / 2
    below = np.cumsum([float(row["share"]) for row in order])
    median = float(order[int(np.searchsorted(below, half))]["rate"])
    laptops = {
        round(0.3 * median / rate[row["device"]], 9) for row in table if row["segment"] == "laptop"
    }
    assert within([round(value, 9) in laptops for value in drawn], 2 / 3, 2 / 9)
    assert np.median(drawn) > 0.3
    assert {round(value, 9) for value in drawn} <= {
        round(0.3 * median / rate[row["device"]], 9) for row in table if row["segment"] != "desktop"
    }


# ---------------------------------------------------------------- links


def test_links_of_a_country_have_its_percentiles():
    """A twentieth of the clients lies below the fifth percentile, a half below the fiftieth; no
    client below the first or above the last."""
    row = next(row for row in rows("links_2025") if row["country"] == "DE")
    for way, drawn in (
        ("up", MeasuredNetwork("DE").uplink_mbps(KEY, MANY, 1)),
        ("down", MeasuredNetwork("DE").downlink_mbps(KEY, MANY, 1)),
    ):
        for percent in (5, 25, 50, 95):
            share = percent / 100
            assert within(drawn < float(row[f"{way}_{percent}"]), share, share * (1 - share))
        assert drawn.min() == float(row[f"{way}_1"])
        assert drawn.max() == float(row[f"{way}_99"])


def test_between_percentiles_rates_are_interpolated():
    """Germany's median upload is 19.4 and its 75th percentile 39.5: at 0.6 it is 19.4 + 0.4 (39.5 -
    19.4) = 27.44, and the download 51.4 + 0.4 (116 - 51.4) = 77.24."""

    class At:
        """A key that draws 0.6 for every client."""

        def fold(self, *_):
            return self

        def uniform(self, ids):
            return np.full((len(ids), 1), 0.6)

    link, ids = MeasuredNetwork("DE"), np.arange(2)
    assert link.uplink_mbps(At(), ids, 1) == pytest.approx([27.44, 27.44])
    assert link.downlink_mbps(At(), ids, 1) == pytest.approx([77.24, 77.24])


def test_a_technology_has_its_mean_and_the_spread_of_all_tests():
    """4G in Great Britain: 29.5 down, 7.6 up on average; so 13 % of downloads are below 2
    megabits a second and 7 % above 100, as the page says."""
    every, fourth = MeasuredNetwork("GB"), MeasuredNetwork("GB", "4g")
    for way, mean in (("uplink_mbps", 7.6), ("downlink_mbps", 29.5)):
        drawn = getattr(fourth, way)(KEY, MANY, 1)
        assert within(drawn, mean, drawn.var())
        ratio = drawn / getattr(every, way)(KEY, MANY, 1)
        assert ratio == pytest.approx(np.full(len(MANY), ratio[0]))
    assert within(drawn < 2, 0.126, 0.126 * 0.874)
    assert within(drawn > 100, 0.066, 0.066 * 0.934)


def test_a_client_keeps_its_country_and_may_change_its_quantile():
    once = MeasuredNetwork({"IN": 1, "SG": 3})
    anew = MeasuredNetwork({"IN": 1, "SG": 3}, per="round")
    assert np.array_equal(once.uplink_mbps(KEY, MANY, 1), once.uplink_mbps(KEY, MANY, 2))
    assert (anew.uplink_mbps(KEY, MANY, 1) != anew.uplink_mbps(KEY, MANY, 2)).mean() > 0.99
    # a client of Singapore is faster than India's last percentile, 242, in some round of 59
    row = next(row for row in rows("links_2025") if row["country"] == "SG")
    above = 1 - np.interp(242.0, [float(row["up_75"]), float(row["up_90"])], [0.75, 0.9])
    fast = [anew.uplink_mbps(KEY, MANY, round_index) > 242.0 for round_index in range(1, 60)]
    expected = 0.75 * (1 - (1 - above) ** 59)
    assert within(np.any(fast, axis=0), expected, expected * (1 - expected))


# ---------------------------------------------------------------- availability


def test_alike_phones_follow_the_chain_of_the_hours():
    """s' = s (1 - fall) + (1 - s) rise, half hour by half hour, from a day that is its own
    successor; these shares are also those that the trace shows, to a hundredth."""
    table = rows("phones_online_2020")
    share, day = 0.08, []
    for _ in range(10):
        day = []
        for row in table:
            share = share * (1 - float(row["fall"])) + (1 - share) * float(row["rise"])
            day.append(share)
    assert np.abs(np.array(day) - [float(row["online"]) for row in table]).max() < 0.01
    model = MeasuredAvailability(alike=True)
    for slot in (0, 10, 28, 47):
        moment = 86_400.0 * 3 + 1_800.0 * slot + 1.0
        assert within(model.online(KEY, MANY, 1, moment), day[slot], day[slot] * (1 - day[slot]))


def test_phones_differ_in_how_often_they_come():
    """A quarter of the phones never came; over five days the trace's median phone was online 4.2 %
    of the time, one in ten more than 22 %."""
    model = MeasuredAvailability()
    slots = 1_800.0 * np.arange(240) + 86_400.0 * 3
    share = np.mean([model.online(KEY, MANY[:4_000], 1, moment) for moment in slots], axis=0)
    assert (share == 0).mean() > 0.25
    assert np.quantile(share, [0.5, 0.9]) == pytest.approx([0.042, 0.224], abs=0.02)


def test_clocks_begin_and_differ_as_told():
    """A run that begins at 5 o'clock sees at once what another sees five hours later; with clocks
    over a whole day as many are online at any hour."""
    early, late = MeasuredAvailability(begin_h=5.0), MeasuredAvailability()
    five = 5 * 3600.0

    def share(model, time_s):
        return model.online(KEY, MANY, 1, time_s + 86_400.0).mean()

    assert share(early, 0.0) == pytest.approx(share(late, five), abs=0.015)
    assert share(early, 0.0) - share(early, 9 * 3600.0) > 0.03
    world = MeasuredAvailability(spread=1.0)
    assert share(world, 0.0) == pytest.approx(share(world, 9 * 3600.0), abs=0.015)


def test_the_first_half_hour_with_a_phone_is_found():
    model, ids = MeasuredAvailability(alike=True), np.arange(2)
    away = next(t for t in np.arange(5.0, 1e6, 1_800.0) if not model.online(KEY, ids, 1, t).any())
    back = model.back_s(KEY, ids, 1, away)
    assert back % 1_800 == 0
    assert model.online(KEY, ids, 1, back).any()
    between = np.arange(away, back, 1_800.0)
    assert not any(model.online(KEY, ids, 1, moment).any() for moment in between)


# ---------------------------------------------------------------- tables and mistakes


def test_every_table_has_a_source_and_every_source_a_table():
    folder = table_path("x").parent
    sources = tomllib.loads((folder / "sources.toml").read_text(encoding="utf-8"))
    assert sorted(sources) == sorted(path.stem for path in folder.glob("*.csv"))
    fields = {"what", "title", "publisher", "where", "licence", "chosen"}
    assert all(set(source) == fields for source in sources.values())


@pytest.mark.parametrize("table", ["phones_2020", "phones_trained_2021", "pcs_2022", "gpus_2026"])
def test_devices_have_a_positive_rate_and_share(table):
    found = rows(table)
    assert all(float(row["rate"]) > 0 and float(row["share"]) > 0 for row in found)
    assert len({(row["device"], row["rate"]) for row in found}) == len(found)


def test_percentiles_rise_and_codes_are_unique():
    found = rows("links_2025")
    assert len({row["country"] for row in found}) == len(found)
    for row in found:
        for way in ("down", "up"):
            rates = [float(row[f"{way}_{p}"]) for p in (1, 5, 10, 25, 50, 75, 90, 95, 99)]
            assert rates == sorted(rates)
            assert rates[0] > 0


@pytest.mark.parametrize(
    ("catalogue", "record", "message"),
    [
        (DEVICES, {"table": "phones"}, r"device.table: got 'phones' \(did you mean 'phones_2020'"),
        (DEVICES, {"median_s": 0}, "got median_s = 0.0; expected a finite number above 0"),
        (
            DEVICES,
            {"table": "gpus_2026", "shares": {"laptops": 1}},
            r"got shares of 'laptops' \(did you mean 'laptop'\?\); expected segments of gpus_2026: "
            "apple, data_centre, desktop, edge, laptop, workstation",
        ),
        (
            DEVICES,
            {"shares": {"2019": -1}},
            "got shares.2019 = -1; expected a finite number of at least 0",
        ),
        (DEVICES, {"shares": {"2019": 0}}, "expected a share above 0 for one of them"),
        (NETWORKS, {}, "'measured' needs this option"),
        (
            NETWORKS,
            {"country": "Germany"},
            r"got country 'Germany' \(did you mean 'DE'\?\); expected a code of two letters: AE,",
        ),
        (NETWORKS, {"country": "de"}, r"did you mean 'DE'"),
        (NETWORKS, {"country": {"DE": 1, "Brasil": 1}}, r"got country 'Brasil' .* 'BR'"),
        (NETWORKS, {"country": {}}, "expected a share above 0"),
        (
            NETWORKS,
            {"country": "DE", "technology": "4g"},
            'got technology = "4g" with country DE; speeds by technology are known of GB: write it',
        ),
        (NETWORKS, {"country": "GB", "technology": "6g"}, "did you mean '5g'|got '6g'"),
        (AVAILABILITY, {"begin_h": 24}, r"got begin_h = 24.0; expected an hour in \[0, 24\)"),
        (AVAILABILITY, {"spread": 2}, "got spread = 2.0"),
    ],
)
def test_bad_options_are_named(catalogue, record, message):
    with pytest.raises(ConfigError, match=message):
        catalogue.build({"name": "measured", **record})
