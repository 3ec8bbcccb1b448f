"""The text of a client's exception stays at the client: its type and a place in its code travel."""

from __future__ import annotations

import logging
import runpy

import pytest

from motley.core.errors import ConfigError, SecureAggregationError
from motley_flower.client_failures import text_stays
from motley_flower.deployed.client_app import Node
from motley_flower.strategy.reporting import with_reports
from tests.motley_flower.apps import fedavg, nodes, run, sgd
from tests.motley_flower.client_runtimes import answers, columns, deploy, experiment, federation
from tests.motley_flower.fake_grid import FakeGrid
from tests.motley_flower.test_private_loop import private

NAME = "Ann Miller"


def of(patients):
    return patients[NAME]


def text_of(error, private=lambda: False):
    def fails():
        raise error

    with pytest.raises(Exception, match=r".") as caught, text_stays(private):
        fails()
    return caught.value


def test_the_type_and_the_place_in_ones_own_code_are_left(caplog):
    with pytest.raises(Exception, match=r".") as caught, text_stays():
        of({})
    line = of.__code__.co_firstlineno + 1
    assert str(caught.value) == f"at test_client_failures.py, line {line}, in of"
    assert str(type(caught.value)) == "<class 'KeyError'>"  # as Flower writes it
    assert caught.value.__suppress_context__
    assert NAME in caplog.text
    assert {record.name for record in caplog.records} == {"motley.flower.client"}
    with pytest.raises(Exception, match=r"^at test_client_failures.py"), text_stays(), text_stays():
        of({})  # as where one function of Motley's calls another


@pytest.mark.parametrize("kind", [ConfigError, SecureAggregationError, ValueError])
def test_no_text_of_one_s_own_code_leaves_whatever_its_type(kind):
    assert NAME not in str(text_of(kind(f"{NAME} has no row")))


def test_a_sentence_about_the_exchange_leaves_but_not_under_privacy(tmp_path):
    node = Node(experiment(), tmp_path)
    context = type("Context", (), {"node_config": {"partition-id": "three"}})
    with pytest.raises(Exception, match=r"^Motley: got partition-id = 'three'"):
        node.enrol(None, context)
    node = Node(private(), tmp_path)
    with pytest.raises(Exception, match=r"^at node_config.py, line \d+, in client_of_node$"):
        node.enrol(None, context)
    node = Node(tmp_path / "nothing.toml", tmp_path)  # whether it is private nobody knows
    with pytest.raises(Exception, match=r"^at node_config.py, line \d+, in client_of_node$"):
        node.enrol(None, context)


@pytest.mark.parametrize("kind", ["enrol", "train", "probe"])
def test_a_name_is_nowhere_at_the_server_of_a_deployment(tmp_path, caplog, kind):
    """A patient's name in a KeyError stood in the server's log, the incidents and the report."""
    setup = experiment(
        population=4,
        cohort=3,
        stop={"rounds": 2},
        selector="power_of_choice",
        split={"test": "global"},
    )
    grid = federation(setup, tmp_path)
    node = Node(setup, tmp_path / "sites")
    runtime = node.runtime(2, {})
    setattr(runtime, f"_{kind}", lambda order: of({}))
    grid.nodes[102].app = lambda message, context: answers(node, message, context)
    done = deploy(grid, setup, tmp_path / "run", report=True)
    reasons = columns(done, "incidents")["reason"].tolist()
    place = "its client app raised KeyError: at test_client_failures.py, line "
    assert any(reason.startswith(place) for reason in reasons)
    server = [one for one in caplog.records if one.name != "motley.flower.client"]
    assert not any(NAME in logging.Formatter().format(one) for one in server)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not any(NAME.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [("train", True), ("evaluate", True), ("train", False), ("query.motley_probe", False)],
)
def test_a_name_is_nowhere_at_the_server_of_a_strategy(
    tmp_path, caplog, kind, wrapped, monkeypatch
):
    monkeypatch.setattr("motley_flower.recorded.run_files.RunFiles.report", lambda self: None)

    def app(message, context):
        return of({}) if message.metadata.message_type == kind else sgd(message, context)

    class App:
        train = query = evaluate = staticmethod(lambda *names: None)

        def __call__(self, message, context):
            return app(message, context)

    bad = with_reports(App(), reports=["loss"]) if wrapped else app
    on = FakeGrid(nodes(0, 1, 2) | nodes(3, app=bad))
    strategy = fedavg(fraction_evaluate=1.0)
    run(on, "power_of_choice", m=4, rounds=1, strategy=strategy, out=tmp_path / "run", wait_s=1)
    server = [one for one in caplog.records if one.name != "motley.flower.client"]
    assert not any(NAME in logging.Formatter().format(one) for one in server)
    assert not any(
        NAME.encode() in path.read_bytes()
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    )


def test_flower_s_sentence_about_a_function_that_the_app_has_not_leaves(tmp_path):
    """The place alone, a line of Flower's file, said nothing."""

    def text(folder, sentence):
        path = tmp_path / folder / "clientapp" / "client_app.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise ValueError({sentence!r})\n")
        with pytest.raises(Exception, match=r".") as caught, text_stays():
            runpy.run_path(str(path))
        return str(caught.value)

    sentence = "No evaluate function registered with name 'default'"
    place = "at client_app.py, line 1, in <module>"
    assert text("flwr", sentence) == sentence
    assert text("own", sentence) == text("flwr", NAME) == place
