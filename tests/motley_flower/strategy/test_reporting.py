"""Client apps without a line for Motley, and with the one line that lets them report: the app
trains PyTorch as quick starts do."""

from __future__ import annotations

import logging
import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from motley.core.errors import ConfigError
from motley.core.records import Outcome
from motley.selectors import CATALOGUE, build
from motley_flower.messages import flower
from motley_flower.strategy.reporting import with_reports
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import fedavg, grid, observed_reports, outcomes, run
from tests.motley_flower.apps import reply as answer
from tests.motley_flower.conftest import HERE
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

EPOCHS = 2


def client_app():
    """Flower's ClientApp, or what is used of it."""
    if HERE:
        from flwr.clientapp import ClientApp

        return ClientApp()
    return StandInApp()


class StandInApp:
    """As Flower's: functions by kind and action, and an error for what is not registered."""

    def __init__(self):
        self._registered_funcs = {}

    def _register(self, kind, action):
        return lambda function: self._registered_funcs.setdefault(f"{kind}.{action}", function)

    def train(self, action="default"):
        return self._register("train", action)

    def evaluate(self, action="default"):
        return self._register("evaluate", action)

    def query(self, action="default"):
        return self._register("query", action)

    def __call__(self, message, context):
        kind, _, action = message.metadata.message_type.partition(".")
        action = action or "default"
        if f"{kind}.{action}" not in self._registered_funcs:
            raise ValueError(f"No {kind} function registered with name '{action}'")
        return self._registered_funcs[f"{kind}.{action}"](message, context)


def samples(client):
    generator = torch.Generator().manual_seed(client)
    n = 20 + 10 * client
    return torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)


def network():
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


def loaded(message):
    model = network()
    model.load_state_dict(
        {k: torch.from_numpy(v.numpy().copy()) for k, v in message.content["arrays"].items()}
    )
    return model


def plain(app):
    """Register train and evaluate as an app without Motley would; the client's number is in its
    node's configuration as ``site``."""
    words = flower()

    @app.train()
    def train(message, context):
        assert list(message.content) == ["arrays", "config"]  # nothing of Motley's
        model, (x, y) = loaded(message), samples(context.node_config["site"])
        loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=message.content["config"]["lr"], momentum=0.9, weight_decay=0.01
        )
        criterion = nn.CrossEntropyLoss()
        total = 0.0
        model.train()
        for _ in range(EPOCHS):
            for batch, labels in loader:
                optimizer.zero_grad()
                loss = criterion(model(batch), labels)
                loss.backward()
                optimizer.step()
                total += loss.item()
        context.state["trained"] = words.MetricRecord(
            {"times": context.state.get("trained", {"times": 0})["times"] + 1}
        )
        told = words.MetricRecord({"train_loss": total, "num-examples": len(y)})
        arrays = words.ArrayRecord(
            {k: words.Array(v.numpy()) for k, v in model.state_dict().items()}
        )
        return answer(message, arrays=arrays, metrics=told)

    @app.evaluate()
    def evaluate(message, context):
        x, y = samples(100 + context.node_config["site"])
        model = loaded(message).eval()
        with torch.no_grad():
            loss = cross_entropy(model(x), y).item()
        return answer(
            message, metrics=words.MetricRecord({"eval_loss": loss, "num-examples": len(y)})
        )

    return app


def reporting(**options):
    return plain(with_reports(client_app(), **options))


def initial():
    torch.manual_seed(5)
    words = flower()
    return words.ArrayRecord({k: words.Array(v.numpy()) for k, v in network().state_dict().items()})


def sites(n, app, **config):
    """Node 900 - 13 k is site k; with ``numbered``, its configuration names the client 20 + k."""
    name = (lambda k: {"partition-id": 20 + k}) if config.get("numbered") else lambda k: {}
    return FakeGrid({900 - 13 * k: FakeNode(app, {"site": k, **name(k)}) for k in range(n)})


def trained(on, selector, m=2, rounds=3, **options):
    selector = build(selector, seed=0, horizon=20) if isinstance(selector, str) else selector
    wrapped = with_selector(
        fedavg(), selector, m, clock=on.clock, **{"max_examples": 1000, **options}
    )
    torch.manual_seed(7)
    config = flower().ConfigRecord({"lr": 0.1})
    return wrapped.motley, wrapped.start(
        on, initial(), num_rounds=rounds, timeout=200, train_config=config
    )


# --------------------------------------------------------------------------------- no change at all


