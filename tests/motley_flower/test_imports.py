"""What the strategy side of the adapter may import: a server that chooses clients needs neither
torch nor the round loop."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import motley_flower

FOLDER = Path(motley_flower.__file__).parent
FILES = sorted([*FOLDER.glob("[a-z]*.py"), *FOLDER.glob("strategy/[a-z]*.py")])
# a client app's, loaded where it uses torch itself
FILES.remove(FOLDER / "strategy" / "torch_measures.py")
FILES.remove(FOLDER / "command.py")  # the command of an operator


def module(path):
    return ".".join(path.relative_to(FOLDER.parent).with_suffix("").parts)


def test_the_strategy_side_loads_nothing_heavy():
    names = ", ".join(map(module, FILES))
    heavy = "'torch', 'flwr', 'motley.rounds', 'motley.engines', 'sklearn'"
    code = f"import sys, {names}; from motley_flower import enrolled, with_selector"
    code += f"; sys.exit(' '.join(set(sys.modules) & {{{heavy}}}) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_strategy_side_imports_core_and_the_selectors_alone(path):
    allowed = ("motley.core", "motley_flower.", "motley.selectors", "motley_flower.secure.")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("motley"):
            assert str(node.module).startswith(allowed), f"{path.stem} imports {node.module}"
            assert ".deployed" not in str(node.module), f"{path.stem} imports {node.module}"


def test_a_deployment_that_is_not_private_loads_nothing_of_private_training():
    """Modules take it inside functions, or for types alone, but for the one that private
    deployments import."""
    loading = {
        module(path)
        for path in FOLDER.rglob("[a-z]*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("motley_privacy")
    }
    assert loading == {"motley_flower.deployed.private_deployments"}


def test_no_modules_know_each_other():
    """Not for their types either: whoever reads one need not read the other first."""
    files = sorted(FOLDER.rglob("[a-z]*.py"))
    known = {
        module(path): {
            node.module
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module
        }
        for path in files
    }
    left = {name: targets & known.keys() for name, targets in known.items()}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert sorted(left) == []


def test_every_public_name_is_found_in_its_module():
    for name in motley_flower.__all__:
        assert getattr(motley_flower, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = motley_flower.nothing


def test_without_what_own_data_needs_the_error_says_what_to_install(monkeypatch):
    from motley.core.errors import ConfigError

    monkeypatch.delitem(sys.modules, "motley_flower.deployed.own_data", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "motley_data"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "motley_data", None)
    with pytest.raises(ConfigError, match=r"^this needs motley-data, .* ./packages/motley-data$"):
        _ = motley_flower.client_task


def test_without_flower_the_error_says_what_to_install(monkeypatch):
    from motley.core.errors import ConfigError
    from motley_flower.messages import flower

    for word in [word for word in sys.modules if word.partition(".")[0] == "flwr"]:
        monkeypatch.delitem(sys.modules, word)
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(ConfigError, match=r"pip install ./packages/motley-flower"):
        flower()
