"""A client of secure aggregation whose process ends after every message, and that answers each
message once.

The client's state lies in a file, ``<folder>/<run>/secure-<client>.bin``. A message is answered
under a lock: the state is read, the answer made, the state written so that it outlasts a power cut,
and then the answer leaves. So two processes of one client cannot answer one message twice, with
different lists of survivors, and no answer is forgotten.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from motley.core import codec
from motley.core.arrays import Floats
from motley.core.errors import CodecError, SecureAggregationError
from motley.core.files import disk_error, private_folder, replacing, sync_folder
from motley_flower.secure.encoding import Words
from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.terms import SecureOptions, SecureTerms, Step
from motley_flower.secure.verifiable_draws import DRAWS, LINK, DrawClient

AGREEMENTS = 8
"""Agreements on draws, with one register, for which a client reveals its nonce unless it is told
otherwise."""


class SecureEndpoint:
    """Answers the messages of secure aggregation for one client in one run.

    Parameters
    ----------
    folder: of the client.
    run: name of the run.
    client: its id.
    identity: its private key.
    register: client -> public key.
    options: of the protocol.
    cap: rounds it takes part in at most; None: all.
    agreements: on draws that it takes part in at most. Both count in all runs with this identity
    and register: it is the server that names runs.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        client: int,
        identity: bytes,
        register: Mapping[int, bytes],
        options: SecureOptions,
        cap: int | None = None,
        agreements: int = AGREEMENTS,
    ) -> None:
        self._path = folder / run / f"secure-{client}.bin"
        self._agreed = folder / f"agreements-{client}.txt"
        self._joined = folder / f"rounds-{client}.txt"
        self._client = client
        self._agreements = agreements
        self._who = (client, identity, register)
        self._options = options
        self._cap = cap
        self._new()

    def _new(self) -> None:
        """Begin with a client that has heard nothing."""
        options = self._options
        self._draws: DrawClient | None = None
        self._rounds = SecureClient(*self._who, options)
        if options.draws:
            self._draws = DrawClient(
                *self._who,
                rule=options.draw_rule,
                rounds=options.draws,
                cohort=options.cohort,
            )

    def answer(self, message: object) -> bytes:
        """Return the answer to a message of any step but the masked vector's.

        Raises
        ------
        SecureAggregationError: the message is refused. StoreError: the state cannot be written.
        """
        with self._state():
            client = self._rounds
            steps = {
                Step.SHARES: client.share,
                Step.CONSISTENCY: client.confirm,
                Step.UNMASK: client.unmask,
            }
            step = message[0] if isinstance(message, bytes) and message else 0
            if step == Step.KEYS and isinstance(message, bytes):
                return self._begin(message)
            if step in steps:
                return steps[Step(step)](message)
            if step in DRAWS.values() and isinstance(message, bytes) and self._draws is not None:
                answer = self._draws.answer(message)
                if step == DRAWS["signed"]:  # the answer is this client's nonce
                    self._count_agreement()
                return answer
            raise SecureAggregationError(
                f"got a message of step {step}; expected one of "
                f"{', '.join(str(int(s)) for s in steps)}"
            )

    def _begin(self, message: bytes) -> bytes:
        """Begin a round, if its cohort is the one that was drawn."""
        if self._cap is not None:
            with self._lines(self._joined) as (count, _):
                self._below_cap(count)
        if self._draws is None:
            return self._rounds.begin(message)
        message, link = message[:-LINK], message[-LINK:]
        answer = self._rounds.begin(message)
        if self._rounds.terms is not None:
            self._draws.check(self._rounds.terms.round, self._rounds.terms.cohort, link)
        return answer

    def masked(self, message: object, values: Floats, weight: int) -> bytes:
        """Return an update in fixed point, under its masks.

        Parameters
        ----------
        message: with the peers' envelopes.
        values: the update, [size].
        weight: the client's number of samples; not used where all weigh the same.

        Raises
        ------
        SecureAggregationError: the message is refused. ConfigError: a weight above ``max_weight``,
        or an update that is not finite.
        StoreError: the state cannot be written.
        """

        def encoded(terms: SecureTerms) -> Words:
            if self._draws is not None:
                self._draws.check_samples(weight)
            counted = weight if terms.options.max_weight > 1 else 1
            return terms.encoding.encode(values, counted, self._rounds.entropy)

        return self.masked_words(message, encoded)

    def masked_words(self, message: object, encoded: Callable[[SecureTerms], Words]) -> bytes:
        """Return whole numbers under their masks, which are made for the terms of the round under
        way.

        Raises
        ------
        SecureAggregationError: the message is refused, or whatever ``encoded`` raises. StoreError:
        the state cannot be written.
        """
        with self._state():
            terms = self._rounds.terms
            if terms is None:
                raise SecureAggregationError(
                    "got envelopes of a round that this client has not begun, or whose state it "
                    "lost"
                )
            masked = self._rounds.mask(message, encoded(terms))
            self._count_round(terms)
            return masked

    @property
    def terms(self) -> SecureTerms | None:
        """The terms of the last round that this client has begun, as of the last answer."""
        return self._rounds.terms

    # ------------------------------------------------------------------------ what lies on the disk

    @contextmanager
    def _state(self) -> Iterator[None]:
        """Read the client's state, and write it when the block ends without an error; no other
        process does so meanwhile.

        Raises
        ------
        SecureAggregationError: another process answers for this client. StoreError: the disk is
        full or refuses.
        """
        try:
            private_folder(self._path.parent)
            with _opened(self._path.with_suffix(".lock")) as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise SecureAggregationError(
                        f"another process answers for client {self._client} in "
                        f"{self._path.parent}; start one node for a client, and one answer at a "
                        "time"
                    ) from None
                self._read()
                yield
                draws = None if self._draws is None else self._draws.save()
                with replacing(self._path, private=True) as file:
                    file.write(codec.encode({"rounds": self._rounds.save(), "draws": draws}))
                sync_folder(self._path.parent)
        except OSError as error:
            raise disk_error(error, self._path) from None

    def _read(self) -> None:
        self._new()
        if not self._path.exists():
            return
        try:
            state = codec.decode(self._path.read_bytes())
            rounds = state["rounds"]
            draws = state["draws"]
        except (CodecError, KeyError, TypeError) as error:
            raise SecureAggregationError(
                f"the state of this client cannot be read: {error}"
            ) from None
        self._rounds.restore(rounds)
        if self._draws is not None and draws is not None:
            self._draws.restore(draws)

    def _count_agreement(self) -> None:
        """Note that this client reveals its nonce, and refuse to where it has done so often enough.

        Whoever knows all nonces knows all draws, and may break off and begin anew; each time costs
        a line here.

        Raises
        ------
        SecureAggregationError: the lines of this register are as many as this client allows.
        """
        with self._lines(self._agreed) as (count, add):
            if count >= self._agreements:
                raise SecureAggregationError(
                    f"client {self._client} has agreed on the draws of {count} runs with this "
                    "register, its limit: a server that begins anew chooses among draws; if "
                    f"you know of all these runs, write agreements={2 * count}"
                )
            add(self._path.parent.name)

    def _count_round(self, terms: SecureTerms) -> None:
        """Note that a masked update of this client is about to leave; raises SecureAggregationError
        where as many have as it allows."""
        with self._lines(self._joined) as (count, add):
            self._below_cap(count)
            add(f"{self._path.parent.name} {terms.round}")

    def _below_cap(self, count: int) -> None:
        if self._cap is not None and count >= self._cap:
            raise SecureAggregationError(
                f"client {self._client} has taken part in {count} rounds with this register, and "
                f"its cap is {self._cap}"
            )

    @contextmanager
    def _lines(self, path: Path) -> Iterator[tuple[int, Callable[[str], None]]]:
        """Yield how many lines of a file are of this client's identity and register, and what adds
        one more, which is on the disk when it returns; no other process does so meanwhile."""
        keys = sorted(self._rounds.register.items())
        # in a register a client's number stands for its key
        register = hashlib.sha256(
            codec.encode([[client, key] for client, key in keys])
        ).hexdigest()[:32]
        created = not path.exists()
        with _opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # clients of several runs write to it
            with os.fdopen(os.dup(file), "r+") as lines:

                def add(entry: str) -> None:
                    lines.write(f"{register} {entry}\n")
                    lines.flush()
                    os.fsync(file)

                yield sum(line.split()[:1] == [register] for line in lines), add
        # The name of a new file, too, has to survive a power cut; of an old one it has.
        if created:
            sync_folder(path.parent)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file's handle for reading and writing; a file that is not there is made, for its
    owner alone."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)
