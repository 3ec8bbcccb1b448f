"""What nodes are compared by, and how a difference is told; no cluster is needed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from motley.core.errors import ConfigError, DataError, EngineError
from motley.engines.serialization import modules_of
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley_ray import auth_token
from motley_ray.compared_nodes import differences, explained, needed
from motley_ray.node_facts import facts

HERE = {
    "Python": "3.11.7",
    "torch": "2.13.0",
    "Motley": "0.1.0",
    "code of motley/a.py": "1",
    "code of motley/b.py": "2",
}


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({}, ""),
        ({"Motley": "0.0.9"}, "Motley 0.0.9 in place of 0.1.0"),
        ({"code of motley/b.py": "3"}, "other code in motley/b.py"),
        (
            {"code of motley/a.py": "3", "code of motley/c.py": "3"},
            "other code in motley/a.py and 1 more",
        ),
        (
            {"Python": "3.12.0", "torch": "2.1.0"},
            "Python 3.12.0 in place of 3.11.7, torch 2.1.0 in place of 2.13.0",
        ),
        (
            {"torch": "ModuleNotFoundError: No module named 'torch'"},
            "ModuleNotFoundError: No module named 'torch'",
        ),
        (
            {"Motley": "ModuleNotFoundError: No module named 'motley'", "torch": "2.1.0"},
            "ModuleNotFoundError: No module named 'motley'",
        ),
        (
            {
                "motley_ray": "ModuleNotFoundError: No module named 'motley_ray'",
                "torch": "2.1.0",
            },
            "ModuleNotFoundError: No module named 'motley_ray'",
        ),
    ],
)
def test_differences_are_told(there: dict[str, str], said: str) -> None:
    assert differences(HERE, {**HERE, **there}) == said


def test_own_modules_with_what_they_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's module, its package, and what these import, in functions too; not what nobody
    imports."""
    package = tmp_path / "ours_compared"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(
        "from torch import nn\nfrom . import parts\n\ndef make():\n    import late_compared\n    "
        "return nn.Linear(2, 2)\n"
    )
    (package / "parts.py").write_text("import json\n")
    (package / "alone.py").write_text("")
    (tmp_path / "late_compared.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("ours_compared.net").make
    packages, own = needed(modules_of({"model": made}))
    assert packages == ["torch"]
    assert own == ["late_compared", "ours_compared", "ours_compared.net", "ours_compared.parts"]
    before = facts((), own)
    (package / "parts.py").write_text("import json, sys\n")
    after = facts((), own)
    assert differences(before, after) == "other code in ours_compared.parts"
    (package / "parts.py").unlink()
    monkeypatch.delitem(sys.modules, "ours_compared.parts")
    importlib.invalidate_caches()
    assert (
        differences(before, facts((), own))
        == "ModuleNotFoundError: No module named 'ours_compared.parts'"
    )


def test_installed_packages_are_compared_by_version() -> None:
    assert needed(modules_of(nn.Linear(2, 2))) == (["numpy", "torch"], [])
    found = facts(("torch", "no-such-package"), ())
    assert found["torch"].partition("+")[0] == sys.modules["torch"].__version__.partition("+")[0]
    assert found["no-such-package"] == "ModuleNotFoundError: No module named 'no-such-package'"


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            FileNotFoundError(2, "No such file", "x.npy"),
            DataError,
            r"on the node n2: .*'x.npy'; a file .* on every node",
        ),
        (
            ModuleNotFoundError("No module named 'mine'"),
            ConfigError,
            r"engine: on the node n2: .*'mine'; a module .* on every node",
        ),
        (DataError("x is cut short"), DataError, "on the node n2: x is cut short"),
    ],
)
def test_errors_of_a_node_name_it(error: Exception, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        raise explained(error, "n2")


def test_errors_that_lie_in_no_node_are_left() -> None:
    error = EngineError("a client failed")
    assert explained(error, "n2") is error


def test_engines_without_nodes_refuse_the_switch() -> None:
    keys = {
        "task": "quadratic",
        "population": 4,
        "cohort": 2,
        "partition": "by_writer",
        "stop": {"rounds": 1},
    }
    with pytest.raises(
        ConfigError,
        match=r"engine\.differing_nodes: got 'refuse', and 'sequential' has no differing_nodes",
    ):
        build(Experiment(**keys, engine={"name": "sequential", "differing_nodes": "refuse"}))
    assert (
        Experiment(**keys, engine={"differing_nodes": "refuse"}).run_id()
        == Experiment(**keys).run_id()
    )


class Refused(Exception):
    """Stands for Ray's AuthenticationError."""


class Cluster:
    """Stands for ``ray._raylet`` and a cluster that has a token, or none."""

    def __init__(self, token: str | None, environment: dict[str, str]) -> None:
        self.token = token
        self.environment = environment
        self.AuthenticationTokenLoader = SimpleNamespace(instance=lambda: self)
        self.Config = SimpleNamespace(initialize=lambda text: None)

    def reset_cache(self) -> None:
        pass

    def has_token(self, ignore_auth_mode: bool) -> bool:
        return "RAY_AUTH_TOKEN" in self.environment

    def GcsClient(self, address: str) -> None:
        sent = (
            self.environment.get("RAY_AUTH_TOKEN")
            if self.environment.get("RAY_AUTH_MODE") == "token"
            else None
        )
        if self.token is not None and sent != self.token:
            raise Refused(
                "RPC error: InvalidAuthToken: Authentication token is missing or incorrect"
            )


@pytest.mark.parametrize(
    ("token", "environment", "said"),
    [
        (None, {}, {"RAY_AUTH_MODE": "disabled"}),
        (None, {"RAY_AUTH_TOKEN": "a"}, {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "a"}),
        ("a", {"RAY_AUTH_TOKEN": "a"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a"}),
        (
            "a",
            {"RAY_AUTH_TOKEN": "b"},
            r"refuses the token here \(of RAY_AUTH_TOKEN\): it is not the cluster's",
        ),
        (
            "a",
            {},
            "wants a token, and there is none here; copy ~/.ray/auth_token of the cluster's head",
        ),
        (
            "a",
            {"RAY_AUTH_TOKEN": "a", "RAY_AUTH_MODE": "disabled"},
            "RAY_AUTH_MODE = disabled here sends none; unset it",
        ),
        (
            None,
            {"RAY_AUTH_TOKEN": "a", "RAY_AUTH_MODE": "token"},
            "asks for no token, and RAY_AUTH_MODE = token here insists",
        ),
    ],
)
def test_a_cluster_is_asked_whether_it_wants_a_token(
    token: str | None,
    environment: dict[str, str],
    said: dict[str, str] | str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = dict(environment)
    ray = Cluster(token, environment)
    monkeypatch.setitem(sys.modules, "ray._raylet", ray)
    monkeypatch.setattr(auth_token.os, "environ", environment)
    if isinstance(said, str):
        with pytest.raises(ConfigError, match=said):
            auth_token.agree("127.0.0.1:6379")
    else:
        auth_token.agree("127.0.0.1:6379")
        assert environment == said
        auth_token.restore()
    assert environment == before


def test_a_cluster_of_ones_own_has_a_token_that_no_file_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, "ray._raylet", Cluster(None, environment))
    monkeypatch.setattr(auth_token.os, "environ", environment)
    auth_token.agree(None)
    assert len(environment["RAY_AUTH_TOKEN"]) == 64
    environment["RAY_AUTH_MODE"] = "token"  # as Ray sets it
    auth_token.restore()
    assert environment == {}


def test_an_open_cluster_elsewhere_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, "ray._raylet", Cluster(None, environment))
    monkeypatch.setattr(auth_token.os, "environ", environment)
    with pytest.warns(
        UserWarning, match="whoever reaches its ports can run commands on its machines"
    ):
        auth_token.agree("10.0.0.1:6379")
    auth_token.restore()
