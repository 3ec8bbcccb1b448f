"""The session on ``docs/table-files.md``: each command says of a messy export what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from motley.cli import call

PAGE = Path(__file__).resolve().parents[3] / "docs" / "table-files.md"


@pytest.mark.usefixtures("drawn")
def test_each_command_says_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = PAGE.read_text().split("{#messy}", 1)[1]
    code, session = re.findall(r"```(?:python|text)\n(.*?)```", section, flags=re.DOTALL)[:2]
    exec(code, {"Path": Path})  # noqa: S102 - the very point
    commands = re.split(r"^\$ motley ", session, flags=re.MULTILINE)[1:]
    assert len(commands) == 2
    for number, text in enumerate(commands):
        line, shown = text.split("\n", 1)
        assert call(shlex.split(line)) == (2, 0)[number]
        said = capsys.readouterr()
        rest = said.out + said.err
        for part in filter(None, map(str.strip, re.split(r"\.\.\.|\n", shown))):
            assert part in rest, f"{line}: {part}"
            rest = rest.split(part, 1)[1]
