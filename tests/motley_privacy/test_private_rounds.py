"""Private runs: contract of every admitted algorithm and compressor, signals, caps, cohorts of
coins, kill and resume, refusals."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch

import motley
from motley.algorithms.parts import Part, Upload
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.records import Cohort, Outcome, Reports
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.registry import catalogue
from motley.rounds.learning import Learning
from motley.selectors.poisson import Poisson
from motley.tasks import from_clients, own_task
from motley.testing.algorithms import adapted, mlp
from motley.world.interfaces import Failures
from motley_privacy.noise import noisy_shares
from motley_privacy.options import Privacy
from motley_privacy.private_rounds import PrivateRounds

pytest.importorskip("dp_accounting")
BASE = {
    "task": "quadratic",
    "population": 12,
    "cohort": 4,
    "partition": "by_writer",
    "stop": {"rounds": 4},
    "weights": "uniform",
    "evaluate": {"every": 2},
    "engine": "sequential",
    "local": {"steps": 1},
}
GAUSS = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 1.0, "noise_seed": 0}
SIZES = {"low": 0.0, "high": 100.0, "multiplier": 5.0}
LOSS = {"low": 0.0, "high": 4.0, "multiplier": 5.0}
INFORMED = {**GAUSS, "noise_multiplier": 4.0, "signal_noise": {"loss": LOSS, "num_examples": SIZES}}
CLASSES = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"},
    "split": {"test": "client"},
    "partition": "iid",
}


def loop_of(**keys):
    return build({key: value for key, value in {**BASE, **keys}.items() if value is not None})


def finished(**keys):
    loop = loop_of(**keys)
    while not loop.done:
        loop.step()
    return loop


ADMITTED = [
    {"algorithm": "fedavg"},
    {"algorithm": {"name": "fedprox", "mu": 0.1}},
    {"algorithm": "fedadam"},
    {"algorithm": "fedavgm"},
    {"algorithm": "feddyn"},
    {"algorithm": "scaffold", "privacy": {**GAUSS, "part_clips": {"dc": 0.1}}},
    {"algorithm": "fednova", "privacy": {**GAUSS, "part_clips": {"solver_norm": 20.0}}},
    {"weights": "examples", "privacy": {**GAUSS, "max_examples": 10}},
    {"compressor": "topk", "budget": {"average": 0.5}},
    {"compressor": "topk", "budget": {"average": 0.5}, "feedback": "fixed"},
    {"compressor": "qsgd"},
    {"synchrony": {"name": "buffered", "refill": "idle", "buffer": 3}, "stop": {"rounds": 3}},
    {"synchrony": {"name": "asynchronous"}, "stop": {"rounds": 6}},
    {"failures": {"name": "drop_out", "rate": 0.5}},
]
ADAPTED = {
    "task": own_task(
        from_clients(
            [(np.full((9, 6), k / 9, np.float32), np.arange(9) % 4) for k in range(12)],
            test_fraction=0.25,
            classes=4,
        ),
        partial(adapted, mlp),
    ),
    "population": None,
    "partition": None,
}
SERVED = {**CLASSES, "split": {"test": "client", "server": 0.1}}
NO_BOUND = {
    "ca2fl": {},
    "fedadamw": {},
    "fedas": CLASSES,
    "fedawe": {},
    "fedbio": SERVED,
    "feddf": {**SERVED, "public": 0.1},
    "fedex_lora": ADAPTED,
    "fedexp": {},
    "fedgh": CLASSES,
    "fedkd": CLASSES,
    "fedmd": {**CLASSES, "public": 0.1},
    "fedpac": CLASSES,
    "fedproto": CLASSES,
    "fedrolex": CLASSES,
    "fedvarp": {},
    "fiarse": CLASSES,
    "fjord": CLASSES,
    "flexlora": ADAPTED,
    "flora": ADAPTED,
    "heterofl": CLASSES,
    "hetlora": ADAPTED,
    "ifca": {},
    "lora_fedavg": ADAPTED,
    "mifa": {},
    "pfedfda": CLASSES,
    "qfedavg": {},
    "rhfl": {**CLASSES, "public": 0.1},
}
"""The algorithms that are refused, with what they need to be reached at all."""
OF_CLASSES = ("fedbabu", "fedlc", "fedper", "fedrep", "fedrod", "flash_robust", "fml")
OF_ADAPTERS = ("fedsa_lora", "ffa_lora")
SPARSE = ("randomk", "tensor_drop", "topk")
ADMITTED += [
    {
        "algorithm": {"name": name, "lam": 10.0} if name == "pfedme" else name,
        **(CLASSES if name in OF_CLASSES else ADAPTED if name in OF_ADAPTERS else {}),
        "stop": {"rounds": 2},
    }
    for name in catalogue("algorithm").names()
    if catalogue("algorithm").is_builtin(catalogue("algorithm").get(name)) and name not in NO_BOUND
]
ADMITTED += [
    {
        "compressor": name,
        **({"budget": {"average": 0.5}} if name in SPARSE else {}),
        "stop": {"rounds": 2},
    }
    for name in catalogue("compressor").names()
    if catalogue("compressor").is_builtin(catalogue("compressor").get(name))
]


@pytest.mark.parametrize("name", sorted(NO_BOUND))
def test_algorithms_without_a_known_bound_are_refused(name):
    with pytest.raises(ConfigError, match=r"^privacy: .* leave privacy out"):
        loop_of(**NO_BOUND[name], algorithm=name, privacy=GAUSS)


@pytest.mark.parametrize(
    "keys", ADMITTED, ids=lambda keys: "-".join(f"{k}" for k in map(str, keys.values()))[:50]
)
@pytest.mark.filterwarnings("ignore:.*leaves layers with the clients")
def test_nobody_moves_the_sum_by_more_than_c(keys, monkeypatch):
    """The sum with and without each upload, as the aggregator gets them."""
    loop = loop_of(**{"privacy": GAUSS, **keys})
    seen = []
    arrived = Learning._arrived

    def noted(*args, **named):
        found = arrived(*args, **named)
        seen.append(found.upload)
        return found

    monkeypatch.setattr(Learning, "_arrived", noted)
    while not loop.done:
        loop.step()
    shares = loop.config.privacy.shares
    assert seen
    for upload in seen:
        parts = {name: part for name, part in upload.parts.items() if part.value.numel()}
        assert {part.fold for part in parts.values()} <= {"mean", "sum", "weighted_sum"}
        squares = [
            float((part.value.double() / shares.get(name, 1.0)).square().sum())
            for name, part in parts.items()
        ]
        assert math.sqrt(sum(squares)) <= 0.5
        assert upload.weight == 1.0
    assert np.isfinite(loop.state.scores.newest["loss"])


def test_without_the_table_nothing_changes():
    plain = Experiment(**BASE)
    assert (
        plain.run_id()
        == Experiment(**{**BASE, "privacy": None}).run_id()
        == Experiment(**{**BASE, "privacy": "off"}).run_id()
    )
    assert "privacy" not in finished().save()["stages"]


def test_whatever_changes_results_is_in_the_run_id():
    ids = {
        Experiment(**{**BASE, "privacy": p}).run_id()
        for p in (
            None,
            GAUSS,
            {**GAUSS, "clip": 1.0},
            {**GAUSS, "noise_multiplier": 2.0},
            {**GAUSS, "max_rounds": 2},
        )
    }
    assert len(ids) == 5


def test_noise_that_is_calibrated_to_a_number_of_rounds_makes_it_count():
    target = {"clip": 1.0, "delta": 1e-5, "epsilon": 8.0}
    ids = {
        Experiment(**{**BASE, "privacy": target, "stop": {"rounds": n}}).run_id() for n in (4, 5)
    }
    assert len(ids) == 2
    assert (
        len(
            {
                Experiment(**{**BASE, "privacy": GAUSS, "stop": {"rounds": n}}).run_id()
                for n in (4, 5)
            }
        )
        == 1
    )


def test_a_deployment_draws_from_the_operating_system():
    """The same sum twice: with the seed's noise it is the same again, with the system's it is
    not."""
    loop = loop_of(privacy=GAUSS)
    zero = {"delta": torch.zeros_like(loop.state.server.model.x).double()}

    def sums(simulated):
        rounds = PrivateRounds(loop.config.privacy, loop.private.empty)
        rounds.begin(12, simulated)
        return [
            rounds.noised(rounds.account, 1, dict(zero), lambda notes: None)["delta"]
            for _ in range(2)
        ]

    assert torch.equal(*sums(simulated=True))
    assert not torch.equal(*sums(simulated=False))
    assert "operating system's generator" in " ".join(loop.config.privacy.claim(simulated=False))


def test_the_step_is_the_clipped_sum_over_a_fixed_divisor():
    """One round without noise: with a tiny clip the mean of four vectors of norm C has at most norm
    C, with a wide one it is plain."""

    def moved(clip):
        loop = loop_of(
            stop={"rounds": 1}, **({} if clip is None else {"privacy": {**GAUSS, "clip": clip}})
        )
        start = loop.state.server.model.x.double()
        if clip is not None:
            loop.private.plan = dataclasses.replace(loop.private.plan, update_multiplier=1e-15)
        loop.step()
        return float((loop.state.server.model.x.double() - start).norm())

    assert 0 < moved(1e-3) <= 1e-3 * 1.01
    assert moved(1e6) == pytest.approx(moved(None), rel=1e-5)


def test_the_selector_hears_noisy_numbers_and_nothing_else():
    loop = loop_of(selector="power_of_choice", privacy=INFORMED)
    heard = []
    observe = loop.state.selector.observe
    loop.state.selector.observe = lambda t, reports: (
        heard.append((t, reports)) or observe(t, reports)
    )
    loop.step()
    enrolled, probed, reported = (reports for _, reports in heard)
    assert set(enrolled.signals) == {"num_examples"}
    assert set(probed.signals) == {"loss"}
    assert set(reported.signals) == set()
    for reports in (enrolled, probed, reported):
        for column in ("num_examples", "local_steps", "compute_s", "upload_s", "bits_up"):
            assert np.isnan(getattr(reports, column)).all()
    clear = loop.federation.seen
    assert (np.abs(enrolled.signal("num_examples") - clear) > 0).all()


SHARES = {"label_histogram": {"multiplier": 2.0}}


def test_a_histogram_is_heard_once_as_noisy_shares():
    """In noise of scale 0.02 (multiplier 0.01, width 2) the shares are near the clear ones, not
    below 0, and sum to 1."""
    loop = loop_of(
        **CLASSES,
        selector="fedcbs",
        privacy={**GAUSS, "signal_noise": {"label_histogram": {"multiplier": 0.01}}},
    )
    counts = loop.federation.histogram().astype(float)
    counts[3], counts[5, 0] = 0.0, np.nan
    reports = Reports(np.arange(12), Outcome.ENROLLED, signals={"label_histogram": counts})
    heard = loop.private.heard(loop.private.account, reports).signals["label_histogram"]
    assert (heard >= 0).all()
    np.testing.assert_allclose(heard.sum(axis=1), 1.0)
    np.testing.assert_allclose(heard[0], counts[0] / counts[0].sum(), atol=0.3)
    assert np.abs(heard[0] - counts[0] / counts[0].sum()).max() > 1e-4
    # it was sent
    assert np.isnan(
        loop.private.heard(loop.private.account, reports).signals["label_histogram"]
    ).all()
    assert loop.private.account.signals["label_histogram"].tolist() == [1] * 12


@pytest.mark.parametrize(
    ("selector", "more"),
    [
        ({"name": "hetero_select", "w_direction": 0.0}, {"loss": LOSS}),
        ("fedcbs", SHARES),
        ("hetero_select_v1", {**SHARES, "loss": LOSS, "update_norm": LOSS}),
        (
            {"name": "hetero_select_v1", "probe": "last_report"},
            {**SHARES, "loss": LOSS, "update_norm": LOSS},
        ),
    ],
    ids=["hetero_select", "fedcbs", "v1", "v1 last report"],
)
def test_rules_of_histograms_and_of_norms_run(selector, more):
    """What is counted and what the claim adds up agree: a histogram once, other signals up to four
    times."""
    loop = finished(
        **CLASSES,
        selector=selector,
        privacy={**GAUSS, "noise_multiplier": 4.0, "signal_noise": more},
    )
    assert loop.private.account.sums.sum() == 16
    sent = {name: counts.max() for name, counts in loop.private.account.signals.items()}
    for release, name in zip(loop.config.privacy.releases[1:], sorted(more), strict=True):
        assert (release.kind, release.multiplier) == ("laplace", 2.0 * more[name]["multiplier"])
        assert 1 <= sent[name] <= release.count == (1 if name == "label_histogram" else 4)


def test_a_histogram_with_nothing_left_is_absent():
    # half of the numbers are below 0
    noisy = noisy_shares(Key(1), np.arange(200), np.zeros((200, 1)), 1.0)
    gone = np.isnan(noisy[:, 0])
    assert gone.any()
    assert (noisy[~gone] == 1.0).all()


def test_a_number_that_is_absent_is_the_middle_of_the_interval():
    loop = loop_of(
        selector="power_of_choice",
        privacy={
            **INFORMED,
            "signal_noise": {"loss": {**LOSS, "multiplier": 0.01}, "num_examples": SIZES},
        },
    )
    reports = Reports(np.arange(3), Outcome.PROBED, signals={"loss": np.array([np.nan, 9.0, -1.0])})
    # 30 times the scale
    np.testing.assert_allclose(
        loop.private.heard(loop.private.account, reports).signal("loss"), [2.0, 4.0, 0.0], atol=1.2
    )
    again = loop.private.heard(loop.private.account, reports).signal("loss")
    # no noise comes twice
    assert (again != loop.private.heard(loop.private.account, reports).signal("loss")).all()


def test_a_client_at_its_cap_is_not_asked_again():
    loop = finished(privacy={**GAUSS, "max_rounds": 1}, stop={"rounds": 5})
    assert loop.private.account.sums.tolist() == [1] * 12  # three rounds of 4; then nobody is left
    assert loop.private.account.choices.tolist() == [1] * 12


def test_a_client_at_its_cap_sends_no_more_signals():
    loop = finished(
        selector={"name": "power_of_choice", "d": 12},
        privacy={**INFORMED, "max_signals": 2},
        stop={"rounds": 5},
    )
    counts = loop.private.account.signals
    assert counts["loss"].tolist() == [2] * 12
    assert counts["num_examples"].tolist() == [1] * 12


@pytest.mark.parametrize(
    "synchrony",
    ["synchronous", {"name": "buffered", "refill": "idle", "buffer": 3}, "asynchronous"],
    ids=str,
)
def test_updates_of_a_client_enter_sums_as_far_apart_as_their_noise_is_correlated(synchrony):
    loop = loop_of(privacy={**GAUSS, "min_separation": 3}, synchrony=synchrony, stop={"rounds": 24})
    sums = []
    enter = loop.private.account.enter
    loop.private.account.enter = lambda ids: sums.append(set(ids.tolist())) or enter(ids)
    while not loop.done:
        loop.step()
    assert len(sums) == 24
    assert loop.private.account.sums.max() > 1
    assert not any(sums[t] & sums[t + gap] for gap in (1, 2) for t in range(24 - gap))
    assert loop.config.privacy.max_rounds == 8  # of 24 sums, one in three


def test_correlated_noise_costs_what_as_many_independent_sums_cost():
    once = loop_of(privacy={**GAUSS, "max_rounds": 2}).config.privacy
    correlated = loop_of(privacy={**GAUSS, "min_separation": 2}).config.privacy
    assert correlated.releases == once.releases
    assert correlated.bound == once.bound


def test_a_run_with_correlated_noise_goes_on_with_the_noise_that_it_takes_back():
    keys = {"privacy": {**GAUSS, "min_separation": 3}, "stop": {"rounds": 6}}
    whole = finished(**keys)
    first = loop_of(**keys)
    second = loop_of(**keys)
    for _ in range(3):
        first.step()
    second.restore(first.save())
    while not second.done:
        second.step()
    assert (second.state.server.model.x == whole.state.server.model.x).all()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"cohort": 5},
            "3 cohorts of 5 without a common client need 15 clients, and there are 12; write at "
            "most .* = 2",
        ),
        (
            {"privacy": {"clip": {"initial": 0.5}}},
            "noise of sums with other clips cannot be taken back",
        ),
        (
            {"selector": {"name": "poisson", "rate": 0.3}, "privacy": {"cohorts": "hidden"}},
            'write cohorts = "seen"',
        ),
    ],
)
def test_correlated_noise_is_refused_where_its_account_does_not_hold(keys, said):
    with pytest.raises(ConfigError, match=f"^privacy.min_separation: .*{said}"):
        loop_of(**{**keys, "privacy": {**GAUSS, "min_separation": 3, **keys.get("privacy", {})}})


def test_caps_bound_the_claim():
    capped = finished(privacy={**GAUSS, "max_rounds": 1}).config.privacy.bound.epsilon
    assert capped < finished(privacy=GAUSS).config.privacy.bound.epsilon
    once = finished(
        privacy={**GAUSS, "adjacency": "replace_one", "noise_multiplier": 2.0, "max_rounds": 1}
    ).config.privacy
    # replace-one is zero-out with half the multiplier
    assert once.bound.epsilon == pytest.approx(capped)


def test_cohorts_of_coins_vary_and_an_empty_one_is_noise():
    loop = loop_of(
        selector={"name": "poisson", "rate": 0.05},
        cohort=1,
        stop={"rounds": 12},
        privacy={**GAUSS, "cohorts": "hidden"},
    )
    sizes = []
    while not loop.done:
        before = loop.state.server.model.x.clone()
        sizes.append(len(loop.step().asked))
        assert (loop.state.server.model.x != before).any()
    assert 0 in sizes
    assert max(sizes) > 0
    assert loop.config.privacy.divisor == pytest.approx(0.6)


@pytest.mark.parametrize(
    "sending", [{}, {"compressor": "randomk", "budget": {"average": 0.5}}], ids=["whole", "drawn"]
)
def test_what_others_send_does_not_tell_whether_a_client_is_in_a_hidden_cohort(
    sending, monkeypatch
):
    """Else the sums of cohorts with and without it differ by more than its own update, and who
    knows the others' data and the seed sees which cohort it was: nothing is amplified then."""

    def kept(self, state, step, total, note):
        state.step += 1
        return {name: torch.full_like(value, 1e-3) for name, value in total.items()}

    monkeypatch.setattr(PrivateRounds, "noised", kept)
    sent = []
    for absent in (-1, 0):
        uploads = {}

        def select(self, state, context, absent=absent):
            return Cohort(context.available[context.available != absent])

        def clipped(self, state, upload, uploads=uploads):
            if upload.client:
                uploads[len(uploads)] = upload.client, upload.parts["delta"].value.clone()
            return upload

        monkeypatch.setattr(Poisson, "select", select)
        monkeypatch.setattr(PrivateRounds, "clipped", clipped)
        finished(
            **{**CLASSES, "population": 4, "cohort": 2, "stop": {"rounds": 2}},
            selector={"name": "poisson", "rate": 0.5},
            local={"steps": 2, "batch_size": 4},
            privacy={**GAUSS, "cohorts": "hidden"},
            **sending,
        )
        sent.append(uploads)
    first, second = sent
    assert [client for client, _ in first.values()] == [1, 2, 3, 1, 2, 3]
    for key, (client, update) in first.items():
        assert client == second[key][0]
        assert torch.equal(update, second[key][1])


