"""A strategy's step that ruins the model is refused: who spoils it is named, and the step is made
again without them."""

from __future__ import annotations

import numpy as np
import pytest

import motley
from motley.selectors import build
from motley_flower.messages import flower
from motley_flower.strategy.strategy_state import MOST_REFUSALS
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import (
    D,
    fedavg,
    grid,
    model,
    nodes,
    outcomes,
    reply,
    run,
    sgd,
    weights,
)
from tests.motley_flower.fake_grid import FakeGrid


def fair(**options):
    """q-FedAvg as Flower ships it: an update counts by its client's own word on its loss."""
    words = flower()

    class QFedAvg(type(fedavg())):
        q = 0.1
        sent = None

        def configure_train(self, server_round, arrays, config, grid):
            self.sent = words.ArrayRecord(dict(arrays.items()))
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round, replies):
            replies = [one for one in replies if not one.has_error()]
            # Flower takes them out, too
            before = self.sent.pop("w").numpy()
            delta = np.zeros(D)
            h = 0.0
            for one in replies:
                gradient = before - one.content["arrays"].pop("w").numpy()
                loss = one.content["metrics"]["train_loss"] + 1e-10
                with np.errstate(invalid="ignore"):
                    power = np.float_power(loss, self.q)
                    less = np.float_power(loss, self.q - 1)
                delta += gradient * power
                h += self.q * less * (gradient**2).sum() + power
            return words.ArrayRecord(
                {"w": words.Array((before - delta / h).astype(np.float32))}
            ), None

    return QFedAvg(fraction_evaluate=0.0, **options)


def with_loss(value):
    def app(message, context):
        said = sgd(message, context)
        if message.metadata.message_type == "train":
            told = said.content["metrics"]
            if value is not None:
                told["train_loss"] = told["loss"] if value == "own" else value
        return said

    return app


def test_a_loss_that_makes_the_model_nan_is_named_and_its_client_set_aside(tmp_path, monkeypatch):
    """One train_loss of -1, and q-FedAvg's model was NaN for good, in a run that ended as if
    well."""
    monkeypatch.setattr("motley_flower.recorded.run_files.RunFiles.report", lambda self: None)
    _, clean = run(
        FakeGrid(nodes(0, 1, 2, app=with_loss("own"))), m=4, rounds=6, strategy=fair(), wait_s=1
    )
    on = FakeGrid(nodes(0, 1, 2, app=with_loss("own")) | nodes(3, app=with_loss(-1.0)))
    coordinator, result = run(on, m=4, rounds=6, strategy=fair(), out=tmp_path / "run", wait_s=1)
    assert weights(result).tobytes() == weights(clean).tobytes()
    assert [row.outcome for row in coordinator.rows if row.client == 3] == [
        "rejected"
    ] * MOST_REFUSALS
    assert {row.outcome for row in coordinator.rows if row.client != 3} == {"accepted"}
    told = motley.load(tmp_path / "run").tables["incidents"].to_pylist()
    assert [(row["client"], row["event"]) for row in told] == [
        (3, "rejected"),
        (3, "rejected"),
        (3, "rejected"),
        (3, "set aside"),
    ]
    assert (
        told[0]["reason"]
        == "with it the model gets numbers that are not finite; the step was made again without it"
    )
    assert "3 steps in a row were refused for its uploads" in told[-1]["reason"]


def test_a_client_whose_uploads_are_used_in_between_is_not_set_aside():
    losses = iter([-1.0, -1.0, "own"] * 4)
    on = FakeGrid(nodes(0, 1, 2, app=with_loss("own")))

    def now_and_then(message, context):
        return with_loss(next(losses) if message.metadata.message_type == "train" else None)(
            message, context
        )

    on.nodes |= nodes(3, app=now_and_then)
    coordinator, _ = run(on, m=4, rounds=9, strategy=fair())
    assert [row.outcome for row in coordinator.rows if row.client == 3] == [
        "rejected",
        "rejected",
        "accepted",
    ] * 3


@pytest.mark.parametrize("app", [with_loss(None), with_loss(-1.0)], ids=["none", "negative"])
def test_of_two_clients_the_one_without_what_the_strategy_needs_is_rejected(app):
    """Half of the clients send no train_loss: both are tried without, the strategy raises, and
    those that have it are used."""
    on = FakeGrid(nodes(0, app=app) | nodes(1, app=with_loss("own")))
    coordinator, result = run(on, m=2, rounds=2, strategy=fair())
    assert outcomes(coordinator, 1) == outcomes(coordinator, 2) == {0: "rejected", 1: "accepted"}
    assert np.isfinite(weights(result)).all()


