"""The folder of a run: which run it holds, which process uses it, and its record ``run.json``.

::

    runs/<experiment's name>/<run id>/
        run.json   what was run, by what, and whether it came to its end; replaced whole, never
                   written into
        .lock      held (flock) while a process is running it; the lock of a dead process is free
        ...        tables (motley.results) and checkpoints (motley.rounds)
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from motley.core.errors import DataError, StoreError
from motley.core.files import (
    SECRET_FILES,
    disk_error,
    irregular,
    is_folder,
    no_file,
    replacing,
    sync_folder,
    with_digest,
)
from motley.core.strict_json import to_json
from motley.experiments.config import Experiment
from motley.experiments.folder_names import slug
from motley.experiments.lineage import lineage_id
from motley.experiments.private_runs import private_training
from motley.results.marks import mark_of, pack_marks
from motley.results.record import read_record

State = Literal["new", "interrupted", "finished", "ended"]
"""What a folder holds: nothing, a run to go on with, a finished one, or one that finished under
another ``stop``."""
_DISTRIBUTIONS = {"motley": "motley-fl", "sklearn": "scikit-learn"} | {
    n: n for n in ("numpy", "scipy", "torch", "pyarrow", "pydantic")
}
_FILES = ("model.safetensors", "best.safetensors", "clients.safetensors", "preparation.json")
"""Files beside the tables that a finished run is read from."""
_BEFORE_RECORD = (".lock", "run.json.new", *SECRET_FILES)
"""What a run that was killed before it had a record leaves."""
_NEEDED_BYTES = 32 * 2**20


def default_folder(experiment: Experiment, base: Path | None = None) -> Path:
    """Return ``base/<name>/<run id>``; ``base`` is ``runs`` under the working directory."""
    return (base or Path("runs")) / slug(experiment.name) / experiment.run_id()


def describe(
    experiment: Experiment,
    numerics: Mapping[str, Any],
    task: Mapping[str, Any],
    parameters: int,
    command: str | None = None,
) -> dict[str, Any]:
    """Return the record of a run that is not finished yet.

    Parameters
    ----------
    numerics: the conditions under which results are bit-identical (torch build, processor, threads,
    engine, device).
    task: ``metric`` and ``classes``.
    parameters: D.
    command: what started it; the process's own command line by default.
    """
    return {
        "name": experiment.name,
        "run_id": experiment.run_id(),
        "seed": experiment.seed,
        "config": experiment.resolved(),
        "numerics": dict(numerics),
        "versions": installed_versions(),
        "citations": [
            {**dataclasses.asdict(paper), "bibtex": paper.bibtex()} for paper in experiment.papers()
        ],
        "finished": False,
        "task": dict(task),
        "parameters": parameters,
        "command": command or _command(),
        "commit": source_commit(),
    }


def _command() -> str:
    """Return the process's command line as one would type it: ``python -m motley`` is
    ``motley``."""
    path = Path(sys.argv[0])
    return shlex.join(
        [path.parent.name if path.name == "__main__.py" else path.name, *sys.argv[1:]]
    )


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    path: of the folder; made by :meth:`lock`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def record(self) -> Path:
        """Path of ``run.json``."""
        return self.path / "run.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock until the end of the block or the process; a folder in which
        nothing was written is removed.

        Raises
        ------
        StoreError: another run holds it, or the folder cannot be made or written.
        """
        created = self._missing()
        handle = self._take()
        for path in created:
            sync_folder(path.parent)
        try:
            yield
        finally:
            self._lock_file.unlink(missing_ok=True)
            os.close(handle)
            _remove_empty(created)

    def check(self) -> None:
        """Raise where the folder could not be made: its name is too long, a file stands in its way,
        or one may not write there.

        Raises
        ------
        StoreError: with the reason.
        """
        missing = self._missing()
        there = missing[-1].parent if missing else self.path
        if not is_folder(there):
            raise self._in_the_way()
        if not os.access(there, os.W_OK | os.X_OK):
            raise StoreError(f"{there} may not be written to; choose another output folder")

    def _in_the_way(self) -> StoreError:
        return StoreError(f"{self.path} is, or lies below, a file; choose another output folder")

    def _missing(self) -> list[Path]:
        """Return the folders that :meth:`lock` has to make, innermost first."""
        try:
            return [path for path in (self.path, *self.path.parents) if not path.exists()]
        except OSError as error:
            raise disk_error(error, self.path) from None

    @property
    def _lock_file(self) -> Path:
        return self.path / ".lock"

    def _take(self) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except (FileExistsError, NotADirectoryError):
            raise self._in_the_way() from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StoreError(
                    f"{self._lock_file} is a symbolic link; remove it, or choose another output "
                    "folder"
                ) from None
            raise disk_error(error, self.path) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # its last holder took the file away in between
            if not _same_file(handle, self._lock_file):
                raise BlockingIOError
            # Only now, with the lock held: until then the number in it is the holder's.
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace") or "unknown"
            os.close(handle)
            raise StoreError(
                f"{self.path} is in use by another run (process {holder}); wait for it, or choose "
                "another output folder"
            ) from None
        except OSError as error:
            os.close(handle)
            raise disk_error(error, self.path) from None
        return handle

    def read(self) -> dict[str, Any] | None:
        """Return the record; None when there is no record.

        Raises
        ------
        StoreError: it cannot be read, or the folder holds what is no file.
        """
        strange = irregular(self.path)
        if strange is not None:
            raise StoreError(
                f"{strange} is no file, and no run writes such a thing; remove it, or choose "
                "another output folder"
            )
        if no_file(self.record) == "does not exist":
            return None
        try:
            return read_record(self.record)
        except DataError as error:
            raise StoreError(f"{error}: remove the folder or choose another one") from None

    def held(self) -> dict[str, Any] | None:
        """Return the record; None where the folder is empty.

        Raises
        ------
        StoreError: it cannot be read, or the folder holds files that are no run.
        """
        record = self.read()
        if record is None and self.path.is_dir():
            foreign = sorted(p.name for p in self.path.iterdir() if p.name not in _BEFORE_RECORD)
            if foreign:
                raise StoreError(
                    f"{self.path} holds files that are no run ({foreign[0]}, ...); choose a new or "
                    "empty folder"
                )
        return record

    def finished(self, experiment: Experiment) -> bool:
        """Return whether the folder holds this run, finished where the experiment ends, with
        nothing left to be tidied up."""
        record = self.read() or {}
        same = record.get("run_id") == experiment.run_id() and same_stop(record, experiment)
        # a process that is killed leaves it, and what it had still to remove
        tidy = not os.path.lexists(self._lock_file)
        if not (record.get("finished") and same and tidy and experiment.unknown() is None):
            return False
        try:
            self._check_data(record, experiment)
        except StoreError:
            return False  # said in a sentence where it is run
        return True

    def _check_data(self, record: Mapping[str, Any], experiment: Experiment) -> None:
        """Refuse a private run of other data, which its id says nothing of."""
        if experiment.privacy is not None:
            private_training().secret_of(self.path, record, experiment.data_digests())

    def state(self, experiment: Experiment, resume: bool, name: str | None = None) -> State:
        """Return the state of an experiment's run in this folder: new, interrupted, finished, or
        ended earlier than it asks for.

        Parameters
        ----------
        resume: whether to go on with an interrupted run, or with one that has ended.
        name: instead of the run id.

        Raises
        ------
        StoreError: the folder holds other files, another run, one that may be another, a private
        one of other data or without its secret, one that goes further, or one that is not to be
        resumed.
        """
        run_id = name or experiment.run_id()
        record = self.held()
        if record is None:
            return "new"
        if record.get("run_id") != run_id:
            raise StoreError(
                other_horizon(self.path, record, experiment)
                or f"{self.path} holds another run ({record.get('name')}, {record.get('run_id')}); "
                f"this one is {run_id}: choose another output folder"
            )
        self.need(record, "config", "stop")
        unknown = experiment.unknown()
        if unknown is not None:
            raise StoreError(
                f"{self.path} holds a run, and nothing says whether it is this one, for {unknown}; "
                "choose a new folder with out=..."
            )
        self._check_data(record, experiment)
        if record.get("finished"):
            if same_stop(record, experiment):
                return "finished"
            return self._ended(record, experiment, resume)
        if not resume:
            raise StoreError(
                f"{self.path} holds this run, interrupted; go on with --resume, or remove the "
                "folder"
            )
        return "interrupted"

    def need(self, record: Mapping[str, Any], *keys: str) -> Any:
        """Return the value at a path of keys in the record.

        Raises
        ------
        StoreError: there is none.
        """
        value: Any = record
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            raise StoreError(
                f"{self.record} lacks {'.'.join(keys)!r}: it is damaged; remove the folder or "
                "choose another one"
            )
        return value

    def _ended(self, record: Mapping[str, Any], experiment: Experiment, resume: bool) -> State:
        """Return "ended" for a finished run that is to be extended."""
        before = stop_in_words(record["config"]["stop"])
        now = stop_in_words(dataclasses.asdict(experiment.stop))
        rounds = record["config"]["stop"].get("rounds")
        if (
            rounds is not None
            and experiment.stop.rounds is not None
            and experiment.stop.rounds < rounds
        ):
            raise goes_further(self.path, f"to {before}", now)
        if not resume:
            raise StoreError(
                f"{self.path} holds this run to {before}; --resume continues it to {now}"
            )
        return "ended"

    def write(self, record: Mapping[str, Any]) -> None:
        """Replace ``run.json`` in one step; it is durable then, as is the name of every other file
        of the folder. The record of a finished run gets a digest of each of its models.

        Raises
        ------
        StoreError: the disk is full or refuses.
        """
        try:
            files = {
                name: mark_of(self.path / name, 0)
                for name in _FILES
                if (self.path / name).is_file()
            }
            complete = {**record, "files": pack_marks(files)} if record.get("finished") else record
            with replacing(self.record) as file:
                file.write(to_json(with_digest(complete), indent=1).encode())
                if record.get("finished"):
                    # the names of all that is finished come before the record that says so
                    sync_folder(self.path)
            sync_folder(self.path)
        except OSError as error:
            raise disk_error(error, self.record) from None