def test_the_largest_cohort_is_kept():
    loop = loop_of(
        selector={"name": "poisson", "rate": 0.9, "largest": 5},
        privacy={**GAUSS, "noise_multiplier": 4.0, "cohorts": "hidden"},
    )
    assert len(loop.step().asked) == 5
    assert [one.kind for one in loop.config.privacy.releases] == ["poisson"]


def test_no_part_is_weighed_by_clear_numbers_of_samples_after_the_clip():
    """The mean multiplies a ``weighted_sum`` by the client's own samples: 1 under uniform weights,
    and under ``examples`` many times the clip."""
    capped = loop_of(weights="examples", privacy={**GAUSS, "max_examples": 10}).config.privacy
    uniform = loop_of(privacy=GAUSS).config.privacy
    empty = {"delta": Part(torch.zeros(2), "mean"), "dc": Part(torch.zeros(2), "weighted_sum")}
    assert PrivateRounds(uniform, empty).empty == empty
    with pytest.raises(ConfigError, match=r"weights: clients also send 'dc', which is weighed by"):
        PrivateRounds(capped, empty)


def test_the_clip_adapts():
    options = {**GAUSS, "clip": {"initial": 5.0, "noise": 1.0}}
    loop = finished(privacy=options)
    assert loop.private.account.clip != 5.0
    # (z^-2 - (2 sigma_b)^-2)^(-1/2)
    assert loop.config.privacy.update_multiplier == pytest.approx((1.0 - 0.25) ** -0.5)
    assert Experiment(**loop_keys(options)).resolved()["privacy"]["clip"] == 5.0


