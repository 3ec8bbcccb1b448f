"""Components of one's own as objects: the same experiment as by name, another run id for other
code, and a sentence for what does not fit."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import motley
from motley.algorithms.parts import Loss
from motley.core.errors import ConfigError, StoreError
from motley.core.files import with_digest
from motley.experiments import registry
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.experiments.sweep import Comparison, compare
from motley.rounds.run_config import RoundSummary
from motley.selectors.selector import SelectionRule
from motley.selectors.uniform import Uniform
from motley.tasks import from_clients, own_task
from motley.tasks.task import Task
from motley.world.devices import ConstantDevice
from motley.world.interfaces import Network
from motley.world.partition.basic import IID

pytestmark = pytest.mark.usefixtures("forget_names")

KEYS: dict[str, Any] = {
    "task": "synthetic",
    "population": 6,
    "cohort": 2,
    "stop": {"rounds": 2},
    "evaluate": {"every": 1},
    "checkpoint": {"every_rounds": 1},
}


@dataclass(frozen=True)
class First(Uniform):
    """Ask the clients with the smallest ids."""

    d: int = 1
    how: Callable[[int], int] | None = None


@dataclass(frozen=True)
class Lines:
    """A frozen dataclass that is no component."""


class Undecorated(Uniform):
    """A rule whose author forgot the decorator."""

    extra = 3


@dataclass(frozen=True)
class Abstract(Network):
    """A network that lacks its methods."""


def twice(x: int) -> int:
    return 2 * x


def thrice(x: int) -> int:
    return 3 * x


def _task(classes: int = 2) -> Task:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(20, 3)), np.arange(20) % classes) for _ in range(4)]
    return own_task(from_clients(clients, test_fraction=0.25), lambda: nn.Linear(3, classes))


@pytest.mark.parametrize(
    ("named", "given"),
    [
        (
            {"selector": {"name": "power_of_choice", "d": 3}},
            {"selector": motley.selectors.PowerOfChoice(d=3)},
        ),
        (
            {"algorithm": {"name": "fedprox", "mu": 1}},
            {"algorithm": motley.algorithms.FedProx(mu=1)},
        ),
        (
            {"local": {"optimizer": {"name": "sgd", "lr": 0.5}}},
            {"local": {"optimizer": motley.algorithms.SGD(lr=0.5)}},
        ),
        (
            {"partition": {"name": "dirichlet", "alpha": 0.5}},
            {"partition": motley.world.Dirichlet(alpha=0.5)},
        ),
        (
            {"quantizer": "qsgd", "compressor": "topk"},
            {"quantizer": motley.transport.QSGD(), "compressor": motley.transport.TopK()},
        ),
        (
            {"task": {"name": "image", "model": {"name": "mlp", "hidden": [8]}}},
            {"task": motley.tasks.Image(model=motley.tasks.MLP(hidden=(8,)))},
        ),
        (
            {"task": {"name": "image", "model": {"name": "mlp", "hidden": [8]}}},
            {"task": {"name": "image", "model": motley.tasks.MLP(hidden=(8,))}},
        ),
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_an_object_of_ours_is_its_name_and_options(
    named: dict[str, Any], given: dict[str, Any]
) -> None:
    assert Experiment(**{**KEYS, **given}).run_id() == Experiment(**{**KEYS, **named}).run_id()


def test_an_object_of_ours_is_checked_like_a_record() -> None:
    with pytest.raises(
        ConfigError, match=r"^algorithm\.adaptive: got 'yes'; expected true or false$"
    ):
        Experiment(**KEYS, algorithm=motley.algorithms.FedProx(adaptive="yes"))


def test_an_own_class_runs_resumes_and_is_read_without_the_class(tmp_path: Path) -> None:
    whole = run(Experiment(**KEYS, selector=First(d=3, how=twice)), out=tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert record["config"]["selector"] == {
        "name": f"{__name__}:First",
        "variant": "uniform_wor",
        "unbiased": False,
        "d": 3,
        "how": f"{__name__}:twice",
    }

    def stop(done: RoundSummary) -> None:
        raise ZeroDivisionError

    keys = {**KEYS, "selector": First(d=3, how=twice)}
    with pytest.raises(ZeroDivisionError):
        run(keys, out=tmp_path / "cut", on_round=stop)
    resumed = run(keys, out=tmp_path / "cut", resume=True)
    assert resumed.tables["evaluations"].equals(whole.tables["evaluations"])
    record["config"]["selector"]["name"] = "gone_since:First"
    (tmp_path / "whole" / "run.json").write_text(json.dumps(with_digest(record)))
    assert motley.load(tmp_path / "whole").config["selector"]["d"] == 3
    assert motley.report(tmp_path, tmp_path / "report.html").exists()


def test_other_options_and_other_code_are_another_run() -> None:
    def rule(note: str) -> SelectionRule[Any]:
        @dataclass(frozen=True)
        class Local(First):
            def size(self, draw: int, m: int, available: int) -> int:
                return m + len(note) - len(note)

        return Local()

    rules = [
        First(),
        First(d=2),
        First(how=twice),
        First(how=thrice),
        rule("a"),
        rule("b"),
        Uniform(),
    ]
    assert len({Experiment(**KEYS, selector=rule).run_id() for rule in rules}) == len(rules)
    assert (
        Experiment(**KEYS, selector=rule("a")).run_id()
        == Experiment(**KEYS, selector=rule("a")).run_id()
    )


@dataclass(frozen=True)
class FromFile(ConstantDevice):
    """A device of one's own that reads a file, and says nothing of it."""

    file: str = ""
    folder: str = "."


