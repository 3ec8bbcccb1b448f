"""Which node is which client: by the file of clients where there is one, else by what the nodes
claim.

With a file, the SuperLink's public key of a node decides alone: a node whose key is not in the
file, or is revoked, is refused, and what a node claims to be is noted where it differs, and counts
for nothing.

Without a file a client's id is the word of whoever claims it. The first node to claim a client
keeps it for as long as it is connected, and after a restart until its time to answer is over;
another that claims it waits. All of it is noted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from motley_flower.client_list import ClientList, ListedClient, fingerprint
from motley_flower.messages import WallClock

_LOG = logging.getLogger("motley.flower")
PlaceEvent = Literal[
    "refused", "changed", "waits", "unanswered", "rejected", "set aside", "capped", "left out"
]
NOBODY = -1
"""Stands for the client of a node that is none."""
MOST_STRANGERS = 100
"""Refusals of unknown nodes that are noted one by one in a run."""
MOST_TOLD = 10_000
MOST_KEPT = 1_000
"""Incidents that are remembered so that they are noted once, and incidents that wait for
:meth:`ClientPlaces.take`."""


class Happened(NamedTuple):
    """Something about a client's place that is an incident.

    Parameters
    ----------
    client: whose place it is; :data:`NOBODY` for an unknown node's.
    event: in one or two words.
    reason: in words.
    """

    client: int
    event: PlaceEvent
    reason: str


class ClientPlaces:
    """The places of clients, from look to look.

    Parameters
    ----------
    listed: the file of clients; None: each node's word counts.
    keep_s: how long a node that was started again keeps its place.
    clock: the server's.

    Attributes
    ----------
    node_of: the node of every connected client.
    happened: incidents since :meth:`take`.
    """

    def __init__(self, listed: ClientList | None, keep_s: float, clock: WallClock) -> None:
        self.listed = listed
        self.keep_s = keep_s
        self.clock = clock
        self.node_of: dict[int, int] = {}
        self.happened: list[Happened] = []
        self._keys: dict[int, bytes] = {}  # node -> its public key, as the SuperLink says
        self._owners: dict[int, ListedClient] = {}  # node -> the client that its key is
        # client -> the node that was it last, and its name
        self._held: dict[int, tuple[int, str]] = {}
        # node that was started again -> until when it keeps its place
        self._kept_until: dict[int, float] = {}
        self._told: set[tuple[int, str]] = set()
        self._strange: set[int] = set()

    def owner(self, node: int) -> ListedClient | None:
        """Return the client that the file names for a node's key; None without a file."""
        return self._owners.get(node)

    def admit(self, nodes: Iterable[Any]) -> set[int]:
        """Return those of Flower's connected nodes that may be a client, and note which may not."""
        nodes = list(nodes)
        self._keys = {
            int(node.node_id): bytes(getattr(node, "public_key", b"") or b"") for node in nodes
        }
        if self.listed is None:
            return set(self._keys)
        self.listed.look()
        owners = {node: self.listed.client_of(key) for node, key in self._keys.items()}
        for node, owner in sorted(owners.items()):
            if owner is None:
                self._refuse_stranger(node)
            elif owner.revoked:
                self._note(
                    owner.id,
                    "refused",
                    node,
                    f"{owner.name}, {self._named(node)}, is revoked since {owner.revoked}",
                )
        self._owners = {
            node: owner for node, owner in owners.items() if owner is not None and not owner.revoked
        }
        return set(self._owners)

    def restarted(self, nodes: Iterable[int]) -> None:
        """Keep the places of nodes that were started again until they have had their time to say
        which client they are."""
        for node in nodes:
            self._kept_until[node] = self.clock.now() + self.keep_s

    def claimed(self, node: int, claim: object) -> None:
        """Note where a node of the file says that it is another client than its key's."""
        owner = self._owners.get(node)
        if self.listed is None or owner is None or claim == owner.id:
            return
        name = (
            self.listed.names.get(claim, "of no name") if isinstance(claim, int) else "of no name"
        )
        reason = (
            f"{owner.name}, {self._named(node)}, says that it is client {claim!r:.40} ({name}); "
            f"by its key it is {owner.name}"
        )
        self._note(owner.id, "refused", node, reason)

    def assign(self, connected: Iterable[int], claims: Mapping[int, int]) -> None:
        """Give each client one node: that of before while it keeps its place, else the lowest that
        is this client.

        Parameters
        ----------
        connected: nodes that may be a client.
        claims: node -> the client that it is, of the nodes that have answered.
        """
        before = self.node_of
        self.node_of = {}
        connected = set(connected)
        for node in sorted(connected & claims.keys()):
            client, (holder, named) = claims[node], self._held.get(claims[node], (node, ""))
            if holder != node and holder in connected and self._keeps(holder, client, claims):
                reason = (
                    f"{self._named(node)} claims client {client}, which {named}, still "
                    "connected, is; it waits"
                )
                self._note(client, "waits", node, reason)
                continue
            if client in self.node_of:  # two claims at one look, and neither held it before
                reason = (
                    f"{self._named(node)} claims client {client}, as {self._held[client][1]} "
                    "did; it waits"
                )
                self._note(client, "waits", node, reason)
                continue
            if holder != node:
                self._note(
                    client,
                    "changed",
                    node,
                    f"client {client} is {self._named(node)} now, and was {named}",
                )
            self.node_of[client] = node
            self._held[client] = node, self._named(node)
            self._kept_until.pop(node, None)
        for client in before.keys() - self.node_of.keys():
            _LOG.info("client %d is gone", client)

    def note(self, node: int, event: PlaceEvent, words: str, client: int = NOBODY) -> None:
        """Note what a node did, in ``words`` that follow its name, once as long as it is the same.

        ``client``: which one it is, where no file says so."""
        owner = self._owners.get(node)
        if owner is None:
            reason = f"{self._named(node)} {words}"
        else:
            reason = f"{owner.name}, {self._named(node)}, {words}"
        self._note(client if owner is None else owner.id, event, node, reason)

    def take(self) -> list[Happened]:
        """Return the incidents since the last call, and forget them."""
        taken = self.happened
        self.happened = []
        return taken

    def _keeps(self, holder: int, client: int, claims: Mapping[int, int]) -> bool:
        """Return whether a connected node keeps a client's place: it is that client, or has still
        time to say so."""
        return claims.get(holder) == client or (
            holder not in claims and self.clock.now() < self._kept_until.get(holder, float("-inf"))
        )

    def _named(self, node: int) -> str:
        """Return a node with its key's fingerprint, in words."""
        return f"node {node} ({fingerprint(self._keys.get(node, b''))})"

    def _refuse_stranger(self, node: int) -> None:
        if node not in self._strange and len(self._strange) <= MOST_STRANGERS:
            self._strange.add(node)
            more = "; further ones are not noted" * (len(self._strange) > MOST_STRANGERS)
            self._note(NOBODY, "refused", node, f"{self._named(node)} is not in {self._file}{more}")

    @property
    def _file(self) -> str:
        return "the file of clients" if self.listed is None else self.listed.path.name

    def _note(self, client: int, event: PlaceEvent, node: int, reason: str) -> None:
        """Note an incident, in the log of the deployment too, once for each node as long as its
        reason is the same."""
        incident = (node, f"{event} {client} {reason}")
        if event != "changed" and incident in self._told:
            return
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        self._told.add(incident)
        if len(self.happened) >= MOST_KEPT:  # nobody takes them
            del self.happened[0]
        self.happened.append(Happened(client, event, reason))
        _LOG.warning("%s", reason)
        if self.listed is not None:
            self.listed.log(
                event,
                {"client": client, "name": self.listed.names.get(client, ""), "reason": reason},
            )