def loop_keys(privacy):
    return {**BASE, "privacy": privacy}


@pytest.mark.parametrize(
    "synchrony",
    ["synchronous", {"name": "buffered", "refill": "idle", "buffer": 3}, "asynchronous"],
    ids=str,
)
def test_what_was_counted_is_in_the_checkpoint(synchrony):
    """Also between arrivals and steps: uploads are clipped and counted at the step that they
    enter."""
    keys = {
        "selector": "power_of_choice",
        "synchrony": synchrony,
        "privacy": {**INFORMED, "clip": {"initial": 0.5, "noise": 3.0}, "sizes": "public"},
        "stop": {"rounds": 6},
    }
    whole = finished(**keys)
    first = loop_of(**keys)
    for _ in range(3):
        first.step()
    second = loop_of(**keys)
    saved = first.save()
    assert synchrony == "synchronous" or len(first.state.clients.flying)
    # nothing is kept beside the state
    assert (first.private._uploads, first.private._unclipped) == (0, 0)
    second.restore(saved)
    while not second.done:
        second.step()
    assert (second.state.server.model.x == whole.state.server.model.x).all()
    assert second.private.account.clip == whole.private.account.clip
    for name in ("loss", "num_examples"):
        assert (second.private.account.signals[name] == whole.private.account.signals[name]).all()
    assert (second.private.account.sums == whole.private.account.sums).all()