def goes_further(path: Path, held: str, now: str) -> StoreError:
    """Return the error for a folder whose run went further than ``now``, the end that is asked
    for."""
    return StoreError(
        f"{path} holds this run {held} already, which is as far as {now} or further: its tables "
        "have the earlier rounds, too; choose another output folder for a run that ends there"
    )


def other_horizon(path: Path, record: Mapping[str, Any], experiment: Experiment) -> str | None:
    """Return the sentence for a run that differs in nothing but the planned number of rounds, at
    which it looks; else None."""
    config = record.get("config", {})
    keys = experiment.horizon_keys()
    if not keys or lineage_id(config) != lineage_id(experiment.resolved()):
        return None
    before = stop_in_words(config.get("stop", {}))
    now = stop_in_words(dataclasses.asdict(experiment.stop))
    return (
        f"{path} holds this run to {before}, and {' and '.join(keys)} looked at that end from "
        f"round 1: a run to {now} is another one; begin it in another output folder, without "
        "--resume"
    )


def refuse_other_horizon(path: Path, experiment: Experiment) -> None:
    """Refuse to begin a run in the new folder ``path`` that was to go on with one beside it, which
    looked at another horizon.

    Raises
    ------
    StoreError: there is such a run.
    """
    for file in sorted(path.parent.glob("*/run.json")) if experiment.horizon_keys() else []:
        sentence = other_horizon(file.parent, RunFolder(file.parent).read() or {}, experiment)
        if sentence is not None:
            raise StoreError(sentence)


