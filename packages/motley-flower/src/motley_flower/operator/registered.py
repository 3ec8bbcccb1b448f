"""Let a SuperLink know the keys of a deployment's clients, and no others."""

from __future__ import annotations

import time
from typing import Any

from motley.core.errors import ConfigError
from motley_flower.client_list import openssh_key
from motley_flower.messages import flower
from motley_flower.operator.calls import Address, call, pem_of
from motley_flower.operator.kits import Deployment


def register_clients(there: Deployment, wait_s: float = 0.0) -> dict[str, list[str]]:
    """Register the keys of the file of clients at the SuperLink on this machine and unregister all
    others; return who was.

    Parameters
    ----------
    wait_s: how long to wait for the SuperLink to come up.

    Raises
    ------
    ConfigError: it does not answer, or refuses.
    """
    at = Address("127.0.0.1", there.link_port, there.folder / "server" / "ca.crt")
    clients = there.clients
    control = flower("proto.control_pb2")
    end_s = time.monotonic() + wait_s
    listing = control.ListNodesResponse()
    while (
        answer := call(at, "/v1/control/list-nodes", control.ListNodesRequest())
    ).status == 0 and time.monotonic() < end_s:
        time.sleep(0.5)
    listing.ParseFromString(_checked(at, "list-nodes", answer))
    nodes = {
        openssh_key(node.public_key): node
        for node in listing.nodes_info
        if node.status != "unregistered"
    }
    wanted = {client.key: client.name for client in clients.clients if not client.revoked}
    done: dict[str, list[str]] = {"registered": [], "unregistered": []}
    for key in nodes.keys() - wanted.keys():
        _do(at, "unregister-node", control.UnregisterNodeRequest(node_id=nodes[key].node_id))
        done["unregistered"].append(nodes[key].name or f"node {nodes[key].node_id}")
    for key in sorted(wanted.keys() - nodes.keys(), key=wanted.__getitem__):
        _do(
            at,
            "register-node",
            control.RegisterNodeRequest(public_key=pem_of(key), name=wanted[key]),
        )
        done["registered"].append(wanted[key])
    for event, names in done.items():
        for name in names:
            clients.log(event, {"name": name})
    return done


def _do(at: Address, action: str, message: Any) -> None:
    _checked(at, action, call(at, f"/v1/control/{action}", message))


def _checked(at: Address, action: str, answer: Any) -> bytes:
    if answer.status != 200:
        reason = answer.why or f"HTTP {answer.status} {answer.body[:200]!r}"
        raise ConfigError(
            f"the SuperLink at {at.host}:{at.port} does not answer {action} ({reason}); start it "
            "with server/start, and ask as the account that firewall.nft lets through"
        )
    return bytes(answer.body)
