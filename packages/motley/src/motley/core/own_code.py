"""Where an error was raised in code that is not Motley's: in a component, model or loss of a user's
own.

An exception that crosses a process loses its traceback, so the sentence about it is kept on the
exception itself.
"""

from __future__ import annotations

import inspect
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

from motley.core.errors import MotleyError, UserError
from motley.core.extensions import added_modules

_MARK = "motley_own_code"
"""Attribute of an exception that holds the sentence; attributes travel with a pickled exception."""


def own_code_in(error: BaseException) -> str | None:
    """Return the sentence that says which code of the user's raised an error, e.g. ``"it was raised
    in rules.py, line 14, in select: return ids[0]"``; None for an error of Motley's own code."""
    sentence: str | None = getattr(error, _MARK, None)
    return sentence if sentence is not None else _raised_in(error)


def keep_own_code(
    error: BaseException,
    components: Iterable[object] = (),
    like: BaseException | None = None,
) -> None:
    """Keep on an error the sentence that :func:`own_code_in` returns, and show it with the
    traceback.

    Parameters
    ----------
    error: what was raised.
    components: the run's components that are not Motley's own, which are named where none of them
    raised the error: one of them may have returned something wrong.
    like: the error in whose place this one is raised.
    """
    if getattr(error, _MARK, None) is not None or isinstance(error, UserError):
        return
    sentence = own_code_in(like or error) or _may_come_from(components)
    if sentence is not None:
        setattr(error, _MARK, sentence)
        error.add_note(sentence)


def in_one_line(error: BaseException) -> str:
    """Return an error's type and message in one line; the message alone of an error that Motley
    raised on purpose."""
    if isinstance(error, MotleyError):
        return " ".join(str(error).split())
    return " ".join(traceback.format_exception_only(error)[0].split())


def place_in_own_code(error: BaseException) -> str:
    """Return ``", in rules.py, line 14, in select"`` to follow an error's message, where code of
    the user's raised it; else nothing."""
    place = _place(error)
    return "" if place is None or place in str(error) else f", in {place}"


def definition(component: object) -> str | None:
    """Return the name, file and line of the user's function or class, or of the class of an object,
    e.g. ``"Loudest (rules.py, line 12)"``; None where it is not the user's or has no file."""
    while isinstance(component, partial):
        component = component.args[0] if component.args else component.func
    named: Any = component if hasattr(component, "__qualname__") else type(component)
    try:
        file = inspect.getsourcefile(named)
        _, line = inspect.getsourcelines(named)
    except (OSError, TypeError):
        return None
    if file is None or not _is_users(file, named.__module__):
        return None
    return f"{named.__qualname__} ({_short(file)}, line {max(line, 1)})"


def _raised_in(error: BaseException) -> str | None:
    """Return the sentence about the code of the user's that raised an error, with its line."""
    frame = _frame(error)
    if frame is None:
        return None
    code, line = frame
    text = linecache.getline(code.co_filename, line).strip()
    return f"it was raised in {_place(error)}" + (f": {text}" if text else "")


def _place(error: BaseException) -> str | None:
    frame = _frame(error)
    if frame is None:
        return None
    code, line = frame
    return f"{_short(code.co_filename)}, line {line}, in {code.co_name}"


def _frame(error: BaseException) -> tuple[CodeType, int] | None:
    """Return the innermost code of the user's that Motley called, and its line."""
    for cause in _chain(error):
        below = False
        innermost = None
        for frame, line in traceback.walk_tb(cause.__traceback__):
            module = str(frame.f_globals.get("__name__", ""))
            below = below or is_motley(module)
            if below and _is_users(frame.f_code.co_filename, module):
                innermost = frame.f_code, line
        if innermost is not None:
            return innermost
    return None


def _may_come_from(components: Iterable[object]) -> str | None:
    """Return the sentence about components that may have returned something wrong."""
    places = [place for place in map(definition, components) if place is not None]
    if not places:
        return None
    return f"it was raised where Motley works with parts of your own: {', '.join(places)}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


_DISTRIBUTIONS = (
    "motley",
    "motley_advice",
    "motley_data",
    "motley_flower",
    "motley_papers",
    "motley_privacy",
    "motley_ray",
    "motley_report",
)


def is_motley(module: str) -> bool:
    """Return whether a module of this dotted name is of a distribution of Motley's repository."""
    return module.partition(".")[0] in _DISTRIBUTIONS


def _is_users(file: str, module: str) -> bool:
    """Return whether code is neither Motley's, nor of an installed package, unless that adds to
    Motley, nor of Python itself, nor made without a file (a notebook's cells have names of their
    own)."""
    if is_motley(module):
        return False
    if file.startswith("<"):
        return file.startswith(("<stdin", "<ipython"))
    return module.partition(".")[0] in added_modules() or not file.startswith(_installed())


@cache
def _installed() -> tuple[str, ...]:
    """Return the folders of Python's library and of installed packages."""
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {paths[name] for name in names}
    folders |= {str(Path(paths[name]).resolve()) for name in names}
    folders |= {
        folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")
    }
    return tuple(sorted(folders))


def _short(file: str) -> str:
    """Return a path as seen from the working directory where it lies below that."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (OSError, ValueError):
        return file
