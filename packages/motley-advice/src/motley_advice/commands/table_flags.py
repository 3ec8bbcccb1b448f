"""Flags that say how a table is written: options of
:class:`~motley_data.table_options.TableOptions`, which are keys of ``[task]``, too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import typer


class TableFlag(NamedTuple):
    """A flag for an option.

    Parameters
    ----------
    key: the option.
    kind: of the flag's values; a list may be given several times.
    metavar: empty for a flag without a value.
    flag: empty: the key's name.
    """

    key: str
    kind: Any
    metavar: str
    help: str
    flag: str = ""

    @property
    def name(self) -> str:
        """The flag as it is written."""
        return self.flag or f"--{self.key.replace('_', '-')}"

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of a command."""
        option = typer.Option(
            self.name,
            metavar=self.metavar or None,
            help=self.help,
            rich_help_panel="How a table is written",
            min=0 if self.kind is int else None,
        )
        kind = self.kind if self.kind is bool else self.kind | None
        return inspect.Parameter(
            self.key,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if self.kind is bool else None,
            annotation=Annotated[kind, option],
        )


TABLE_FLAGS = (
    TableFlag("sep", str, "MARK", "What divides columns, if it is not recognized."),
    TableFlag("decimal", str, "MARK", "The decimal mark: . or ,"),
    TableFlag("thousands", str, "MARK", "The mark between groups of three digits."),
    TableFlag("encoding", str, "NAME", "If it is not UTF-8, e.g. latin-1."),
    TableFlag(
        "dates",
        str,
        "ORDER",
        'Read dates as days: "day first", "month first" or "year first".',
    ),
    TableFlag("header_rows", int, "N", "Lines that name the columns."),
    TableFlag("comment", list[str], "MARK", "What a line begins with that is none of the table."),
    TableFlag("sheet", str, "NAME", "Of an Excel file."),
    TableFlag(
        key="gaps",
        kind=list[str],
        metavar="TEXT",
        help="A text that stands for a gap.",
        flag="--gap",
    ),
    TableFlag(
        key="units",
        kind=list[str],
        metavar="TEXT",
        help="A text beside numbers that is left out.",
        flag="--unit",
    ),
    TableFlag("words", list[str], "COLUMN", "A column to read as words."),
    TableFlag("numbers", list[str], "COLUMN", "A column to keep as numbers."),
    TableFlag("drop", list[str], "COLUMN", "A column to leave out."),
    TableFlag("drop_rows", bool, "", "Leave out rows without a label or client."),
    TableFlag("trim", bool, "", "Join what differs in blanks alone."),
    TableFlag("fold", bool, "", "Join what differs in capitals alone."),
)


def with_table_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with all of :data:`TABLE_FLAGS` in place of its ``**`` parameter."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    flags = [flag.parameter() for flag in TABLE_FLAGS]
    command.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*own, *flags)}
    return command


def written_table(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given as flags."""
    table = {  # 0 is a number of heads, and equals False
        key: value
        for key, value in flags.items()
        if value is not None and value is not False and value != []
    }
    return {**table, "sep": table["sep"].replace("\\t", "\t")} if "sep" in table else table
