"""What a private run admits: nothing measured over all clients, no uncounted look, no time that
follows clients' data."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from torch import nn

import motley
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.parts import LocalRule, Method, Part
from motley.core.errors import ConfigError, DataError, StoreError
from motley.core.keys import Key
from motley.core.paper import cite
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.selectors.poisson import Poisson
from motley.selectors.power_of_choice import PowerOfChoice
from motley.selectors.uniform import Uniform
from motley.tasks import from_clients, own_task
from motley.tasks.held_out import hold_out_clients
from motley.transport.allocators.uniform_ratio import UniformAllocator
from motley.world import DEVICES
from motley.world.devices import ConstantDevice, ShiftedExponential
from motley.world.interfaces import Availability, Device, Drift

pytest.importorskip("dp_accounting")
GAUSS = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0, "max_rounds": 9}
SIZES = {"num_examples": {"low": 0.0, "high": 100.0, "multiplier": 5.0}}
BASE = {
    "task": "quadratic",
    "population": 8,
    "cohort": 4,
    "partition": "by_writer",
    "stop": {"rounds": 2},
    "weights": "uniform",
    "local": {"steps": 2},
    "engine": "sequential",
    "privacy": GAUSS,
}
DIGITS = {"task": {"name": "image", "data": "digits", "scale": "unit"}, "partition": "iid"}
TEXTS = {"ann": "abcabcabcabcabcabc", "bob": "aabbaabbaabbaabbaabb"}


def finished(**keys):
    loop = build({**BASE, **keys})
    while not loop.done:
        loop.step()
    return loop


# ---------------------------------------------------------------- what is measured over all clients


@pytest.fixture(name="table")
def fixture_table(tmp_path):
    """Rows of eight clients: a number with a gap, a word that client 0 alone has, a class."""
    rows = ["site,age,job,label"]
    rows += [
        f"{k},{20 + k + i if i else ''},{'miner' if k == 0 and i == 1 else 'clerk'},{i % 2}"
        for k in range(8)
        for i in range(6)
    ]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(rows))
    return {"name": "tabular", "data": str(path), "client": "site"}


def images(folder):
    rng = np.random.default_rng(0)
    path = folder / "images.npz"
    np.savez(
        path,
        x=rng.integers(0, 256, (80, 8, 8), np.uint8),
        y=np.arange(80) % 4,
        client=np.repeat(np.arange(8), 10),
    )
    return str(path)


def texts(folder):
    root = folder / "texts"
    root.mkdir()
    for name, text in TEXTS.items():
        (root / f"{name}.txt").write_text(text)
    return {
        "name": "text",
        "data": str(root),
        "window": 4,
        "model": {"name": "leaf_lstm", "hidden": 4},
    }


def refused(said, **keys):
    with pytest.raises(ConfigError, match=said):
        build({**BASE, **keys})


def test_pixels_are_not_scaled_by_all_clients():
    refused(
        r"^task\.scale: mean and deviation of the pixels are measured over all clients\' samples, "
        r'.* write task\.scale = "unit"$',
        **{**DIGITS, "task": {"name": "image", "data": "digits"}},
    )
    finished(**DIGITS)


def test_the_femnist_example_is_admitted():
    """It had the default scale, whose statistics are written to preparation.json."""
    path = Path(__file__).parents[2] / "examples" / "private_femnist.toml"
    assert tomllib.loads(path.read_text())["task"]["scale"] == "unit"


@pytest.mark.parametrize("scale", ["standard", "federated"])
def test_columns_are_not_scaled_by_all_clients(table, scale):
    refused(
        r"^task\.scale: mean and deviation of the columns, .* fixed = \{ age",
        population=None,
        task={**table, "scale": scale},
    )


def test_categories_are_not_collected_from_all_clients(table):
    refused(
        r"^task\.scale: the categories of column 'job' are collected",
        population=None,
        task={**table, "scale": "client"},
    )


def test_classes_are_not_collected_from_all_clients(table, tmp_path):
    fixed = {"scale": "fixed", "fixed": {"age": [25.0, 5.0], "job": ["clerk"]}}
    refused(
        r"^task\.classes: the classes are collected .* write task\.classes = 10",
        population=None,
        task={**table, **fixed},
    )
    image = {
        "name": "image",
        "data": images(tmp_path),
        "scale": "unit",
        "model": "logistic_regression",
    }
    refused(r"^task\.classes: the classes are collected", population=None, task=image)
    assert finished(population=None, task={**image, "classes": 6}).federation.classes == 6


def test_an_alphabet_is_not_collected_from_all_clients(tmp_path):
    task = texts(tmp_path)
    refused(r"^task\.alphabet: the alphabet is collected", population=None, cohort=2, task=task)
    data = build(
        {**BASE, "population": None, "cohort": 2, "task": {**task, "alphabet": "ba"}}
    ).federation
    assert data.names == ("a", "b", "unknown")
    assert (data.y == 2).any()  # c


def test_a_common_test_set_is_not_drawn_from_natural_clients(table):
    task = {
        **table,
        "scale": "fixed",
        "fixed": {"age": [25.0, 5.0], "job": ["clerk"]},
        "classes": 2,
    }
    refused(
        r"^split\.test: a common test set is drawn",
        population=None,
        task=task,
        split={"test": "global"},
    )


def test_fixed_numbers_and_words_measure_nothing(table, tmp_path):
    """Client 0's word and its gaps change no other client's inputs, nor how many inputs there
    are."""
    task = {
        **table,
        "scale": "fixed",
        "fixed": {"age": [25.0, 5.0], "job": ["nurse", "clerk"]},
        "classes": 2,
    }
    done = motley.run({**BASE, "population": None, "task": task}, out=tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "preparation.json").read_text())
    assert "read" not in saved  # what cells hold, and how many are gaps
    assert saved["inputs"] == ["age", "job=clerk", "job=nurse", "job=other"]
    data = build({**BASE, "population": None, "task": task}).federation
    assert {tuple(row) for row in data.x[:, 1:].tolist()} == {(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)}
    assert sorted(set(data.x[:, 0].tolist()))[:2] == pytest.approx([-0.8, -0.6])
    assert (data.x[:, 0] == 0).sum() >= 8  # gaps are the mean
    assert len(done.predict([{"age": 30.0, "job": "miner"}])) == 1


def test_what_clients_measure_of_their_own_rows_stays_with_them(tmp_path):
    """A mean of each client, which preparation.json would hold."""
    rows = ["site,age,label", *[f"{k},{20 + k + i},{i % 2}" for k in range(8) for i in range(6)]]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    task = {
        "name": "tabular",
        "data": str(tmp_path / "t.csv"),
        "client": "site",
        "scale": "client",
        "classes": 2,
    }
    done = motley.run({**BASE, "population": None, "task": task}, out=tmp_path / "run")
    assert not (tmp_path / "run" / "preparation.json").exists()
    with pytest.raises(StoreError, match="each client of this private run scales by its own rows"):
        done.clients()[0].predict([{"age": 20.0}])
    open_run = motley.run(
        {**BASE, "population": None, "task": task, "privacy": "off"}, out=tmp_path / "open"
    )
    assert (open_run.directory / "preparation.json").exists()


def own(**options):
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(10, 3)), np.arange(10) % 2) for _ in range(8)]
    return own_task(from_clients(clients, **options), lambda: nn.Linear(3, 2))


def test_data_of_ones_own_says_its_classes():
    refused(r"classes=10 to from_arrays, from_clients or from_files", task=own())
    build({**BASE, "task": own(classes=2)})
    assert own().federation.y.equal(own(classes=2).federation.y)


def test_words_as_classes_keep_their_numbers_whatever_others_have():
    def federation(words, **options):
        return from_clients(
            [(np.ones((4, 2)), np.array(words)), (np.ones((4, 2)), np.array(["yes", "no"] * 2))],
            **options,
        )

    names = ["yes", "no", "maybe"]
    for words in (["yes", "no"] * 2, ["maybe", "no"] * 2):
        data = federation(words, classes=names)
        assert (data.classes, data.names) == (3, tuple(names))
        assert data.y[4:].tolist() == [0, 1, 0, 1]
    with pytest.raises(DataError, match=r"the label 'maybe' is not in task\.classes"):
        federation(["maybe"] * 4, classes=["yes", "no"])
    with pytest.raises(ConfigError, match="the labels are words"):
        federation(["maybe"] * 4, classes=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fixed": {"age": [1.0, 2.0]}}, r'got scale = "standard" and 1 columns'),
        ({"scale": "fixed"}, r'got scale = "fixed" and 0 columns'),
        ({"scale": "fixed", "fixed": {"age": [1.0, 0.0]}}, "a deviation above 0"),
        ({"scale": "fixed", "fixed": {"age": ["a", "a"]}}, "a list of different words"),
        ({"classes": 1}, "at least two classes"),
    ],
)
def test_fixed_numbers_that_cannot_be(table, options, said):
    refused(said, population=None, task={**table, **options})


def test_a_client_without_samples_would_never_be_asked():
    made = own(classes=2)
    gone = dataclasses.replace(hold_out_clients(made.federation, np.array([3])), held_out=None)
    refused(
        "client 3 has no training samples and would never be asked",
        task=dataclasses.replace(made, federation=gone),
    )


# ------------------------------------------------------------------------------------- time


SPEEDS = {"name": "shifted_exponential"}
FEDCS = {"name": "fedcs", "deadline": 30.0}
CLOCKS = [
    (
        {"synchrony": {"name": "deadline", "seconds": 2.0}},
        "'deadline' the time of one client decides which others",
    ),
    ({"synchrony": {"name": "deadline", "over_select": 1.5}}, "'deadline' the time of one client"),
    (
        {"synchrony": {"name": "buffered", "refill": "idle", "buffer": 2}},
        "'buffered' the time of one client",
    ),
    ({"synchrony": "asynchronous"}, "'asynchronous' the time of one client"),
    ({"selector": FEDCS}, "'fedcs' looks at seconds or steps"),
    (
        {
            "selector": "oort",
            "privacy": {
                **GAUSS,
                "signal_noise": {**SIZES, "loss_rms": {"low": 0.0, "high": 4.0, "multiplier": 5.0}},
            },
        },
        "'oort' looks at seconds or steps",
    ),
    ({"availability": "day_night"}, "'day_night' clients come and go by the clock"),
    (
        {"availability": {"name": "markov", "slot_s": 60.0}},
        "'markov' clients come and go by the clock",
    ),
    ({"stop": {"rounds": 2, "virtual_hours": 1.0}}, "ends the run by the clock"),
    (
        {**DIGITS, "drift": {"name": "swap", "start": 5.0, "clock": "seconds"}},
        "'swap' moves data by the clock",
    ),
]
SIZED = [
    (
        {"device": SPEEDS},
        "^device: 'shifted_exponential' takes time that follows the number of samples",
    ),
    ({"local": {"epochs": 1}}, r"^local\.epochs: work that is counted in epochs takes time"),
    (
        {"algorithm": {"name": "scaffold", "option": "I"}},
        "^algorithm: before or after its steps a client passes over all its samples",
    ),
]


@pytest.mark.parametrize(("sized", "why"), SIZED, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize(("timed", "what"), CLOCKS, ids=lambda value: str(value)[:40])
def test_time_that_tells_sizes_reaches_nothing_but_the_clock(sized, why, timed, what):
    if "algorithm" in sized and timed.get("synchrony") == "asynchronous":
        pytest.skip("asynchronous mixes models alone")
    with pytest.raises(ConfigError, match=rf'{why}.*{what}.*privacy\.sizes = "public"'):
        build({**BASE, **sized, **timed})
    public = {**timed.get("privacy", GAUSS), "sizes": "public"}
    build({**BASE, **sized, **timed, "privacy": public})
    build({**BASE, **timed})


@pytest.mark.parametrize(("sized", "why"), SIZED, ids=lambda value: str(value)[:30])
def test_time_may_follow_sizes_where_nothing_looks(sized, why):
    build({**BASE, **sized})


def test_a_client_may_not_be_in_one_sum_twice():
    refused(
        'a client may be in one sum twice, .*write synchrony = .*refill = "idle"',
        synchrony={"name": "buffered", "buffer": 2},
    )
    build({**BASE, "synchrony": {"name": "buffered", "buffer": 2, "refill": "idle"}})


def test_a_probe_moves_the_clock_but_no_client():
    """Rules that hear seconds go with it; whoever looks at the clock does not."""
    val = {"low": 0.0, "high": 4.0, "multiplier": 5.0}
    keys = {
        **DIGITS,
        "split": {"validation": 0.2},
        "selector": {"name": "tifl", "tiers": 2},
        "privacy": {**GAUSS, "signal_noise": {"val_loss": val}},
    }
    build({**BASE, **keys})
    refused(
        "to measure 'val_loss' before a choice takes time that follows numbers",
        **keys,
        availability="day_night",
    )


def test_public_sizes_need_no_noise_and_are_in_the_claim(tmp_path):
    loss = {"loss": {"low": 0.0, "high": 4.0, "multiplier": 5.0}}
    keys = {
        **BASE,
        "selector": "power_of_choice",
        "privacy": {**GAUSS, "sizes": "public", "signal_noise": loss},
    }
    loop = build(keys)
    heard = []
    observe = loop.state.selector.observe
    loop.state.selector.observe = lambda t, reports: heard.append(reports) or observe(t, reports)
    loop.step()
    assert (heard[0].signal("num_examples") == loop.federation.seen).all()
    done = motley.run(keys, out=tmp_path / "run")
    assert done.meta["privacy"]["sizes"] == "public"
    assert "The number of each client's samples is public" in " ".join(
        done.meta["privacy"]["claim"]
    )
    assert (
        Experiment(**keys).run_id()
        != Experiment(**{**keys, "privacy": {**keys["privacy"], "sizes": "private"}}).run_id()
    )


def test_a_model_that_does_not_say_whether_it_looks_at_sizes_or_time_is_taken_to_do_so():
    assert Device.follows_examples
    assert ShiftedExponential.follows_examples
    assert not ConstantDevice.follows_examples

    class Odd(Availability):
        def online(self, key, ids, round_index, time_s):
            return np.ones(len(ids), bool)

    class Swapped(Drift):
        def tables(self, key, ids, classes, round_index, time_s):
            return np.broadcast_to(np.arange(classes), (len(ids), classes))

    assert Odd().follows_time
    assert Swapped().follows_time
    assert not Drift().follows_time


def test_a_device_that_says_so_keeps_to_it():
    """Seconds per step of the named devices do not change with the number of samples."""
    ids = np.arange(5)
    for name in ("constant", "log_normal", "uniform", "shifted_exponential"):
        device = DEVICES.build(name)
        few, many = (
            device.step_s(Key(3), ids, 1, np.full(5, n), np.full(5, 4)) for n in (10, 1000)
        )
        assert (few == many).all() == (not device.follows_examples)


# --------------------------------------------------------------------- looks that no account counts


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"stop": {"rounds": 2, "target": {"loss": 0.1}}},
            r"^stop\.target: to end when an evaluation is good enough is a look",
        ),
        (
            {"stop": {"patience": 5}, "split": {"validation": 0.2}},
            r"^stop\.patience: to end when validation samples are served no better is a look",
        ),
        (
            {"network": "inverted"},
            r"^network: under 'inverted' one client's loss changes the links of all",
        ),
        (
            {"dishonest": {"name": "copy_best", "share": 0.2}},
            r"^dishonest: liars of the kind 'copy_best' repeat honest clients'",
        ),
        (
            {"dishonest": {"name": "coalition", "share": 0.2}},
            r"^dishonest: liars of the kind 'coalition'",
        ),
        (
            {"defence": "on", "weights": "examples", "privacy": {**GAUSS, "max_examples": 9}},
            r"^defence: a defence judges a client's number of samples by all others'",
        ),
        (
            {
                "network": "uniform",
                "compressor": "topk",
                "budget": {"average": 0.5},
                "allocator": "fedcg_lp",
            },
            r"^allocator: 'fedcg_lp' divides the budget by what clients have to do",
        ),
        (
            {**DIGITS, "task": {**DIGITS["task"], "heads": [0] * 5 + [1] * 5}},
            r"^task\.heads: a client's messages are as long as",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_looks_at_clear_data_and_changes_what_all_do_is_refused(keys, said):
    refused(said, **keys)


def test_no_round_is_chosen_by_clear_validation_samples(tmp_path):
    keys = {**BASE, **DIGITS, "split": {"validation": 0.2}, "evaluate": {"every": 1}}
    done = motley.run(keys, out=tmp_path / "run")
    assert not (tmp_path / "run" / "best.safetensors").exists()
    assert "validation_mean" in done.tables["evaluations"]["scope"].to_pylist()
    motley.run({**keys, "privacy": "off"}, out=tmp_path / "open")
    assert (tmp_path / "open" / "best.safetensors").exists()


def test_no_model_is_restored_because_clear_test_samples_say_so():
    """A loss that is not finite brings the last good model back, but in a private run."""
    for privacy, back in ((GAUSS, False), ("off", True)):
        loop = build({**BASE, "privacy": privacy, "evaluate": {"every": 1}})
        loop.step()
        good = loop.state.server
        loop.refusals.good = good
        loop.step()
        newest = loop.state.server
        loop.refusals.good = good
        loop.refusals.evaluated(loop.state, {"loss": float("nan")}, True)
        assert loop.state.server is (good if back else newest)


# ------------------------------------------------------- what a class of one's own does not promise


@dataclasses.dataclass(frozen=True)
class Stride(Uniform):
    """Every third client alone."""

    def select(self, state, context):
        return super().select(state, dataclasses.replace(context, available=context.available[::3]))


@dataclasses.dataclass(frozen=True)
class Favourite(PowerOfChoice):
    def select(self, state, context):
        return super().select(state, context)


def test_a_rule_that_chooses_in_its_own_way_inherits_no_draw():
    """The account would amplify by m / K, where every third client alone is ever drawn."""
    assert Uniform().known_draw(2, 9) == Uniform().draw(2, 9)
    assert Poisson().known_draw(2, 9) == Poisson().draw(2, 9)
    assert Stride().known_draw(2, 9) is None
    hidden = {**GAUSS, "cohorts": "hidden"}
    del hidden["max_rounds"]
    refused("does not draw cohorts without a look at data", selector=Stride(), privacy=hidden)
    assert PowerOfChoice().known_top_m() == PowerOfChoice().top_m() == "loss"
    assert Favourite().known_top_m() is None


@dataclasses.dataclass(frozen=True)
class Larger(Mean):
    """A thousand times the mean, after the clip and before the noise."""

    def finish(self, total, divide):
        return {name: 1000 * value for name, value in super().finish(total, divide).items()}


def test_an_aggregator_of_ones_own_promises_no_plain_sum():
    refused("how far one client moves what Larger makes", aggregator=Larger())
    assert Larger().sees_single_uploads
    assert not Mean().sees_single_uploads


@dataclasses.dataclass(frozen=True)
class Telling(LocalRule):
    """Sends the model once more, as a part to which no noise is added."""

    def finish(self, after, context):
        parts, kept = super().finish(after, context)
        return {**parts, "mine": Part(after.x, "convex")}, kept


@dataclasses.dataclass(frozen=True)
class Tells(Method):
    paper = cite("mcmahan2017communication")

    def change(self, algorithm):
        return algorithm.replace(local=Telling())


def test_a_part_to_which_no_noise_is_added_is_refused():
    refused(r"clients also send 'mine' \(convex\), to which no noise is added", algorithm=Tells())


@dataclasses.dataclass(frozen=True)
class Watching(UniformAllocator):
    looks_at_work: ClassVar[bool] = False

    def observe(self, state, budget, reports, step_norm):
        return {"norms": reports.signal("update_norm")}


def test_an_allocator_hears_no_norms_of_updates():
    """One with a state before round 1 is refused; one that begins with none keeps none."""
    sent = {
        "compressor": "topk",
        "budget": {"name": "constant", "average": 0.5},
        "feedback": "fixed",
        "allocator": Watching(),
    }
    assert finished(**sent).pipeline.allocator == {}
    plain = {**BASE, **sent}
    del plain["privacy"]
    loop = build(plain)
    loop.step()
    assert len(loop.pipeline.allocator["norms"]) == 4


@dataclasses.dataclass(frozen=True)
class Asking(Average):
    heard: ClassVar[list] = []

    def update(self, state, total, context):
        self.heard.append(context.losses)
        return super().update(state, total, context)


def test_a_server_rule_that_does_not_say_so_asks_no_client():
    Asking.heard.clear()
    finished(server=Asking())
    assert Asking.heard == [None, None]


@pytest.mark.parametrize(
    ("cohort", "sentence"), [(1, "taken as hidden, which amplifies"), (7, "amplifies nothing")]
)
def test_the_claim_says_whether_hidden_cohorts_amplify(cohort, sentence):
    hidden = {**GAUSS, "cohorts": "hidden", "adjacency": "replace_one"}
    del hidden["max_rounds"]
    plan = build(
        {**BASE, "cohort": cohort, "selector": "uniform", "privacy": hidden}
    ).config.privacy
    assert sentence in " ".join(plan.claim(simulated=True))
