"""What a client does to its update where clients add the noise: it trusts no number of the
server's.

Clip, noise, fewest survivors and the cap on sums are those of the client's own experiment. A sum is
counted before the masked update leaves, in a file that all runs of one experiment share, so that
neither a server that is started again nor one that makes up a new run gets more sums.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from motley.core.errors import SecureAggregationError
from motley.core.files import disk_error, sync_folder, write_whole

if TYPE_CHECKING:
    from motley_flower.secure.encoding import Words
    from motley_flower.secure.terms import SecureTerms
    from motley_privacy.distributed_noise import ClientNoise


class NoisySums:
    """Counts the sums of one experiment that each client of a folder takes part in, and adds noise.

    Parameters
    ----------
    noise: of the client's own experiment.
    cap: most sums of a client.
    folder: of the client.
    agreed: fingerprint of the experiment, which holds its ``[privacy]``.
    """

    def __init__(self, noise: ClientNoise, cap: int, folder: Path, agreed: str) -> None:
        self.noise = noise
        self.cap = cap
        self.folder = folder
        self.agreed = agreed

    def check(self, client: int, terms: SecureTerms | None) -> None:
        """Refuse a round whose sum would not be private, and any after the last.

        Raises
        ------
        SecureAggregationError: one of these.
        """
        if terms is not None:
            reason = self.noise.refuses(terms.threshold, len(terms.cohort))
            if reason:
                raise SecureAggregationError(f"the round is refused: {reason}")
        with self._count(client) as count:
            self._below_cap(client, int(count.read() or "0"))

    def words(self, client: int, terms: SecureTerms, update: Tensor) -> Words:
        """Return an update for its masks: clipped, rounded, with noise; and count one sum.

        Raises
        ------
        SecureAggregationError: as :meth:`check`. StoreError: the count cannot be written.
        """
        self.check(client, terms)
        with self._count(client) as count:
            spent = int(count.read() or "0")
            self._below_cap(client, spent)
            count.write(str(spent + 1))
        values = update.detach().cpu().double().reshape(-1).numpy()
        return self.noise.words(values, os.urandom)

    def _below_cap(self, client: int, spent: int) -> None:
        if spent >= self.cap:
            raise SecureAggregationError(
                f"client {client} has been in {spent} sums of this experiment, all that its "
                f"[privacy] allows (max_rounds = {self.cap}); more would cost more than it claims"
            )

    @contextmanager
    def _count(self, client: int) -> Iterator[_Count]:
        """Hold the file of the count, which other processes of this client wait for."""
        path = self.folder / f"sums-{self.agreed}-{client}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise disk_error(error, path) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield _Count(path, handle)
        finally:
            os.close(handle)


class _Count:
    """An open file that holds a number."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.handle = handle

    def read(self) -> str:
        """Return the number; empty in a new file.

        Raises
        ------
        SecureAggregationError: something else, which might have been any number.
        """
        text = os.pread(self.handle, 32, 0).decode("ascii", "replace")
        if text and not text.isdigit():
            raise SecureAggregationError(
                f"{self.path} holds {text!r}; expected the number of this client's sums so far: "
                "write that number, or max_rounds where it is not known"
            )
        return text

    def write(self, text: str) -> None:
        """Write the number, which only grows, onto the disk."""
        try:
            write_whole(self.handle, text.encode(), 0)
            # On the disk before the sum leaves: a client that is started again must not count anew
            # what it has already sent.
            os.fsync(self.handle)
            sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from None