def test_a_run_says_and_writes_what_it_claims(tmp_path):
    done = motley.run(
        {**BASE, "selector": "power_of_choice", "privacy": INFORMED}, out=tmp_path / "run"
    )
    record = done.meta["privacy"]
    assert record["delta"] == 1e-5
    assert record["epsilon"] > 0
    text = " ".join(record["claim"])
    for said in (
        "zero-out adjacency",
        "4 sums and 4 values of loss and 1 value of num_examples",
        "nothing is amplified",
        "nothing is private against whoever has two of them",
        "must be trusted",
        "who was available",
        "drawn as quantiles in float64 and rounded",
    ):
        assert said in text
    table = done.tables["privacy"].to_pydict()
    assert table["client"] == list(range(12))
    assert sum(table["sums"]) == sum(table["choices"]) == 16
    from motley_report.report import report

    page = report(done.directory, tmp_path / "report.md").read_text()
    assert "Differential privacy" in page
    assert "nothing is amplified" in page


REFUSED = [
    (
        {"privacy": {**GAUSS, "clip": {"initial": 1.0, "noise": 1e8}}},
        r"adaptive\.noise: got 1e\+08; expected at most 8\.39e\+06",
    ),
    ({"weights": "examples"}, r"weights: weights by the number of samples are not bounded"),
    (
        {
            "weights": "examples",
            "algorithm": "feddyn",
            "privacy": {**GAUSS, "max_examples": 5},
        },
        r"weights: DynamicAverage divides by the samples of all clients.*write weights = \"uniform",
    ),
    (
        {"algorithm": {"name": "feddyn", "alphas": "by_samples"}},
        r"algorithm: each client's work depends on the samples of all.*leave alphas out",
    ),
    (
        {"weights": "horvitz_thompson"},
        r"expected \"uniform\", or \"examples\" with privacy\.max_examples",
    ),
    (
        {"aggregator": "median"},
        r"privacy: how far one client moves what .*Median.* makes of the uploads is not known",
    ),
    ({"algorithm": {"name": "qfedavg"}}, r"divides by a sum that noise may bring to zero"),
    (
        {"feedback": "ef21", "compressor": "topk", "budget": {"average": 0.5}},
        r"keeps a mean of clients' vectors",
    ),
    (
        {"selector": "divfl"},
        r"'divfl' cannot be private: it needs 'gradient_sketch', a whole vector",
    ),
    *(
        (
            {"selector": {"name": "hetero_select", "direction": direction}},
            r"makes of a clear upload; write w_direction = 0, or use"
            if direction != "sketch"
            else r"'sketch', a whole vector of every client; write w_direction = 0, or use",
        )
        for direction in ("exact", "cosine", "sketch")
    ),
    (
        {**CLASSES, "selector": "hetero_select_v1"},
        r"write e\.g\. privacy\.signal_noise\.label_histogram = \{ multiplier = 5\.0 \}",
    ),
    (
        {"selector": "fedcbs", "privacy": {**GAUSS, "signal_noise": {"label_histogram": LOSS}}},
        r"leave low and high out",
    ),
    (
        {
            "selector": "fedcbs",
            "privacy": {
                **GAUSS,
                "signal_noise": {"label_histogram": {"multiplier": 5.0, "noise": "gaussian"}},
            },
        },
        r'privacy\.signal_noise\.label_histogram: got noise = "gaussian"; expected "laplace"',
    ),
    (
        {
            "selector": "power_of_choice",
            "privacy": {
                **GAUSS,
                "signal_noise": {"loss": {"multiplier": 5.0}, "num_examples": SIZES},
            },
        },
        r"privacy\.signal_noise\.loss: low and high, .* are missing",
    ),
    (
        {"selector": "power_of_choice"},
        r"needs 'loss' of clients, which is not bounded; write e\.g\. privacy\.signal_noise\.loss "
        r"= ",
    ),
    ({"privacy": INFORMED}, r"privacy\.signal_noise\.loss: 'uniform' does not need it"),
    (
        {"selector": "ucb1", "privacy": {**GAUSS, "signal_noise": {"arrival_loss": LOSS}}},
        r"passes over all its samples",
    ),
    (
        {
            "selector": {"name": "power_of_choice", "variant": "rpow_d"},
            "privacy": {
                **GAUSS,
                "signal_noise": {"loss": {**LOSS, "noise": "gumbel"}, "num_examples": SIZES},
            },
        },
        r"Gumbel noise is for rules that take the m largest values",
    ),
    (
        {"selector": "power_of_choice", "privacy": {**INFORMED, "cohorts": "hidden"}},
        r"does not draw cohorts without a look at data",
    ),
    (
        {
            "selector": {"name": "poisson", "rate": 0.3},
            "availability": {"name": "bernoulli", "p": 0.5},
            "privacy": {**GAUSS, "cohorts": "hidden"},
        },
        r"not always available",
    ),
    (
        {
            "selector": {"name": "poisson", "rate": 0.3},
            "privacy": {**GAUSS, "cohorts": "hidden", "max_rounds": 2},
        },
        r"leave max_rounds out",
    ),
    (
        {
            "selector": {"name": "poisson", "rate": 0.3},
            "local": {"epochs": 4, "stragglers": {"share": 0.5}},
            "privacy": {**GAUSS, "cohorts": "hidden"},
        },
        r"who is asked changes others' work; write cohorts = \"seen\"",
    ),
    (
        {
            "selector": {"name": "poisson", "rate": 0.3},
            "compressor": "topk",
            "budget": {"average": 0.5},
            "network": "uniform",
            "allocator": "fedcg_lp",
            "privacy": {**GAUSS, "cohorts": "hidden", "sizes": "public"},
        },
        r"who is asked changes others' uploads; write cohorts = \"seen\"",
    ),
    (
        {"privacy": {**GAUSS, "noise_multiplier": 1e-6}},
        r"privacy\.noise_multiplier: got 1e-06; expected at least 0\.01",
    ),
    ({"privacy": {**GAUSS, "cohorts": "hidden"}}, r"amplified under replace-one alone"),
    ({"privacy": {**GAUSS, "adjacency": "add_remove"}}, r"roster is public"),
    ({"privacy": {**GAUSS, "epsilon": 8.0}}, r"give either noise_multiplier or epsilon"),
    ({"privacy": {"clip": 1.0, "delta": 1e-5}}, r"give either noise_multiplier or epsilon"),
    ({"privacy": {**GAUSS, "delta": 2.0}}, r"privacy\.delta: got 2\.0; expected below 1"),
    ({"privacy": {**GAUSS, "clip": -1.0}}, r"privacy\.clip: got -1\.0; expected above 0"),
    ({"privacy": {"delta": 1e-5, "epsilon": 8.0}}, r"privacy\.clip: this key is missing"),
    ({"privacy": "on"}, r'privacy: got \'on\'; expected "off" or a table'),
    ({"privacy": {**GAUSS, "noise": 1.0}}, r"privacy\.noise: there is no such key"),
    (
        {"privacy": {**GAUSS, "part_clips": {"dd": 1.0}}},
        r"privacy\.part_clips\.dd: there is no such part",
    ),
    ({"privacy": {**GAUSS, "max_examples": 5}}, r"privacy\.max_examples: weights are 'uniform'"),
    (
        {"privacy": {**GAUSS, "noise_multiplier": 9.0, "clip": {"initial": 1.0, "noise": 4.0}}},
        r"expected more than half of the noise multiplier",
    ),
    (
        {
            "selector": "power_of_choice",
            "privacy": {
                **GAUSS,
                "signal_noise": {"loss": {**LOSS, "low": 4.0}, "num_examples": SIZES},
            },
        },
        r"expected low below high",
    ),
    (
        {"stop": {"virtual_hours": 1.0}},
        r"privacy\.max_rounds: a run without stop\.rounds needs a cap",
    ),
]


