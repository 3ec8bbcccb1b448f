"""The page on clusters is short, and the batch script is one that a shell can read."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import typer

from motley import cli

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "slurm"


def test_the_page_is_short() -> None:
    assert len((ROOT / "docs" / "scaling.md").read_text(encoding="utf-8").split()) <= 1500


def test_a_shell_can_read_the_batch_script() -> None:
    done = subprocess.run(["bash", "-n", str(SCRIPT)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_batch_script_has_a_token_and_goes_on() -> None:
    text = SCRIPT.read_text()
    assert "export RAY_AUTH_TOKEN RAY_AUTH_MODE=token" in text
    (line,) = re.findall(r"^motley (run .*)$", text, flags=re.MULTILINE)
    words = shlex.split(
        line.replace('"$@"', "exp.toml --out runs/exp").replace("$address", "10.0.0.1:6379")
    )
    command = typer.main.get_command(cli.app)
    context = command.make_context("motley", list(words))
    _, found, rest = command.resolve_command(context, list(words))
    parsed = found.make_context("run", list(rest), parent=context).params
    assert parsed["resume"] is True
    assert parsed["set"] == ["engine.name=ray", "engine.address=10.0.0.1:6379"]
