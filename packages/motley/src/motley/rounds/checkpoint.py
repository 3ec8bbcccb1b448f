"""Checkpoints: everything that evolves, in one file with a checksum, written new and then switched.

The two newest are kept. One that is truncated or changed is passed over for the one before, with a
warning; a run whose checkpoints are all bad starts again from nothing rather than from something
wrong.
"""

from __future__ import annotations

import errno
import mmap
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motley import __version__
from motley.core import codec
from motley.core.errors import CodecError, StoreError
from motley.core.files import replacing, sync_folder
from motley.results.marks import Mark, disagreement, pack_marks, unpack_marks

KEPT = 2
"""Checkpoints that are kept, the newest among them."""
SCHEMA = 5
"""The number of the form in which states are saved; a checkpoint of another one is refused."""


class Checkpoints:
    """The checkpoints of one run directory.

    Parameters
    ----------
    directory: where ``checkpoint-<round>.mtly`` files lie, in the run's folder; made when needed.
    run: the run's id, which every checkpoint carries; a checkpoint of another run is refused.
    """

    def __init__(self, directory: Path, run: str = "") -> None:
        self.directory = directory
        self.run = run

    @property
    def _new(self) -> Path:
        """The checkpoint that is being written."""
        return self.directory / "checkpoint.new"

    def _files(self) -> list[Path]:
        """Newest first."""
        # the rounds in the names have leading zeros, so that names sort as numbers do
        return sorted(self.directory.glob("checkpoint-*.mtly"), reverse=True)

    def save(self, round: int, state: Mapping[str, Any], tables: Mapping[str, Mark]) -> None:
        """Write one checkpoint, switch to it, and forget all but the two newest.

        Parameters
        ----------
        tables: what counts of the run's tables, as :meth:`motley.results.writer.Writer.sync` makes
        it durable.

        Raises
        ------
        StoreError: the disk is full; the checkpoints before are untouched.
        """
        belongs = {"run": self.run, "motley": __version__, "schema": SCHEMA}
        try:
            is_new = not self.directory.exists()
            self.directory.mkdir(parents=True, exist_ok=True)
            with replacing(self.directory / f"checkpoint-{round:08d}.mtly", self._new) as file:
                file.writelines(codec.pieces({**state, **belongs, "tables": pack_marks(tables)}))
            # A file that was renamed is there after a power cut once its folder is synced; the name
            # of a new folder is in the folder above.
            sync_folder(self.directory)
            if is_new:
                sync_folder(self.directory.parent)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreError(
                    f"the disk is full: the checkpoint of round {round} does not fit in "
                    f"{self.directory}; free some room and run again with --resume"
                ) from None
            raise StoreError(
                f"cannot write the checkpoint of round {round} in {self.directory}: "
                f"{error.strerror}; mend that and run again with --resume"
            ) from None
        # last: until the new checkpoint is durable, the earlier ones are all there is
        self.prune(KEPT)

    def prune(self, count: int) -> None:
        """Delete all but the newest ``count`` checkpoints; with 0, the folder and the client states
        in it, too."""
        if count == 0:
            shutil.rmtree(self.directory, ignore_errors=True)
        files = [path for path in self._files() if not path.is_dir()]
        for old in (*files[count:], *([] if self._new.is_dir() else [self._new])):
            old.unlink(missing_ok=True)

    def load(self) -> dict[str, Any] | None:
        """Return the newest good checkpoint with which the run's tables agree, their marks under
        ``tables``; None when there is none.

        Raises
        ------
        StoreError: it is of another run or of an earlier version of Motley, or there are
        checkpoints and the tables agree with none.
        """
        reasons = []
        for path in self._files():
            try:
                state: dict[str, Any] = codec.decode(_mapped(path))
            except (CodecError, OSError) as error:
                warnings.warn(
                    f"{path.name} is damaged ({error}); going back to the checkpoint before it",
                    stacklevel=2,
                )
                continue
            if state.get("run", self.run) != self.run:
                raise StoreError(
                    f"{path} is a checkpoint of another run ({state['run']}, of Motley "
                    f"{state.get('motley')}); this one is {self.run}: remove the folder "
                    f"{self.directory.name} and begin again"
                )
            if state.get("schema") != SCHEMA:
                raise StoreError(
                    f"{path} is of another version of Motley ({state.get('motley')}), which saved "
                    "the state of a run in another form; go on with that version, or remove the "
                    "run's folder and begin again"
                )
            state["tables"] = unpack_marks(state["tables"])
            reason = disagreement(self.directory.parent, state["tables"])
            if reason is None:
                return state
            reasons.append(reason)
            warnings.warn(
                f"{reason}, by {path.name}; going back to the checkpoint before it", stacklevel=2
            )
        if reasons:
            raise StoreError(
                f"{reasons[0]}, so this run cannot be continued; restore the file, or remove the "
                "folder and begin again"
            )
        return None


def _mapped(path: Path) -> memoryview:
    """The bytes of a file; they take no memory beside what is made of them."""
    if not path.stat().st_size:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