@pytest.mark.parametrize(
    ("keys", "said"), REFUSED, ids=lambda value: value[:40] if isinstance(value, str) else ""
)
def test_what_has_no_bound_is_refused_in_a_sentence(keys, said):
    with pytest.raises(ConfigError, match=said):
        loop_of(**{"privacy": GAUSS, **keys})


def test_a_sum_that_float64_cannot_hold_is_refused(monkeypatch):
    monkeypatch.setattr("motley_privacy.private_admission.MOST_UPLOADS", 10)
    with pytest.raises(
        ConfigError,
        match=r"noise_multiplier: a sum of 12 updates with so little .* write at least 1\.2$",
    ):
        loop_of(privacy=GAUSS)


def test_a_client_without_an_update_moves_the_count_by_a_half():
    """Zero-out: its data replaced by nothing, it is no part of the centred count; with data it
    moves the count by a half, up or down, which the account has."""
    loop = loop_of(privacy={**GAUSS, "clip": {"initial": 0.5, "noise": 20.0}})
    counts = []
    for length in (0.0, 0.1, 9.0):
        rounds = PrivateRounds(loop.config.privacy, loop.private.empty)
        rounds.begin(12, simulated=True)
        value = torch.zeros_like(loop.state.server.model.x).double()
        value[0] = length
        for given in (value, torch.full_like(value, 9.0)):
            upload = Upload({"delta": Part(given, "mean")}, 1.0, client=1)
            rounds.clipped(rounds.account, upload)
        counts.append(rounds._unclipped - 0.5 * rounds._uploads)
    assert counts == [-0.5, 0.0, -1.0]