def stop_in_words(stop: Mapping[str, Any]) -> str:
    """Return when a run ends: ``round 20``, or the limits as in a file of keys."""
    limits = _given(stop)
    return f"round {limits['rounds']}" if set(limits) == {"rounds"} else f"stop = {_toml(limits)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{k} = {_toml(v)}' for k, v in value.items())} }}"
    return str(value)


def _given(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of keys without those that were left out."""
    return {
        key: _given(v) if isinstance(v, Mapping) else v for key, v in table.items() if v is not None
    }


def same_stop(record: Mapping[str, Any], experiment: Experiment) -> bool:
    """Return whether the run of a record ends where an experiment does."""
    return _given(record.get("config", {}).get("stop", {})) == _given(
        dataclasses.asdict(experiment.stop)
    )


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # there is something in it, which is as it should be
            return


def ensure_space(path: Path, needed: int = _NEEDED_BYTES) -> None:
    """Refuse a run for which the disk has too little space.

    Parameters
    ----------
    path: an existing folder.
    needed: bytes (by default 32 MiB).

    Raises
    ------
    StoreError: less is free.
    """
    free = shutil.disk_usage(path).free
    if free < needed:
        raise StoreError(
            f"{path} has {free / 2**20:.0f} MiB free and this run needs about "
            f"{needed / 2**20:.0f}; free some space or choose another output folder"
        )


def installed_versions(*more: str) -> dict[str, str]:
    """Return the versions of Python and of the installed distributions that results depend on, and
    of ``more``."""
    python = {"python": ".".join(str(n) for n in sys.version_info[:3])}
    distributions = {**_DISTRIBUTIONS, **{distribution: distribution for distribution in more}}
    versions = {name: _version(distribution) for name, distribution in distributions.items()}
    return python | {name: version for name, version in versions.items() if version is not None}


@cache
def _version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed.

    Every run asks for all of them, and a look into the metadata of seven distributions takes longer
    than a small run. A process keeps what it has imported, so the first answer stays true.
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def source_commit() -> str | None:
    """Return the commit of the working directory, ``+`` where something is changed; None outside a
    checkout."""
    try:
        status = subprocess.run(
            ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    head = re.search(r"^# branch\.oid ([0-9a-f]+)$", status, re.MULTILINE)
    dirty = re.search("^[^#]", status, re.MULTILINE)
    return None if head is None else head[1] + ("+" if dirty else "")
