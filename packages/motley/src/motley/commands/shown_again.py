"""What ``motley compare`` printed of runs that are all finished, kept as ``shown.json`` in their
folder, and printed again while nothing has changed of all that it follows from.

That is: the words of the command, the experiment file, the files that the experiment names, the
variants of public data, the files of the runs, the report, the code of Motley and of packages that
add to it, the installed versions, and the terminal. Neither the runs nor torch are loaded then.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motley.commands.shared_options import Printed, print_again, prints_kept, say, wide_console
from motley.core.extensions import added_modules
from motley.core.files import (
    changed,
    digests_noted,
    files_digest,
    is_file,
    replacing,
    user_path,
    with_digest,
)
from motley.core.untrusted import printable
from motley.experiments.data_variants import named_variants
from motley.experiments.folder_names import slug

if TYPE_CHECKING:
    from motley.experiments.sweep import Comparison
    from motley.results.load import Run

FILE = "shown.json"
_COMPARISON = "comparison.json"
_REPORT = "report.html"
_READ = (".json", ".parquet")
"""Files of a run that are compared by their content; others, models among them, by size and
time."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MOST_BYTES = 16 * 2**20
_BEGINNING = b'{"conditions": "'
"""Of every file that is kept."""


@dataclass
class Showing:
    """One call of ``motley compare``.

    Parameters
    ----------
    file: the experiment.
    overrides: settings like ``"name=mine"``.
    out: folder of all runs, ``runs/<name>`` where it is left out.
    data: folder that is searched first for public data.
    options: all other words of the command that change what it prints.
    """

    file: Path
    overrides: Sequence[str]
    out: Path | None
    data: Path | None
    options: Mapping[str, object]
    _printed: Printed = field(default_factory=list, init=False)
    _digests: dict[str, str] = field(default_factory=dict, init=False)
    _notes: int = field(default=0, init=False)
    _known: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._conditions = self._of_now()

    def again(self) -> bool:
        """Print what was printed before, and return whether it was: nothing may have changed."""
        base = user_path(self.out) if self.out else _usual_folder(self.file, self.overrides)
        kept = _read(base / FILE)
        if kept is None or self._conditions is None or kept["conditions"] != self._conditions:
            return False
        if kept["state"] != _state(base, kept["state"], self.data):
            return False
        number = len(kept["state"]["runs"])
        whose = "the run is" if number == 1 else f"all {number} runs are"
        say(f"note: {whose} finished, and shown as before, for nothing has changed")
        print_again([(err, text) for err, text in kept["printed"]])
        return True

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is printed, and which files the experiment reads, within the block."""
        with prints_kept() as self._printed, digests_noted() as self._digests:
            yield

    def note(self, line: str) -> None:
        """Print a line that a comparison tells before its runs."""
        self._notes += 1
        say(f"note: {line}")

    def ran(self, comparison: Comparison) -> None:
        """Forget what was printed of making runs: nothing of it is printed where they are there."""
        only_notes = len(self._printed) == self._notes
        self._known = comparison.told is not None and (only_notes or not comparison.made)
        if comparison.made:
            self._printed.clear()
            self._printed += [
                (True, f"{printable(f'motley: note: {line}')}\n") for line in comparison.told or ()
            ]

    def keep(self, comparison: Comparison, with_report: bool) -> None:
        """Keep what was printed of a comparison, where the same command would print it again."""
        runs = [*comparison.runs, *comparison.controls]
        if not self._known or self._unnoted(runs) or self._conditions != self._of_now():
            return
        base = comparison.directory
        names = {
            "runs": [run.directory.relative_to(base).as_posix() for run in runs],
            "files": list(self._digests),
            "data": sorted({name for run in runs for name in _data_names(run.config)}),
            "report": with_report,
        }
        state = _state(base, names, self.data)
        if state["files"] != self._digests:  # one has changed while the runs were made
            return
        if not _is_ours(base / FILE):  # a file of the user's that is called so
            return
        record = {"conditions": self._conditions, "state": state, "printed": self._printed}
        from motley.results.load import as_private_as

        # the disk is full, or not ours to write to: it is worked out again
        with as_private_as(runs), suppress(OSError), replacing(base / FILE) as file:
            file.write(json.dumps(with_digest(record)).encode())

    def _unnoted(self, runs: Iterable[Run]) -> bool:
        """Return whether an experiment names a file whose content was not noted."""
        texts = {text for run in runs for text in _texts(run.config)}
        return any(text not in self._digests and _is_a_file(text) for text in texts)

    def _of_now(self) -> str | None:
        """Return a hash of all that decides what is printed beside :func:`_state`; None where the
        experiment file can be read only once."""
        if not is_file(self.file):
            return None
        console = wide_console()
        words = {
            "file": str(self.file),
            "overrides": list(self.overrides),
            "out": str(self.out),
            "data": str(self.data),
            **self.options,
            "experiment": files_digest(self.file),
            "code": [_code(module) for module in sorted(("motley", *added_modules()))],
            "installed": _installed(),
            "python": sys.version,
            "console": [
                console.width,
                console.encoding,
                console.color_system,
                console.is_terminal,
                console.no_color,
            ],
        }
        return hashlib.blake2b(json.dumps(words, sort_keys=True).encode()).hexdigest()


def _usual_folder(file: Path, overrides: Sequence[str]) -> Path:
    """Return the folder that a comparison has by default; a wrong one where the name comes from
    elsewhere, in which nothing is found."""
    try:
        name = tomllib.loads(file.read_text("utf-8-sig")).get("name", "experiment")
    except (OSError, ValueError, RecursionError):
        name = ""
    for setting in overrides:
        key, _, value = setting.partition("=")
        name = value if key == "name" else name
    return Path("runs") / slug(str(name))


def _read(path: Path) -> dict[str, Any] | None:
    """Return what was kept; None where there is nothing, or something else."""
    if not is_file(path):
        return None
    try:
        with path.open("rb") as file:
            kept = json.loads(file.read(_MOST_BYTES))
        if "digest" not in kept or changed(kept):
            return None
        texts = [text for _, text in kept["printed"]]
        if any(printable(plain) != plain for plain in (_COLOUR.sub("", text) for text in texts)):
            return None
        kept["state"]["runs"].keys(), kept["state"]["files"].keys()
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    return dict(kept)


def _is_ours(path: Path) -> bool:
    """Return whether nothing is lost by writing to a path: there is nothing, or what was kept
    before, perhaps damaged."""
    if not os.path.lexists(path):
        return True
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            return _BEGINNING.startswith(file.read(len(_BEGINNING)))
    except OSError:
        return False


def _state(base: Path, names: Mapping[str, Any], data: Path | None) -> dict[str, Any]:
    """Return hashes of the runs in a folder (relative paths), of what is known of all of them, of
    the user's files, and the variants of public data."""
    report = base / _REPORT
    return {
        "comparison": files_digest(base / _COMPARISON),
        "runs": {name: _run_digest(base / name) for name in names["runs"]},
        "files": {path: files_digest(path) for path in names["files"]},
        "data": {**dict.fromkeys(names["data"], ""), **named_variants(names["data"], data)},
        "report": names["report"] and files_digest(report),
    }