def test_a_gumbel_choice_costs_m_winners_in_every_round():
    gumbel = {
        **INFORMED,
        "signal_noise": {"loss": {**LOSS, "noise": "gumbel"}, "num_examples": SIZES},
    }
    loop = finished(selector="power_of_choice", privacy=gumbel)
    (choice,) = [one for one in loop.config.privacy.releases if one.kind == "gumbel"]
    assert (choice.m, choice.count, choice.multiplier) == (4, 4, 10.0)
    for simulated in (True, False):
        assert "Gumbel noise is in floating point" in " ".join(loop.config.privacy.claim(simulated))
    assert loop.config.privacy.bound.accountant == "rdp"


def test_options_are_checked_in_python_too():
    with pytest.raises(ConfigError, match="either noise_multiplier or epsilon"):
        Privacy(clip=1.0, delta=1e-5)


# ---------------------------------------------------------------------- uploads that cannot be used


@dataclasses.dataclass(frozen=True)
class AlwaysBad(Failures):
    """These clients always send numbers that are not finite."""

    clients: tuple[int, ...] = (0,)

    def upload_factor(self, key, ids, round_index):
        return np.where(np.isin(ids, self.clients), np.nan, 1.0)


OORT = {
    "selector": "oort",
    "privacy": {
        **GAUSS,
        "signal_noise": {"num_examples": SIZES, "loss_rms": LOSS},
        "max_rounds": 4,
    },
    "stop": {"rounds": 6},
}


