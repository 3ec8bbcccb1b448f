"""What the strategy's side of the adapter may load: a server that chooses clients needs neither torch nor the simulator."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import motley

HERE = Path(motley.__file__).parent / "adapters" / "flower"
MINE = sorted(path.stem for path in (HERE / "strategy").glob("[a-z]*.py"))


def test_nothing_heavy_is_loaded_before_it_is_used():
    names = ", ".join(f"motley.adapters.flower.strategy.{name}" for name in MINE)
    heavy = "'torch', 'flwr', 'motley.rounds', 'motley.engines', 'sklearn'"
    code = f"import sys, {names}; sys.exit(' '.join(set(sys.modules) & {{{heavy}}}) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MINE)
def test_arrows_point_down(name):
    allowed = ("motley.core", "motley.adapters.flower", "motley.selectors.base")
    for node in ast.walk(ast.parse((HERE / "strategy" / f"{name}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("motley"):
            assert str(node.module).startswith(allowed), f"{name} imports {node.module}"


def test_who_has_no_flower_is_told_what_to_install(monkeypatch):
    from motley.adapters.flower.messages import flower
    from motley.core.errors import ConfigError

    for word in [word for word in sys.modules if word.partition(".")[0] == "flwr"]:
        monkeypatch.delitem(sys.modules, word)
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(ConfigError, match=r"pip install 'motley-fl\[flower\]'"):
        flower()