@pytest.mark.parametrize("name", ["uniform", "fedcs", "fedcvr_bolt"])
def test_an_app_without_a_line_of_motley_s_works_where_clients_need_tell_nothing(name, caplog):
    caplog.set_level(logging.INFO, "motley.flower")
    coordinator, _ = trained(sites(3, plain(client_app())), name)
    assert {row.outcome for row in coordinator.rows} == {"accepted"}
    # in order of node id, in which they were asked
    assert coordinator.registry.node_of == {0: 874, 1: 887, 2: 900}
    assert (
        caplog.text.count("the history of a client ends when its node restarts under a new id") == 1
    )


def test_a_number_stays_with_its_node_and_a_node_under_a_new_id_is_a_new_client():
    on = sites(3, plain(client_app()))
    on.events.append((3.5, lambda: on.kill(887)))
    on.events.append((60.0, lambda: on.revive(887, new_id=5)))
    coordinator, _ = trained(on, "uniform", m=3, rounds=60, wait_s=3)
    assert coordinator.registry.node_of == {0: 874, 2: 900, 3: 5}
    assert coordinator.registry.numbers == {874: 0, 887: 1, 900: 2, 5: 3}


def test_without_a_bound_on_the_examples_nothing_begins():
    on = sites(2, plain(client_app()))
    with pytest.raises(ConfigError, match=r"with_selector\(\.\.\., max_examples=10_000\)"):
        trained(on, "uniform", max_examples=None)
    assert not [m for m in on.sent if m.metadata.message_type == "train"]
    coordinator, _ = trained(on, "uniform", m=2, rounds=1, max_examples=25)
    # 30 and 20 samples
    assert [row.outcome for row in coordinator.rows] == ["rejected", "accepted"]
    assert (
        "more than the client said at enrolment, or than max_examples" in coordinator.rows[0].reason
    )


def test_sizes_come_with_replies_and_reach_the_selector_once():
    selector = build("oort", seed=0)
    seen = observed_reports(selector)
    trained(sites(3, reporting()), selector, m=3, rounds=2)
    enrolled = [
        (t, [(r.id, r.num_examples) for r in reports])
        for t, reports in seen
        if reports[0].outcome == Outcome.ENROLLED
    ]
    first, second = enrolled
    assert [(k, math.isnan(n)) for k, n in first[1]] == [(0, True), (1, True), (2, True)]
    assert second == (0, [(0, 40.0), (1, 30.0), (2, 20.0)])  # node 874 is site 2 with 40 samples


def test_a_selector_s_file_is_refused_where_clients_have_no_lasting_ids(tmp_path):
    with pytest.raises(ConfigError, match="these nodes name none"):
        trained(sites(2, plain(client_app())), "uniform", save=tmp_path / "selector.bin")


def test_batch_norm_s_counts_of_which_a_mean_makes_floats_are_no_other_kind_of_model():
    coordinator, result = trained(sites(3, plain(client_app())), "uniform", m=3, rounds=3)
    assert result.arrays["1.num_batches_tracked"].numpy().dtype.kind == "f"
    assert {row.outcome for row in coordinator.rows} == {"accepted"}


def test_all_nodes_name_their_client_or_none():
    on = sites(2, reporting())
    on.nodes[900].config["partition-id"] = 4
    coordinator, _ = trained(on, "uniform", m=2, wait_s=2)
    assert len(coordinator.registry.node_of) == 1


# --------------------------------------------------------------------------- checked before round 1