def test_a_step_that_nobody_alone_spoils_leaves_the_model_and_the_strategy():
    class Overflows(type(fedavg())):
        moment = np.ones(2)

        def aggregate_train(self, server_round, replies):
            arrays, said = super().aggregate_train(server_round, replies)
            self.moment = (
                self.moment / (server_round != 2) if server_round != 2 else self.moment * np.inf
            )
            return arrays, said

    strategy = Overflows(fraction_evaluate=0.0)
    strategy.moment = np.ones(2)
    models = {}
    on = grid(3)
    wrapped = with_selector(strategy, build("uniform", seed=0), 3, clock=on.clock)
    wrapped.start(
        on,
        model(),
        num_rounds=3,
        timeout=50,
        evaluate_fn=lambda t, a: models.update({t: a["w"].numpy().tolist()}),
    )
    assert models[2] == models[1] != models[3]
    assert wrapped.moment.tolist() == [1.0, 1.0]
    assert set(outcomes(wrapped.motley, 2).values()) == {"rejected"}
    assert wrapped.motley.state.refusals == {}
    assert (
        "the strategy's 'moment' gets numbers that are not finite; no reply stands out"
        in wrapped.motley.rows[3].reason
    )


def test_a_model_of_another_shape_is_refused():
    class Grows(type(fedavg())):
        def aggregate_train(self, server_round, replies):
            _, said = super().aggregate_train(server_round, replies)
            return model(w=np.ones(D + 1, np.float32)), said

    coordinator, result = run(grid(3), m=3, rounds=2, strategy=Grows(fraction_evaluate=0.0))
    assert {row.outcome for row in coordinator.rows} == {"rejected"}
    assert not result.arrays


def test_what_a_strategy_raises_whatever_it_is_given_is_raised():
    class Broken(type(fedavg())):
        def aggregate_train(self, server_round, replies):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(grid(3), m=3, strategy=Broken(fraction_evaluate=0.0))


@pytest.mark.parametrize("value", [1e308, 1e18, 1e5])
def test_a_loss_far_beyond_the_others_is_named_and_weighs_nothing(tmp_path, monkeypatch, value):
    """One train_loss of 1e308, with the model as it was sent, and q-FedAvg's model stood still for
    good: weights 9.5e-31 after four rounds, all replies accepted."""
    monkeypatch.setattr("motley_flower.recorded.run_files.RunFiles.report", lambda self: None)
    _, clean = run(
        FakeGrid(nodes(0, 1, 2, app=with_loss("own"))), m=4, rounds=4, strategy=fair(), wait_s=1
    )

    def standing_still(message, context):
        told = with_loss(value)(message, context)
        if message.metadata.message_type == "train":
            told.content["arrays"] = message.content["arrays"]
        return told

    on = FakeGrid(nodes(0, 1, 2, app=with_loss("own")) | nodes(3, app=standing_still))
    coordinator, result = run(on, m=4, rounds=4, strategy=fair(), out=tmp_path / "run", wait_s=1)
    assert weights(result).tobytes() == weights(clean).tobytes()
    assert {row.outcome for row in coordinator.rows if row.client != 3} == {"accepted"}
    told = motley.load(tmp_path / "run").tables["incidents"].to_pylist()
    assert [(row["client"], row["event"]) for row in told] == [(3, "rejected")] * 4
    far = "'train_loss' is 1e+308; expected at most" if value > 1e300 else "more than 1000 times"
    assert "'train_loss'" in told[0]["reason"]
    assert far in told[0]["reason"]


def test_an_accuracy_far_beyond_the_others_is_no_part_of_the_mean(caplog):
    """One accuracy of 1e308 made the pooled accuracy 3.3e307."""

    def evaluating(value):
        def app(message, context):
            if message.metadata.message_type != "evaluate":
                return sgd(message, context)
            told = flower().MetricRecord({"num-examples": 10, "accuracy": value})
            return reply(message, metrics=told)

        return app

    on = FakeGrid(nodes(0, 1, app=evaluating(0.5)) | nodes(2, app=evaluating(1e18)))
    coordinator, result = run(on, m=2, rounds=1, strategy=fedavg(fraction_evaluate=1.0))
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == 0.5
    assert coordinator.evaluations.keys() == {0, 1}
    assert "an evaluation cannot be used: its 'accuracy' of 1e+18 is more than 1000" in caplog.text