def heard_by(loop):
    """Run to the end; return what the selector heard after each step."""
    heard = []
    observe = loop.state.selector.observe
    loop.state.selector.observe = lambda t, reports: heard.append(reports) or observe(t, reports)
    while not loop.done:
        loop.step()
    return [reports for reports in heard if len(reports) and reports.outcome[0] > Outcome.PROBED]


@pytest.mark.parametrize("bad", [(0,), tuple(range(12))], ids=["one", "all"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"synchrony": {"name": "buffered", "refill": "idle", "buffer": 3}},
        {"synchrony": "asynchronous"},
    ],
    ids=str,
)
def test_an_upload_that_cannot_be_used_is_heard_as_an_accepted_one(bad, more):
    """Under privacy Oort hears the same outcomes, and a noisy number of everybody, whatever a
    client sends."""
    loop = loop_of(**OORT, **more, failures=AlwaysBad(bad))
    heard = heard_by(loop)
    assert {int(one) for reports in heard for one in reports.outcome} == {int(Outcome.ACCEPTED)}
    for reports in heard:
        assert np.isfinite(reports.signal("loss_rms")).all()
        assert np.isnan(reports.num_examples).all()
    counts = loop.private.account
    assert counts.sums[0] == counts.choices[0] <= 4
    assert counts.signals["loss_rms"].tolist() == counts.sums.tolist()
    assert torch.isfinite(loop.state.server.model.x).all()


