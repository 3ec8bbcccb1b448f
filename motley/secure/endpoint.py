"""A client of secure aggregation whose process ends after every message: its state is loaded before and saved before it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from motley.core.arrays import Floats
from motley.core.errors import SecureAggregationError
from motley.secure.client import SecureClient
from motley.secure.terms import SecureOptions, Step

__all__ = ["SecureEndpoint"]


class SecureEndpoint:
    """Answers the messages of secure aggregation for one client.

    Parameters
    ----------
    client: its id. identity: its private key. register: client -> public key. options: of the protocol. load, save: of the state,
    between two messages; None where there is none. A state that is lost is a client that has dropped out.
    """

    def __init__(
        self, client: int, identity: bytes, register: Mapping[int, bytes], options: SecureOptions,
        load: Callable[[], bytes | None], save: Callable[[bytes], None],
    ) -> None:  # fmt: skip
        self._client, self._save = SecureClient(client, identity, register, options), save
        saved = load()
        if saved is not None:
            self._client.restore(saved)

    def answer(self, message: object) -> bytes:
        """Return the answer to a message of any step but the masked vector's.

        Raises
        ------
        SecureAggregationError: the message is refused.
        """
        client = self._client
        steps = {
            Step.KEYS: client.begin, Step.SHARES: client.share, Step.CONSISTENCY: client.confirm, Step.UNMASK: client.unmask,
        }  # fmt: skip
        step = message[0] if isinstance(message, bytes) and message else 0
        if step not in steps:
            raise SecureAggregationError(
                f"got a message of step {step}; expected one of {', '.join(str(int(s)) for s in steps)}"
            )
        answer = steps[Step(step)](message)
        self._save(client.save())
        return answer

    def masked(self, message: object, values: Floats, weight: int) -> bytes:
        """Return an update in fixed point, under its masks.

        Parameters
        ----------
        message: with the peers' envelopes. values: the update, [size]. weight: of the client; 1 where all weigh the same.

        Raises
        ------
        SecureAggregationError: the message is refused. ConfigError: a weight above ``max_weight``, or an update that is not finite.
        """
        client = self._client
        if client.terms is None:
            raise SecureAggregationError("got envelopes of a round that this client has not begun, or whose state it lost")
        options = client.terms.options
        vector = client.terms.encoding.encode(values, weight if options.max_weight > 1 else 1, client.entropy)
        answer = client.mask(message, vector)
        self._save(client.save())
        return answer