SAID = {
    "oort": "Oort needs loss_rms with every reply, which the client app does not report; one line "
    "below",
    "power_of_choice": "PowerOfChoice needs loss before a choice, which",
    "fedcbs": "labels=my_labels, classes=10",
    "divfl": r"with_reports cannot measure gradient_sketch: see docs/deploy/which-rule\.md",
    "hetero_select_v1": "needs label_histogram at enrolment and loss before a choice, which",
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_rule_needs_is_said_before_anything_is_trained_or_probed(name):
    on = sites(3, plain(client_app()))
    with pytest.raises(ConfigError, match=SAID[name]) as caught:
        trained(on, name)
    assert "\n" not in str(caught.value)
    assert {m.metadata.message_type for m in on.sent} == {"query.motley_enrol"}
    if name != "divfl":
        assert "app = with_reports(app" in str(caught.value)


def test_an_app_that_measures_nothing_is_told_what_to_report(monkeypatch):
    import sys

    on = sites(2, reporting())
    with monkeypatch.context() as changed:
        changed.setattr(
            "motley_flower.strategy.reporting.sys.modules",
            {k: v for k, v in sys.modules.items() if k != "torch"},
        )
        with pytest.raises(
            ConfigError,
            match=r'imports torch at the top .* with_reports\(app, reports=\["loss_rms"\]\)',
        ):
            trained(on, "oort")


# ------------------------------------------------------------------------------------- the one line


DOES_NOT = {"divfl", "delta", "fedstas"}  # sketches of gradients before a choice


@pytest.mark.parametrize("name", sorted({*CATALOGUE.targets} - {"greedyfed"}))
def test_every_rule_that_asks_for_losses_and_norms_runs_with_the_one_line(name):
    labels = {
        "labels": lambda context: samples(context.node_config["site"])[1].tolist(),
        "classes": 3,
    }
    on = sites(4, reporting(**labels), numbered=True)
    if name in DOES_NOT:
        with pytest.raises(ConfigError, match="with_reports cannot measure"):
            trained(on, name)
        return
    coordinator, _ = trained(on, name, m=2, rounds=3)
    assert {row.outcome for row in coordinator.rows} == {"accepted"}
    assert coordinator.registry.node_of == {20 + k: 900 - 13 * k for k in range(4)}
    assert all("loss" in row.signals for row in coordinator.rows)


def test_training_is_the_same_to_the_bit_whatever_is_measured():
    """Losses in training, and an arrival loss by a pass of its own before: neither moves a weight
    or a random number."""

    def models(app, name):
        on = sites(2, app)
        return trained(on, name, m=2, rounds=2)[1].arrays

    expected = models(plain(client_app()), "uniform")
    for name in ("uniform", "oort", "ucb1"):
        got = models(reporting(), name)
        assert all(np.array_equal(got[k].numpy(), expected[k].numpy()) for k in expected)


def test_what_is_measured_is_the_loss_of_the_received_model_without_dropout_and_its_mean_gradient():
    on = sites(2, reporting(), numbered=True)
    selector = build("power_of_choice", seed=0)
    seen = observed_reports(selector)
    trained(on, selector, m=1, rounds=1)
    (probed,) = [
        report
        for _, reports in seen
        for report in reports
        if report.outcome == Outcome.PROBED and report.id == 20
    ]
    model, (x, y) = network(), samples(0)
    model.load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in initial().items()})
    loss = cross_entropy(model.eval()(x), y)
    assert probed.signals["loss"] == pytest.approx(loss.item(), rel=1e-6)
    adasample = build("adasample", seed=0, horizon=20)
    seen = observed_reports(adasample)
    trained(sites(2, reporting(), numbered=True), adasample, m=1, rounds=1)
    loss.backward()
    norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters()))
    (probed,) = [
        report
        for _, reports in seen
        for report in reports
        if report.outcome == Outcome.PROBED and report.id == 20
    ]
    assert probed.signals["grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_a_probe_trains_nothing_and_leaves_the_node_s_state():
    on = sites(2, reporting())
    trained(on, "power_of_choice", m=2, rounds=2)
    # not 4
    assert [context.state["trained"]["times"] for context in on.contexts.values()] == [2, 2]


def test_the_app_s_own_numbers_stand_and_those_it_names_are_not_measured():
    words = flower()
    app = with_reports(client_app(), reports=["loss_rms"], examples=lambda context: 20)

    @app.train()
    def train(message, context):
        told = words.MetricRecord({"num-examples": 20, "loss_rms": 0.25})
        return answer(message, arrays=message.content["arrays"], metrics=told)

    coordinator, _ = trained(sites(2, app), "oort", rounds=1, max_examples=None)
    assert [row.signals for row in coordinator.rows] == [{"loss_rms": 0.25}] * 2
    assert coordinator.registry.enrolled[0].num_examples == 20


def test_losses_that_cannot_be_noted_are_an_error_that_says_what_to_do():
    words = flower()
    app = with_reports(client_app())

    @app.train()
    def train(message, context):
        return answer(
            message,
            arrays=message.content["arrays"],
            metrics=words.MetricRecord({"num-examples": 20}),
        )

    said = (
        "no client's reply can be used: its client app raised ConfigError: with_reports could "
        "not measure loss_rms"
    )
    with pytest.raises(ConfigError, match=said):
        trained(sites(2, app), "oort", rounds=1)


def one_step(sees, step=lambda model, optimizer: optimizer.step()):
    """A client app that reports: one step of SGD, and no evaluate function. ``sees`` is given each
    ConfigRecord, ``step`` makes the step."""
    words = flower()
    app = with_reports(client_app())

    @app.train()
    def train(message, context):
        config = message.content["config"]
        sees(config)
        model, (x, y) = loaded(message), samples(context.node_config["site"])
        optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
        cross_entropy(model(x), y).backward()
        step(model, optimizer)
        arrays = {k: words.Array(v.numpy()) for k, v in model.state_dict().items()}
        told = words.MetricRecord({"num-examples": len(y)})
        return answer(message, arrays=words.ArrayRecord(arrays), metrics=told)

    return app


def clips(model, optimizer):
    """A step that looks at the gradients, as GradScaler and logs of their norms do."""
    norms = [parameter.grad.norm() for parameter in model.parameters()]
    assert all(norm.isfinite() for norm in norms)
    optimizer.step()


def test_an_app_that_looks_at_its_gradients_is_measured_with_them():
    """Before, no client could be measured: gradients were None, with mixed precision, too."""
    measured = {}
    for step in (lambda model, optimizer: optimizer.step(), clips):
        selector = build("power_of_choice", seed=0)
        observed = observed_reports(selector)
        _, result = trained(sites(3, one_step(lambda config: None, step)), selector, m=1)
        probed = [
            r.signals for _, reports in observed for r in reports if r.outcome == Outcome.PROBED
        ]
        arrays = [array.numpy().tobytes() for array in result.arrays.values()]
        measured[step is clips] = arrays, probed
    assert measured[True] == measured[False]


def test_steps_of_the_app_s_own_are_no_measurement():
    def by_hand(model, optimizer):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad

    with pytest.raises(ConfigError, match=r"no client could be measured.*raised TypeError"):
        trained(sites(3, one_step(lambda config: None, by_hand)), "power_of_choice", m=1)


def test_a_validation_loss_needs_an_evaluate_function():
    said = "val_loss is measured by the app's evaluate function, and this app has none"
    with pytest.raises(ConfigError, match=f"no client could be measured.*{said}"):
        trained(sites(2, one_step(lambda config: None)), "flash", m=1)


class Proximal:
    """Put before a strategy: writes to each client as FedProx does, by a schedule of its own."""

    written = 0

    def configure_train(self, server_round, arrays, config, grid):
        self.written += 1
        random.random()
        config["proximal-mu"] = 0.1 * self.written
        return super().configure_train(server_round, arrays, config, grid)


@pytest.mark.parametrize("copied", [True, False])
def test_a_probe_gets_what_the_strategy_would_send(copied, caplog):
    """Before, an app that reads FedProx's proximal-mu could not be measured in round 1."""
    words = flower()
    seen = []
    app = one_step(lambda config: seen.append((config["server-round"], config.get("proximal-mu"))))
    caplog.set_level(logging.INFO)
    strategy = type("Proximal", (Proximal, type(fedavg())), {})(fraction_evaluate=0.0)
    if not copied:
        strategy.schedule = (0.1 for _ in range(9))
    on = sites(3, app)
    wrapped = with_selector(
        strategy, "power_of_choice", 1, clock=on.clock, max_examples=1000, progress=False
    )
    random.seed(3)
    config = words.ConfigRecord({"lr": 0.1})
    wrapped.start(on, initial(), num_rounds=2, timeout=200, train_config=config)
    after = random.random()
    random.seed(3)
    for _ in range(2):  # as often as the strategy alone draws: its own number, its one node
        random.random()
        random.sample([1], 1)
    assert after == random.random()
    assert wrapped.written == 2  # a probe's call leaves no trace
    probed = [(1, 0.1), (2, 0.2)] if copied else [(1, None), (2, 0.1)]
    assert seen[:2] == [probed[0]] * 2
    assert seen[2] == (1, 0.1)
    assert seen[-1] == (2, 0.2)
    assert caplog.text.count("configure_train: Sampled") == (2 if HERE else 0)


def test_apps_with_handlers_of_their_own_get_what_they_got():
    on = grid(3)
    run(on, "power_of_choice", m=1, rounds=1)
    (probe, *_) = [m for m in on.sent if m.metadata.message_type == "query.motley_probe"]
    (train,) = [m for m in on.sent if m.metadata.message_type == "train"]
    assert list(probe.content) == ["arrays", "motley"]
    assert list(train.content) == ["arrays", "config"]
    assert outcomes(run(grid(3), "uniform", m=3, rounds=1)[0], 1) == {
        0: "accepted",
        1: "accepted",
        2: "accepted",
    }


def test_what_with_reports_refuses():
    with pytest.raises(ConfigError, match=r"with_reports\(ClientApp\(\)\)"):
        with_reports(StandInApp)
    with pytest.raises(ConfigError, match="call with_reports once"):
        with_reports(with_reports(client_app()))
    with pytest.raises(ConfigError, match="give both, or neither"):
        with_reports(client_app(), classes=10)


def test_nodes_that_answer_late_at_first_do_not_cost_a_round():
    on = sites(2, plain(client_app()))
    for node in on.nodes.values():
        node.delay_s = 500.0
    on.events.append((110.0, lambda: [setattr(node, "delay_s", 1.0) for node in on.nodes.values()]))
    coordinator, _ = trained(on, "uniform", m=2, rounds=1)
    assert [row.outcome for row in coordinator.rows] == ["accepted", "accepted"]