def test_a_file_that_an_option_names_is_in_the_run_id(tmp_path: Path) -> None:
    file = tmp_path / "steps.csv"

    def run_id() -> str:
        return Experiment(**KEYS, device=FromFile(file=str(file))).run_id()

    ids = []
    for text in ("step_s\n1\n", "step_s\n22\n", "step_s\n1\n"):
        file.write_text(text)
        ids.append(run_id())
    assert ids[0] == ids[2] != ids[1]
    file.unlink()
    assert run_id() not in ids


def test_what_has_no_fingerprint_never_meets_an_existing_folder(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        keys = {**KEYS, "selector": First(how=lambda x: file.fileno() and x)}
        run(keys, out=tmp_path / "run")
        with pytest.raises(
            StoreError, match="holds a run, and nothing says whether it is this one"
        ):
            run(keys, out=tmp_path / "run")


def test_an_option_of_an_object_can_be_set() -> None:
    ours, own = (
        Experiment(**KEYS, selector=rule)
        for rule in (motley.selectors.PowerOfChoice(d=3), First(d=3))
    )
    assert ours.replace({"selector.d": 4}).part("selector") == motley.selectors.PowerOfChoice(d=4)
    assert own.replace({"selector.d": 4}).part("selector") == First(d=4)
    assert own.replace({"selector.name": "uniform"}).part("selector") == Uniform()
    with pytest.raises(
        ConfigError,
        match=r"selector\.e: First has no such option; its options: variant, unbiased, d, how",
    ):
        own.replace({"selector.e": 4})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"algorithm": First()},
            r"^algorithm: got First, which goes under another key; write selector = First\(...\)$",
        ),
        (
            {"selector": motley.algorithms.SGD()},
            r"^selector: got SGD, .* write local.optimizer = SGD\(...\)$",
        ),
        (
            {"selector": First},
            r"^selector: got the class First; give an object of it, selector = First\(...\)$",
        ),
        (
            {"selector": {"name": First, "d": 2}},
            r"^selector.name: got the class First; .* selector = First\(...\)$",
        ),
        (
            {"selector": Lines()},
            r"^selector: got Lines, which is no selector; write class Lines\(SelectionRule\)$",
        ),
        (
            {"selector": Undecorated()},
            r"no frozen dataclass; write @dataclass\(frozen=True\) above class Undecorated$",
        ),
        (
            {"selector": motley.selectors.build("uniform")},
            r"^selector: got <.*>; expected a name or .* made from SelectionRule$",
        ),
        ({"task": nn.Linear(2, 2)}, "^task: got Linear; this key is a name or a path"),
    ],
)
def test_wrong_objects(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment(**{**KEYS, **keys})


def test_a_mutable_rule_is_refused() -> None:
    @dataclass
    class Loose(SelectionRule[int]):  # type: ignore[misc]
        def needs(self) -> Any: ...
        def init(self) -> Any: ...
        def select(self, state: Any, context: Any) -> Any: ...
        def observe(self, state: Any, draw: int, reports: Any) -> Any: ...

    with pytest.raises(ConfigError, match="got Loose, which is no frozen dataclass"):
        Experiment(**KEYS, selector=Loose())


# ------------------------------------------------------------------------------------------ names


def test_a_registered_class_has_a_name(tmp_path: Path) -> None:
    motley.register("selectors", "first", First)
    motley.register("selector", "first", First)  # again, as in a notebook
    named = Experiment(**KEYS, selector={"name": "first", "d": 2})
    given = Experiment(**KEYS, selector=First(d=2))
    assert given.resolved()["selector"]["name"] == "first"
    assert named.run_id() == given.run_id()
    assert "first" in [row["name"] for row in registry.listing("selector")]


def test_a_class_inside_a_function_is_registered_with_types_that_only_the_function_knows() -> None:
    class Inner:
        """A type of an option."""

    @dataclass(frozen=True)
    class Local(First):
        inner: Inner | None = None

    motley.register("selector", "local", Local)
    assert Experiment(**KEYS, selector={"name": "local", "d": 2}).part("selector") == Local(d=2)


@pytest.mark.parametrize(
    ("kind", "name", "cls", "message"),
    [
        (
            "selector",
            "uniform",
            First,
            r"^name: 'uniform' is taken \(motley.selectors.uniform:Uniform\); choose another name$",
        ),
        (
            "selector",
            "my rule",
            First,
            r"^name: got 'my rule'; expected a name such as my_selector$",
        ),
        ("selector", "x", First(), r"^selector: got First\(.*\); expected a class, e.g. First$"),
        (
            "algorithm",
            "x",
            First,
            r"^algorithm: got First, which is no algorithm; write class First\(Method\)$",
        ),
        ("network", "x", Abstract, r"^network: got Abstract, which does not define .*mbps"),
        ("selector", "x", Undecorated, "no frozen dataclass"),
        ("selectr", "x", First, r"there is no kind 'selectr' \(did you mean 'selector'\?\)"),
        ("engine", "x", First, "engines take no options"),
    ],
)
def test_what_cannot_be_registered(kind: str, name: str, cls: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        motley.register(kind, name, cls)


FILE = """
cohort = 2
population = 6
stop = { rounds = 1 }
task = "synthetic"
selector = { name = "my_rules:Mine", d = 2 }
"""

RULES = """
from dataclasses import dataclass
from motley.selectors.uniform import Uniform

@dataclass(frozen=True)
class Mine(Uniform):
    \"\"\"A rule.\"\"\"
    d: int = 1
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an experiment, and the module of the rule that it names."""
    (tmp_path / "exp.toml").write_text(FILE)
    (tmp_path / "my_rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path / "exp.toml"
    sys.modules.pop("my_rules", None)


def test_a_class_in_a_file_is_imported_only_where_that_is_allowed(
    own_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^selector\.name: got 'my_rules:Mine', which imports a module and so runs its code; "
        r"if",
    ):
        run(own_module)
    assert "my_rules" not in sys.modules
    with pytest.raises(
        ConfigError, match=r"cannot be imported \(ModuleNotFoundError: No module named 'my_rules'\)"
    ):
        run(own_module, allow_import=True)
    monkeypatch.syspath_prepend(str(own_module.parent))
    done = run(own_module, allow_import=True)
    assert done.config["selector"] == {
        "name": "my_rules:Mine",
        "variant": "uniform_wor",
        "unbiased": False,
        "d": 2,
    }
    import my_rules  # type: ignore[import-not-found]

    given = Experiment(
        cohort=2, population=6, stop={"rounds": 1}, task="synthetic", selector=my_rules.Mine(d=2)
    )
    assert done.meta["run_id"] == given.run_id()
    found = compare(
        own_module,
        {"selector.d": [3]},
        out=own_module.parent / "sweep",
        allow_import=True,
        jobs=2,  # so in another process
    )
    assert [run.config["selector"]["d"] for run in found.runs] == [3]
    assert (
        motley.build({**KEYS, "selector": "my_rules:Mine"}, allow_import=True).state.selector.rule
        == my_rules.Mine()
    )


def test_the_command_imports_from_the_working_directory_where_it_may(
    own_module: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from motley.cli import call

    assert call(["run", "exp.toml", "--no-report"]) == 2
    assert "--allow-import" in capsys.readouterr().err
    assert call(["run", "exp.toml", "--no-report", "--allow-import"]) == 0


def test_an_experiment_goes_to_another_process_with_its_classes() -> None:
    motley.register("selector", "first", First)
    bytes_ = pickle.dumps(Experiment(**KEYS, selector={"name": "first", "d": 2}))
    names = registry.catalogue("selector")
    del names.targets["first"], names._classes["first"]
    there = pickle.loads(bytes_)  # noqa: S301 - our own bytes
    assert there.replace({"seed": 1}).part("selector") == First(d=2)


OWN_MODEL = """
from dataclasses import dataclass
from torch import nn
from motley.tasks.models import Model

@dataclass(frozen=True)
class Wide(Model):
    def build(self, inputs, outputs):
        return nn.Linear(inputs[0], outputs, bias=True)
"""

OWN_DEFAULT = f"""{OWN_MODEL}
from motley.tasks.synthetic import Synthetic

@dataclass(frozen=True)
class Mine(Synthetic):
    model: str = "nested:Wide"
"""

OWN_LOSS = """
from dataclasses import dataclass
from motley.algorithms.parts import Loss
from motley.tasks.synthetic import Synthetic

@dataclass(frozen=True)
class Times(Loss):
    def loss(self, outputs, targets, extra):
        return -2.0 * outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)

@dataclass(frozen=True)
class Mine(Synthetic):
    loss = "nested:Times"
"""

OWN_METHOD = """
from dataclasses import dataclass
from motley.algorithms.fedprox import FedProx

@dataclass(frozen=True)
class Mine(FedProx):
    mu: float = 0.3
"""

OWN_CAPACITY = """
from dataclasses import dataclass
from motley.world.capacity import ConstantCapacity

@dataclass(frozen=True)
class Half(ConstantCapacity):
    width: float = 0.5
"""

NESTED: dict[str, tuple[str, dict[str, Any], tuple[str, str]]] = {
    "a model": (
        OWN_MODEL,
        {"task": {"name": "synthetic", "model": "nested:Wide"}},
        ("bias=True", "bias=False"),
    ),
    "a default model of a task": (
        OWN_DEFAULT,
        {"task": "nested:Mine"},
        ("bias=True", "bias=False"),
    ),
    "the loss of a task": (OWN_LOSS, {"task": "nested:Mine"}, ("-2.0", "-3.0")),
    "a method": (
        OWN_METHOD,
        {"algorithm": {"name": "fine_tuned", "method": "nested:Mine"}},
        ("0.3", "0.4"),
    ),
    "a capacity": (
        OWN_CAPACITY,
        {
            "task": {"name": "image", "model": "mlp"},
            "algorithm": "heterofl",
            "network": {"name": "constant", "up_mbps": 1.0, "down_mbps": 1.0},
            "capacity": {"name": "by_deadline", "within": "nested:Half"},
        },
        ("0.5", "0.25"),
    ),
}
"""What a component names -> the file that defines it, the keys, and a change of the file."""


@pytest.fixture
def nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write the module ``nested`` anew, for what imports it next."""
    monkeypatch.syspath_prepend(tmp_path)

    def forget() -> None:
        sys.modules.pop("nested", None)
        for kind in registry.KINDS:
            names = registry.catalogue(kind)
            for name in [name for name in names.targets if name.startswith("nested:")]:
                del names.targets[name], names._classes[name]

    def write(text: str) -> None:
        forget()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)  # of the same second and size
        (tmp_path / "nested.py").write_text(text)

    yield write
    forget()


@pytest.mark.parametrize("what", NESTED)
def test_code_that_a_component_names_is_in_the_run_id(
    nested: Callable[[str], None], tmp_path: Path, what: str
) -> None:
    text, more, (before, after) = NESTED[what]

    def ran() -> Comparison:
        return compare({**KEYS, **more}, seeds=[0], out=tmp_path / "runs", allow_import=True)

    nested(text)
    first, again = ran(), ran()
    assert (first.made, again.made) == (True, False)
    assert text.count(before) == 1
    nested(text.replace(before, after))
    changed = ran()
    assert changed.made
    assert changed.runs[0].meta["run_id"] != first.runs[0].meta["run_id"]
    nested(text)
    assert not ran().made


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("what", NESTED)
def test_runs_go_on_in_other_processes_with_code_that_a_component_names(
    nested: Callable[[str], None], tmp_path: Path, what: str, jobs: int
) -> None:
    text, more, _ = NESTED[what]
    nested(text)
    keys = {**KEYS, **more}

    def interrupt(summary: RoundSummary) -> None:
        raise RuntimeError("stop")

    whole = compare(keys, seeds=[0, 1], out=tmp_path / "whole", allow_import=True)
    for finished in whole.runs:
        folder = tmp_path / "begun" / finished.directory.relative_to(tmp_path / "whole")
        with pytest.raises(RuntimeError, match="stop"):
            run(
                {**keys, "seed": finished.config["seed"]},
                out=folder,
                on_round=interrupt,
                allow_import=True,
            )
    resumed = compare(keys, seeds=[0, 1], out=tmp_path / "begun", allow_import=True, jobs=jobs)
    assert [
        finished.tables["evaluations"].equals(other.tables["evaluations"])
        for finished, other in zip(whole.runs, resumed.runs, strict=True)
    ] == [True, True]


@dataclass(frozen=True)
class Times(Loss):
    """Cross-entropy, times ``by``."""

    by: float = 2.0

    def loss(self, outputs: Any, targets: Any, extra: Any) -> Any:
        return -self.by * outputs.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def test_a_registered_loss_of_a_task_goes_into_other_processes(tmp_path: Path) -> None:
    motley.register("loss", "times", Times)
    federation = _task().federation
    twofold, threefold = (
        own_task(federation, partial(nn.Linear, 3, 2), loss=loss)
        for loss in ("times", {"name": "times", "by": 3.0})
    )
    keys = {"cohort": 2, "stop": {"rounds": 2}, "engine": "sequential"}
    here, there = (
        compare(keys, seeds=[0, 1], task=twofold, out=tmp_path / f"{jobs} jobs", jobs=jobs).runs
        for jobs in (1, 2)
    )
    workers = run({**keys, "engine": "processes"}, task=twofold, out=tmp_path / "workers")
    for done, other in ((here[0], there[0]), (here[1], there[1]), (here[0], workers)):
        assert done.tables["evaluations"].equals(other.tables["evaluations"])
        assert done.meta["run_id"] == other.meta["run_id"]
    other = run(keys, task=threefold, out=tmp_path / "threefold")
    assert not other.tables["evaluations"].equals(here[0].tables["evaluations"])


def test_the_run_id_covers_a_registered_loss_of_a_task() -> None:
    motley.register("loss", "times", Times)
    federation = _task().federation
    tasks = [
        own_task(federation, partial(nn.Linear, 3, 2), loss=loss)
        for loss in ("times", {"name": "times", "by": 3.0}, "cross_entropy")
    ]
    made = [Experiment(task=task, cohort=2, stop={"rounds": 2}) for task in tasks]
    ids = [experiment.run_id() for experiment in made]
    assert len(set(ids)) == 3
    assert [experiment.replace({"seed": 0}).run_id() for experiment in made] == ids

    @dataclass(frozen=True)
    class Other(Times):
        def loss(self, outputs: Any, targets: Any, extra: Any) -> Any:
            return super().loss(outputs, targets, extra) / 2

    registry.catalogue("loss").add("times", Other)
    changed = Experiment(task=tasks[0], cohort=2, stop={"rounds": 2})
    assert changed.run_id() not in ids


# ---------------------------------------------------------------------------- tasks and comparisons


def test_an_experiment_holds_its_task(tmp_path: Path) -> None:
    keys = {"cohort": 2, "stop": {"rounds": 2}, "evaluate": {"every": 1}}
    beside = run(keys, task=_task(), out=tmp_path / "1")
    inside = Experiment(**keys, task=_task())
    assert inside.run_id() == beside.meta["run_id"]
    assert (
        run(inside, out=tmp_path / "2").tables["evaluations"].equals(beside.tables["evaluations"])
    )
    assert motley.build(inside).step().round == 1


def test_a_task_that_cannot_be_sent_is_refused_by_several_jobs(tmp_path: Path) -> None:
    class Held:
        def __reduce__(self) -> str:
            raise TypeError("cannot be pickled")

    held = Held()
    task = own_task(_task().federation, lambda: nn.Linear(3, 2, bias=held is not None))
    with pytest.raises(ConfigError, match=r"^jobs: .*; or run one after the other \(jobs = 1\)$"):
        compare({"cohort": 2, "stop": {"rounds": 1}}, seeds=[0, 1], out=tmp_path, task=task, jobs=2)


def test_a_task_is_compared_over_objects_grids_and_seeds(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Fails(First):
        def select(self, state: Any, context: Any) -> Any:
            raise ConfigError("no")

    keys = {"cohort": 2, "stop": {"rounds": 1}, "grid": {"local.epochs": [1, 2]}}
    rules = [First(d=3), First(d=2), "uniform", Fails()]
    ended = []
    found = compare(
        keys, {"selector": rules}, [0, 1], out=tmp_path, task=_task(), on_end=ended.append
    )
    assert len(found.runs) == len(ended) == 12
    assert {failure.point.label for failure in found.failures} == {
        f"epochs={n} Fails" for n in (1, 2)
    }
    labels = {
        f"epochs={n}-{rule}" for n in (1, 2) for rule in ("First-d=3", "First-d=2", "uniform")
    }
    assert {run.directory.parent.name for run in found.runs} == labels


def test_several_tasks_are_compared(tmp_path: Path) -> None:
    tasks = [dataclasses.replace(_task(classes), name=f"of {classes}") for classes in (2, 3)]
    found = compare(
        {"cohort": 2, "stop": {"rounds": 1}, "task": tasks[0]}, {"task": tasks}, out=tmp_path
    )
    assert [run.directory.parent.name for run in found.runs] == ["of-2", "of-3"]
    assert found.runs[1].module().out_features == 3


# ---------------------------------------------------------------------------------------- callbacks


def test_callbacks_see_rounds_and_results_and_change_nothing(tmp_path: Path) -> None:
    plain = run(KEYS, out=tmp_path / "1")
    rounds: list[RoundSummary] = []
    ends: list[motley.Run] = []

    def ended(done: motley.Run) -> None:
        done.meta.clear()  # type: ignore[attr-defined]
        ends.append(done)

    heard = run(KEYS, out=tmp_path / "2", on_round=rounds.append, on_end=ended)
    assert [done.round for done in rounds] == [1, 2]
    assert heard.meta["run_id"] == plain.meta["run_id"]
    assert heard.tables["evaluations"].equals(plain.tables["evaluations"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        rounds[0].score = 1.0  # type: ignore[misc]
    run(KEYS, out=tmp_path / "2", on_round=rounds.append, on_end=ended)
    assert (len(rounds), len(ends)) == (2, 2)


def test_an_error_in_a_callback_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    keys = {**KEYS, "stop": {"rounds": 3}, "checkpoint": {"every_rounds": 100}}
    heard: list[int] = []

    def fails(done: RoundSummary) -> None:
        heard.append(done.round)
        if done.round == 2:
            raise ValueError("the callback's own")

    with pytest.raises(ValueError, match="the callback's own"):
        run(keys, out=tmp_path, on_round=fails)
    assert not motley.load(tmp_path).finished
    run(keys, out=tmp_path, resume=True, on_round=fails)
    assert heard == [1, 2, 3]


def test_a_function_is_no_progress(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^progress: got a function; expected true or false: .* is on_round="
    ):
        run(KEYS, out=tmp_path / "run", progress=print)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_an_own_partition_makes_the_clients(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Mine(IID):
        """Equal shares."""

    ours = run({**KEYS, "task": "image", "partition": "iid"}, out=tmp_path / "1")
    mine = run({**KEYS, "task": "image", "partition": Mine()}, out=tmp_path / "2")
    assert ours.tables["evaluations"].equals(mine.tables["evaluations"])
    assert ours.meta["run_id"] != mine.meta["run_id"]
