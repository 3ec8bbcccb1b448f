"""A client of secure aggregation whose process ends after every message: its state is loaded before and saved before it answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from motley.core import codec
from motley.core.arrays import Floats
from motley.core.errors import CodecError, SecureAggregationError
from motley.core.files import disk_error, replacing
from motley.secure.client import SecureClient
from motley.secure.draws import DRAWS, LINK, DrawClient
from motley.secure.encoding import Words
from motley.secure.terms import SecureOptions, SecureTerms, Step

__all__ = ["SecureEndpoint"]


class SecureEndpoint:
    """Answers the messages of secure aggregation for one client.

    Parameters
    ----------
    client: its id. identity: its private key. register: client -> public key. options: of the protocol. load, save: of the state,
    between two messages; None where there is none. A state that is lost is a client that has dropped out. cap: rounds it takes part in
    at most, where draws are verified; None: all.
    """

    def __init__(
        self, client: int, identity: bytes, register: Mapping[int, bytes], options: SecureOptions,
        load: Callable[[], bytes | None], save: Callable[[bytes], None], cap: int | None = None,
    ) -> None:  # fmt: skip
        self._client, self._keep = SecureClient(client, identity, register, options), save
        self._draws = DrawClient(client, identity, register, cap, rule=options.draw_rule) if options.draws else None
        saved = load()
        if saved is not None:
            self._restore(saved)

    @classmethod
    def kept_in(
        cls, path: Path, client: int, identity: bytes, register: Mapping[int, bytes], options: SecureOptions, cap: int | None = None
    ) -> SecureEndpoint:  # fmt: skip
        """Return an endpoint whose state lies in a file that its owner alone can read; raises StoreError where that cannot be
        written."""

        def load() -> bytes | None:
            return path.read_bytes() if path.exists() else None

        def save(state: bytes) -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    os.fchmod(file.fileno(), 0o600)
                    file.write(state)
            except OSError as error:
                raise disk_error(error, path) from None

        return cls(client, identity, register, options, load, save, cap)

    def _restore(self, saved: bytes) -> None:
        try:
            state = codec.decode(saved)
            rounds, draws = state["rounds"], state["draws"]
        except (CodecError, KeyError, TypeError) as error:
            raise SecureAggregationError(f"the state of this client cannot be read: {error}") from None
        self._client.restore(rounds)
        if self._draws is not None and draws is not None:
            self._draws.restore(draws)

    def _save(self) -> None:
        draws = None if self._draws is None else self._draws.save()
        self._keep(codec.encode({"rounds": self._client.save(), "draws": draws}))

    def answer(self, message: object) -> bytes:
        """Return the answer to a message of any step but the masked vector's.

        Raises
        ------
        SecureAggregationError: the message is refused.
        """
        client = self._client
        steps = {Step.SHARES: client.share, Step.CONSISTENCY: client.confirm, Step.UNMASK: client.unmask}
        step = message[0] if isinstance(message, bytes) and message else 0
        if step == Step.KEYS and isinstance(message, bytes):
            answer = self._begin(message)
        elif step in steps:
            answer = steps[Step(step)](message)
        elif step in DRAWS.values() and isinstance(message, bytes) and self._draws is not None:
            answer = self._draws.answer(message)
        else:
            raise SecureAggregationError(
                f"got a message of step {step}; expected one of {', '.join(str(int(s)) for s in steps)}"
            )
        self._save()
        return answer

    def _begin(self, message: bytes) -> bytes:
        """Begin a round, if its cohort is the one that was drawn."""
        if self._draws is None:
            return self._client.begin(message)
        message, link = message[:-LINK], message[-LINK:]
        answer = self._client.begin(message)
        if self._client.terms is not None:
            self._draws.check(self._client.terms.round, self._client.terms.cohort, link)
        return answer

    def masked(self, message: object, values: Floats, weight: int) -> bytes:
        """Return an update in fixed point, under its masks.

        Parameters
        ----------
        message: with the peers' envelopes. values: the update, [size]. weight: the client's number of samples; not used where all
        weigh the same.

        Raises
        ------
        SecureAggregationError: the message is refused. ConfigError: a weight above ``max_weight``, or an update that is not finite.
        """
        if self._draws is not None:
            self._draws.check_samples(weight)

        def encoded(terms: SecureTerms) -> Words:
            counted = weight if terms.options.max_weight > 1 else 1
            return terms.encoding.encode(values, counted, self._client.entropy)

        return self.masked_words(message, encoded)

    def masked_words(self, message: object, encoded: Callable[[SecureTerms], Words]) -> bytes:
        """Return whole numbers under their masks, which are made for the terms of the round under way.

        Raises
        ------
        SecureAggregationError: the message is refused, or whatever ``encoded`` raises.
        """
        if self.terms is None:
            raise SecureAggregationError("got envelopes of a round that this client has not begun, or whose state it lost")
        answer = self._client.mask(message, encoded(self.terms))
        self._save()
        return answer

    @property
    def terms(self) -> SecureTerms | None:
        """The terms of the last round that this client has begun."""
        return self._client.terms
