"""Who gained: pairs of runs, rows, pictures, tables for print, and what to run where nobody trained
alone; new clients' figures."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from motley.results import tables
from motley.results.gains import LOCAL, SHARED, gain_rows, local_rival, missing_local
from motley.results.labels import group_runs
from motley.results.measures import client_gains, participation
from motley.results.new_clients import adapted_epochs, served_new
from motley.results.terminal import terminal_table
from motley_report import print_tables, sections
from motley_report.gain_plots import gain_pictures

sys.path.insert(0, str(Path(__file__).parent))
import fake

pytestmark = pytest.mark.usefixtures("drawn")


def learned(algorithm, own, seed=0, shared=None, new=None, least=20, **config):
    """A run whose last evaluation gave the clients these accuracies."""
    scopes = {"client": own, "shared_client": shared or []} | {
        f"new_client_{e}": each for e, each in (new or {}).items()
    }
    rows = [(scope, k, value) for scope, values in scopes.items() for k, value in enumerate(values)]
    rows += [
        ("mean", -1, sum(own) / len(own)),
        *((f"new_mean_{e}", -1, sum(v) / len(v)) for e, v in (new or {}).items()),
    ]
    scope, client, accuracy = zip(*rows, strict=True)
    count = len(rows)
    evaluations = fake.table(
        "evaluations",
        round=[4] * count,
        version=[4] * count,
        scope=scope,
        client=client,
        accuracy=accuracy,
        total_bits=[1.0] * count,
    )
    federation = fake.table(
        "federation", client=range(len(own)), num_test=[least] * (len(own) - 1) + [30]
    )
    keys = {
        "algorithm": {"name": algorithm},
        "split": {"test": "client"},
        "local": {"epochs": 1},
        **config,
    }
    return fake.run(keys, seed=seed, evaluations=evaluations, federation=federation)


def test_rows_by_hand():
    """Against .5 .5 .5 .5: gains .2, 0, -.1, .3, so 2.5 of 4 are better off, with median .1; the
    shared model has .6 everywhere: gains .1, -.1, -.2, .2, 2 of 4, median 0."""
    own = learned("ditto", [0.7, 0.5, 0.4, 0.8], shared=[0.6] * 4)
    alone = learned("local_only", [0.5] * 4)
    local, shared = gain_rows(group_runs([own, alone]))
    assert (local.label, local.over, local.clients, local.left_out) == ("ditto", LOCAL, 4, 0)
    assert [local.share.mean, local.median.mean, local.worst.mean] == pytest.approx(
        [62.5, 10.0, -10.0]
    )
    assert (shared.label, shared.over) == ("ditto", SHARED)
    assert [shared.share.mean, shared.median.mean, shared.worst.mean] == pytest.approx(
        [50.0, 0.0, -20.0]
    )


def test_clients_with_few_test_samples_are_left_out_and_counted():
    own = learned("ditto", [0.7, 0.5, 0.9], least=19)
    alone = learned("local_only", [0.5] * 3)
    (row,) = gain_rows(group_runs([own, alone]))
    assert (row.clients, row.left_out, row.share.mean) == (1, 2, 100.0)
    found, left_out = client_gains(own, alone, least=1)
    assert (found.tolist(), left_out) == (pytest.approx([0.2, 0.0, 0.4]), 0)


def test_the_rival_has_the_same_data_seed_and_local_work():
    own = learned("ditto", [0.5] * 3, selector={"name": "oort"})
    others = [
        learned("local_only", [0.5] * 3, seed=1),
        learned("local_only", [0.5] * 3, local={"epochs": 2}),
        learned("local_only", [0.5] * 3, split={"test": "client", "holdout_clients": 0.2}),
        learned("fedavg", [0.5] * 3),
    ]
    assert local_rival(own, others) is None
    uniform = learned("local_only", [0.5] * 3, selector={"name": "uniform"})
    alike = learned("local_only", [0.5] * 3, selector={"name": "oort"})
    assert local_rival(own, [*others, uniform]) is uniform
    assert local_rival(own, [uniform, alike]) is alike
    assert local_rival(alike, [uniform, alike]) is None


def test_what_to_run_is_said_where_nobody_trained_alone():
    own = learned("ditto", [0.5] * 3)
    said = missing_local(group_runs([own, learned("fedper", [0.4] * 3)]))
    assert said.endswith(
        "motley compare FILE.toml --over algorithm=ditto,fedper,local_only runs it, too"
    )
    alone = missing_local(group_runs([own]))
    assert "motley run FILE.toml --set algorithm=local_only runs it, and motley report" in alone
    assert missing_local(group_runs([own, learned("local_only", [0.4] * 3)])) is None
    assert missing_local(group_runs([fake.run()])) is None
    assert tables.gains(group_runs([own])) is None


def test_the_picture_counts_the_helped_and_the_harmed():
    runs = [
        learned("ditto", [0.7, 0.5, 0.4, 0.8], shared=[0.6] * 4),
        learned("local_only", [0.5] * 4),
    ]
    local, shared = gain_pictures(group_runs(runs))
    assert (local.name, shared.name) == ("gains-local", "gains-shared")
    assert local.about.endswith("local training alone. ditto: 2 better off, 1 worse off, 1 alike")
    assert shared.about.endswith("own shared model. ditto: 2 better off, 2 worse off")
    assert 'class="method-0"' in local.svg
    assert gain_pictures(group_runs([fake.run()])) == []


def test_the_report_shows_pictures_before_the_table():
    runs = [learned("ditto", [0.7, 0.5], shared=[0.6] * 2), learned("local_only", [0.5] * 2)]
    titled = {getattr(one, "title", ""): one for one in sections.served(group_runs(runs)).blocks}
    assert [one.kind for one in titled["Who gained"].blocks] == ["picture", "picture", "table"]


def test_many_methods_have_small_panels():
    runs = [learned("fedper", [0.1 * k, 0.5, 0.9], selector={"name": f"s{k}"}) for k in range(9)]
    (picture,) = gain_pictures(group_runs([*runs, learned("local_only", [0.5] * 3)]))
    assert picture.about.count("better off") == 9


def terminal(table):
    console = Console(width=160)
    with console.capture() as got:
        console.print(table)
    return got.get()


def test_new_clients_by_epochs():
    """Two seeds with .4 and .6 at 0 epochs: 50 ± 14; after 5 epochs .8 and .8; worst tenth: the
    worst of the two clients."""
    runs = [
        learned("fedavg", [0.9], seed=s, new={0: [0.1, 0.7 + 0.4 * s], 5: [0.7, 0.9]})
        for s in (0, 1)
    ]
    assert adapted_epochs(runs[0]) == [0, 5]
    (mean, worst), (after, _) = (served_new(runs, epochs) for epochs in (0, 5))
    assert [mean.mean, mean.std, worst.mean, after.mean] == pytest.approx(
        [50.0, 200**0.5, 10.0, 80.0]
    )
    assert "50.0 ± 14.1" in terminal(terminal_table(tables.new_clients(group_runs(runs))))
    assert [
        cell.value for cell in tables.new_clients(group_runs(runs)).rows[0].cells
    ] == pytest.approx([50, 10, 80, 70])
    assert tables.new_clients(group_runs([fake.run()])) is None
    printed = next(
        one for one in print_tables.print_tables(group_runs(runs)) if one.name == "new_clients"
    )
    assert [head for head, _ in printed.heads] == ["0 epochs", "5 epochs"]


def test_participation_counts_those_who_could_take_part():
    federation = fake.table("federation", client=[0, 1, 2], held_out=[0, 1, 0])
    clients = fake.table("clients", round=[1, 2], client=[0, 2], outcome=["accepted"] * 2)
    found = participation(fake.run(federation=federation, clients=clients))
    assert (found.counts.tolist(), found.all_seen) == ([1, 1], 2.0)


@pytest.mark.parametrize("ruined", ["", "ditto", "local_only"])
def test_gains_over_some_clients_alone_are_none(ruined):
    """A client without a loss was ruined, by the method or alone: the other two would flatter one
    side."""
    nan = float("nan")
    runs = []
    for name, loss in (("ditto", 0.2), ("local_only", 0.3)):
        last = nan if name == ruined else loss
        runs.append(fake.of_losses([2.0, last], [loss, loss, last], name))
    (row,) = gain_rows(group_runs(runs))
    assert [row.share.n, row.median.n, row.worst.n] == [0 if ruined else 1] * 3
    assert bool(gain_pictures(group_runs(runs))) == (not ruined)


def test_a_seed_whose_new_clients_were_ruined_is_not_left_out():
    runs = [
        fake.of_losses([2.0, 0.3], seed=0, scopes={"new_mean_1": 0.4}),
        fake.of_losses([2.0, 0.3], seed=1, scopes={"new_mean_1": float("nan")}),
    ]
    assert served_new(runs[:1], 1)[0].mean == 0.4
    assert [spread.n for spread in served_new(runs, 1)] == [0, 0]