def _run_digest(folder: Path) -> str:
    """Return a hash of the names of all files in and below the folder of a run and of the content
    of its tables and records; of others, models among them, of sizes and times."""
    hasher = hashlib.blake2b(digest_size=16)
    for place, folders, files in os.walk(folder):
        folders.sort()
        for path in (Path(place, name) for name in sorted(files)):
            try:
                now = path.stat()
            except OSError:
                return ""
            mark = f"{now.st_size} {now.st_mtime_ns}"
            mark = files_digest(path) if path.suffix in _READ else mark
            hasher.update(f"{path.relative_to(folder)}\0{mark}\0".encode(errors="surrogateescape"))
    return hasher.hexdigest()


def _code(module: str) -> str:
    """Return a hash of the files of a package, without compiled ones."""
    spec = find_spec(module)
    hasher = hashlib.blake2b(digest_size=16)
    for root in (spec and spec.submodule_search_locations) or ():
        for place, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for path in (Path(place, name) for name in sorted(files)):
                hasher.update(f"{path}\0".encode(errors="surrogateescape") + path.read_bytes())
    return hasher.hexdigest()


def _installed() -> list[str]:
    """Return the installed distributions with their versions, as their folders are called."""
    folders = [Path(path) for path in dict.fromkeys(sys.path)]
    return sorted(
        path.name for folder in folders if folder.is_dir() for path in folder.glob("*.dist-info")
    )


def _data_names(config: Mapping[str, Any]) -> list[str]:
    """Return the data that a resolved experiment names."""
    tables = [config.get(key) for key in ("task", "public")]
    named = [table.get("data") for table in tables if isinstance(table, Mapping)]
    return [name for name in named if isinstance(name, str)]


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a tree of mappings and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _is_a_file(text: str) -> bool:
    """Return whether a text is the path of a file. A folder of such a name says nothing: usual ones
    are called like options, ``examples`` for one, and folders of data have noted what they read."""
    try:
        return bool(text) and is_file(user_path(text))
    except (OSError, ValueError, RuntimeError):  # too long, or a user that is not there
        return False
