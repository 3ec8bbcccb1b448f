"""What a user of a shell sees first: the help with its examples, and the completion of bash."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from motley import cli


def test_the_help_ends_with_examples_that_parse() -> None:
    command = typer.main.get_command(cli.app)
    with command.make_context("motley", [], resilient_parsing=True) as context:
        text = context.get_help()
    lines = re.findall(
        r"^ +motley ([a-z-].*?)(?:  +.*)?$", text[text.index("Examples:") :], flags=re.MULTILINE
    )
    assert {line.partition(" ")[0] for line in lines} >= {
        "run",
        "compare",
        "report",
        "list",
        "reproduce",
    }
    for line in lines:
        words = shlex.split(line)
        context = command.make_context("motley", list(words), resilient_parsing=True)
        if not words[0].startswith("-"):
            name, sub, rest = command.resolve_command(context, list(words))
            assert sub is not None
            sub.make_context(name, list(rest), parent=context)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_kinds_and_recipes(tmp_path: Path) -> None:
    """The script that ``--show-completion`` prints is read by bash, and its function asked as bash
    does when TAB is pressed."""
    motley = tmp_path / "motley"
    motley.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m motley "$@"\n')
    motley.chmod(0o755)
    ask = (
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _motley_completion motley; echo "
        "${COMPREPLY[@]}"
    )
    words = ("motley rep", "motley list sele", "motley reproduce hetero_select_v")
    script = "\n".join(["source completion", *(f"COMP_WORDS=({line}); {ask}" for line in words)])
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    shown = subprocess.run(
        ["bash", "-c", "motley --show-completion > completion; " + script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.stdout.splitlines() == ["report reproduce", "selector", "hetero_select_v1"], (
        shown.stderr
    )
