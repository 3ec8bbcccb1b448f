"""What other distributions add to Motley, found by their entry points.

Motley imports none of them: the command asks here what is installed beside it. A distribution adds
a command to the group ``motley.command``, a public function of ``motley`` to ``motley.function``, a
kind of ``motley list`` to ``motley.listing``, what reads a table of the experiment file and does
what it asks for to ``motley.table``, readers of data to ``motley.data``, what restores a saved
preparation of its kind to ``motley.preparation``, a section of the report to ``motley.report``,
advice for ``motley inspect`` to ``motley.advice``, what makes a side of ``motley explain`` to
``motley.explained``, a module that runs experiments elsewhere to ``motley.runner``, and components
to the group of their kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

from motley.core.errors import ConfigError

COMES_WITH = {
    "audit-privacy": "motley-privacy",
    "column_table": "motley-data",
    "data": "motley-data",
    "deployment": "motley-flower",
    "explain": "motley-advice",
    "forget-noise": "motley-privacy",
    "from_arrays": "motley-data",
    "from_clients": "motley-data",
    "from_files": "motley-data",
    "from_flower": "motley-data",
    "hf": "motley-data",
    "inspect": "motley-advice",
    "named": "motley-data",
    "plot": "motley-report",
    "predicted": "motley-advice",
    "privacy": "motley-privacy",
    "privacy-ledger": "motley-privacy",
    "ray": "motley-ray",
    "recipe": "motley-papers",
    "report": "motley-report",
    "reproduce": "motley-papers",
    "table": "motley-data",
    "tabular": "motley-data",
    "tabular_regression": "motley-data",
    "text": "motley-data",
    "tune": "motley-advice",
    "twin": "motley-advice",
    "what-if": "motley-advice",
}
"""Commands, functions, tables, sections, kinds, engines, tasks, readers and runners that a
distribution of Motley's repository adds, and its folder there."""


def extensions(group: str) -> dict[str, metadata.EntryPoint]:
    """Return what installed packages add to a group, by name; nothing of it is imported."""
    return {point.name: point for point in _entry_points().select(group=f"motley.{group}")}


def extension(group: str, name: str) -> Any:
    """Import and return what a package adds to a group under a name; None where none does."""
    point = extensions(group).get(name)
    if point is None:
        return None
    try:
        return point.load()
    except ModuleNotFoundError as error:
        # an editable installation whose folder is gone still has its entry points
        if error.name != point.module.partition(".")[0]:
            raise
        return None


def required_extension(
    group: str, name: str, key: str | None = None, wanted: str | None = None
) -> Any:
    """Import and return what a package adds to a group under a name.

    Parameters
    ----------
    key: of an error.
    wanted: what is asked for in words, for an error; None: the name.

    Raises
    ------
    ConfigError: it is not installed, or another distribution that it needs is not.
    """
    try:
        component = extension(group, name)
    except ModuleNotFoundError as error:
        if sentence := distribution_missing(error):
            raise ConfigError(sentence, key) from error
        raise
    if component is None:
        raise ConfigError(not_installed(name, wanted), key)
    return component


def added_function(name: str) -> Callable[..., Any]:
    """Return a function of another distribution; of one that is not installed, or lacks another
    one, a function that says so when it is called, so that ``from motley import *`` and ``dir``
    work without it."""

    def _refuse(*_arguments: object, **_options: object) -> None:
        required_extension("function", name)

    try:
        function: Callable[..., Any] | None = extension("function", name)
    except ModuleNotFoundError as error:
        if distribution_missing(error) is None:
            raise
        return _refuse
    return function or _refuse


def not_installed(name: str, wanted: str | None = None) -> str:
    """Return the sentence that says which distribution has what is missing, and how to install it.

    ``wanted``: what is asked for in words; None: the name."""
    return f"{wanted or repr(name)} comes with {_to_install(COMES_WITH[name])}"


def distribution_missing(error: BaseException) -> str | None:
    """Return the sentence about an error of importing a distribution of Motley's repository that
    another one needs; None for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    folder = (error.name or "").partition(".")[0].replace("_", "-")
    return f"this needs {_to_install(folder)}" if folder in COMES_WITH.values() else None


def _to_install(folder: str) -> str:
    return (
        f"{folder}, which is not installed; in a checkout of Motley: pip install "
        f"./packages/{folder}"
    )


@cache
def added_modules() -> frozenset[str]:
    """Return the packages and modules of other distributions that add anything to Motley."""
    points = _entry_points()
    return frozenset(
        point.module.partition(".")[0]
        for group in points.groups
        if group.startswith("motley.")
        for point in points.select(group=group)
    )


@cache
def _entry_points() -> metadata.EntryPoints:
    """Return the entry points of all installed packages, which are looked for once."""
    untyped: Any = metadata.entry_points()
    points: metadata.EntryPoints = untyped
    return points
