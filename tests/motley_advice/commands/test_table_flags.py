"""Flags of how a table is written are the options of tables."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from motley_advice.commands.table_flags import TABLE_FLAGS, written_table
from motley_data.table_options import TableOptions
from motley_data.tabular import Tabular

PAGE = Path(__file__).resolve().parents[3] / "docs" / "table-files.md"


def test_each_flag_is_an_option_and_on_the_page() -> None:
    options = {field.name for field in fields(TableOptions)}
    assert {flag.key for flag in TABLE_FLAGS} <= options <= {f.name for f in fields(Tabular)}
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    on_page = {key: line for line in rows for key in re.findall(r"`(\w+)`", line.split("|")[1])}
    for flag in TABLE_FLAGS:
        if flag.key != "drop":  # is on the page about tables
            assert f"`{flag.name}`" in on_page[flag.key]


def test_what_was_not_given_is_left_out() -> None:
    assert written_table({"sep": None, "comment": [], "trim": False, "gaps": None}) == {}
    given = {"sep": "\\t", "header_rows": 0, "trim": True, "comment": ["#"]}
    assert written_table(given) == {**given, "sep": "\t"}