def test_without_privacy_it_is_heard_as_rejected():
    loop = loop_of(selector="oort", failures=AlwaysBad())
    assert Outcome.REJECTED in {
        Outcome(int(one)) for reports in heard_by(loop) for one in reports.outcome
    }


def test_an_upload_that_cannot_be_used_adds_zero_to_the_sum():
    """The same cohort with and without client 0's update: the sums differ by that update alone, and
    the divisor is the same."""

    def moved(bad):
        loop = loop_of(cohort=12, stop={"rounds": 1}, privacy=GAUSS, failures=AlwaysBad(bad))
        seen = {}
        clipped = loop.private.clipped
        loop.private.clipped = lambda state, upload: seen.setdefault(
            upload.client, clipped(state, upload)
        )
        start = loop.state.server.model.x.double()
        summary = loop.step()
        return loop.state.server.model.x.double() - start, seen, summary.accepted

    whole, seen, accepted = moved(())
    less, others, still = moved((0,))
    assert (accepted, still) == (12, 12)
    assert sorted(others) == list(range(1, 12))
    difference = whole - less  # the same noise
    torch.testing.assert_close(difference, seen[0].parts["delta"].value / 12, atol=1e-6, rtol=1e-4)


def test_a_rehearsal_is_heard_alike():
    loss = {**GAUSS, "noise_multiplier": 4.0, "signal_noise": {"loss": LOSS, "num_examples": SIZES}}
    rule = {"name": "fedcor", "warmup": 2, "interval": 2}
    loop = loop_of(
        selector=rule, privacy=loss, failures=AlwaysBad(tuple(range(11))), stop={"rounds": 6}
    )
    outcomes = [{int(one) for one in reports.outcome} for reports in heard_by(loop)]
    assert {int(Outcome.REHEARSED)} in outcomes
    assert all(len(found) == 1 for found in outcomes)
