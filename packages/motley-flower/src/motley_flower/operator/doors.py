"""Try the doors of a deployment as an outsider would: each is open or shut, and says what was
found.

Nothing is changed by a door that is shut. One that turns out to be open is closed again where it
can be: a node that could be activated is deactivated.
"""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import ssl
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from motley.core.errors import ConfigError
from motley_flower.messages import flower
from motley_flower.operator.calls import (
    Address,
    Called,
    call,
    load_private_key,
    new_private_key,
    pem_of,
    signed,
)
from motley_flower.operator.clocks import MOST_APART_S, ahead_s
from motley_flower.operator.kits import KIT_FILE, Deployment
from motley_flower.operator.pages import LOCAL_PORT, command

LEAST_DAYS = 14
NOBODY = 65534
"""The account that owns nothing, by its number on Linux."""
REFUSED = (400, 401, 403, 404, 405, 412)
OLDER_PORTS = (9091, 9092, 9093)
"""Of Flower's older interfaces (gRPC): the server app's, the fleet's, the control interface."""


INNER = {
    "the control interface": "/v1/control/list-nodes",
    "the server app's interface": "/v1/runtime/acquire-task",
    "anything else": "/openapi.json",
    "a path around the proxy": "/v1/fleet/%2e%2e/control/list-nodes",
}
"""Paths of a SuperLink that no client must reach, by what lies there."""


class Door(NamedTuple):
    """One door.

    Parameters
    ----------
    name: what was tried.
    open: whether it is; None: it could not be tried.
    finding: what was found, in words.
    needed: whether a door that could not be tried is a fault.
    """

    name: str
    open: bool | None
    finding: str
    needed: bool = True


def doors(there: Deployment) -> Iterator[Door]:
    """Try each door of a deployment."""
    public = Address(there.server, there.port, _authority(there))
    alive = call(public, "/")
    if alive.status == 0:
        why = (
            f"{there.server}:{there.port} does not answer ({alive.why}), and no door of it was "
            "tried; start server/start, and try again"
        )
        yield Door("the server", open=None, finding=why)
    else:
        yield from _reached(there, public, alive)
    yield from _certificates(there)
    yield _file_modes(there.folder)
    yield _local_accounts(there)


def doors_of_a_kit(kit: Path) -> Iterator[Door]:
    """Try each door of a client, on its machine.

    Raises
    ------
    ConfigError: the folder is no client's kit.
    """
    try:
        about = tomllib.loads((kit / KIT_FILE).read_text())
        public = Address(str(about["server"]), int(about["port"]), kit / "ca.crt")
        port = int(os.environ.get("PORT", LOCAL_PORT))
    except (OSError, tomllib.TOMLDecodeError, KeyError, ValueError):
        raise ConfigError(
            f"{kit} holds no kit of a client; expected the folder of clients/ in which start and "
            f"{KIT_FILE} lie, and a port in PORT"
        ) from None
    yield _clocks(call(public, "/"))
    yield _file_modes(kit)
    yield _other_account("the SuperNode's port", kit, port, kit / "firewall.nft")


def _local_accounts(there: Deployment) -> Door:
    """Try the SuperLink's own port as another account of this machine."""
    name = "another account of the server's machine"
    server = there.folder / "server"
    if not (server / "state.db").exists():
        why = f"not tried: no SuperLink was started in {server}; try it on the server"
        return Door(name, open=None, finding=why, needed=False)
    return _other_account(name, server, there.link_port, server / "firewall.nft")


def _other_account(name: str, folder: Path, port: int, firewall: Path) -> Door:
    """Try a port of 127.0.0.1 as an account that is not the folder's owner; nothing is tried where
    the owner does not reach it, either."""
    owner = folder.stat().st_uid
    outsider = next(uid for uid in (NOBODY, NOBODY - 1) if uid != owner)
    try:
        if _reached_as(outsider, port):
            mend = f"as root, nft -D ACCOUNT={_account(owner)} -f {firewall}"
            return Door(
                name, open=True, finding=f"{_account(outsider)} reaches 127.0.0.1:{port}; {mend}"
            )
        if not _reached_as(owner, port):
            return Door(
                name,
                open=None,
                finding=f"not checked: nothing answers at 127.0.0.1:{port}; start it",
            )
    except PermissionError:
        root = f"not checked: only root can try it as another account; sudo {sys.argv[0]}"
        return Door(name, open=None, finding=f"{root} deployment check {shlex.quote(str(folder))}")
    if owner == 0:
        return Door(
            name,
            open=True,
            finding=f"{folder} is root's, and so is the app; give it its own account",
        )
    return Door(name, open=False, finding=f"{_account(outsider)} does not reach 127.0.0.1:{port}")


def _reached_as(uid: int, port: int) -> bool:
    """Return whether an account of this machine reaches a port of 127.0.0.1.

    Raises
    ------
    PermissionError: this process may not act as that account.
    """
    own = os.geteuid()
    os.seteuid(uid)
    try:
        with socket.socket() as tried:
            tried.settimeout(5)
            return tried.connect_ex(("127.0.0.1", port)) == 0
    finally:
        os.seteuid(own)


def _account(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _reached(there: Deployment, public: Address, alive: Called) -> Iterator[Door]:
    yield _clocks(alive)  # at once: the time of other tries is no difference of clocks
    fleet = flower("proto.fleet_pb2")
    yield _refused("no key", call(public, "/v1/fleet/pull-messages", fleet.PullMessagesRequest()))
    yield _activation(public, "an unregistered key", new_private_key())
    yield _refused("a node that registers itself", _registration(public))
    yield _foreign_authority(there)
    for name, path in INNER.items():
        yield _refused(f"{name}, from a client's address", call(public, path))
    yield _direct(there)
    yield from _known_keys(there, public)
    yield _shown_certificate(there)


def _authority(there: Deployment) -> Path:
    return there.folder / "server" / "ca.crt"


def _refused(name: str, reply: Called) -> Door:
    if reply.status == 0:
        return Door(name, open=None, finding=f"no answer: {reply.why}")
    return Door(name, open=reply.status not in REFUSED, finding=f"HTTP {reply.status}")


def _registration(public: Address) -> Called:
    fleet = flower("proto.fleet_pb2")
    key = new_private_key()
    request = fleet.RegisterNodeFleetRequest(public_key=pem_of(key.public_key()))
    return call(public, "/v1/fleet/register-node", request, signed(key))


def _activation(public: Address, name: str, key: Any) -> Door:
    """Try to activate a node with a key that must not be able to."""
    fleet = flower("proto.fleet_pb2")
    request = fleet.ActivateNodeRequest(
        public_key=pem_of(key.public_key()), heartbeat_interval=30.0
    )
    reply = call(public, "/v1/fleet/activate-node", request, signed(key))
    if reply.status == 200:
        answer = fleet.ActivateNodeResponse()
        answer.ParseFromString(reply.body)
        call(
            public,
            "/v1/fleet/deactivate-node",
            fleet.DeactivateNodeRequest(node_id=answer.node_id),
            signed(key),
        )
    return _refused(name, reply)


def _foreign_authority(there: Deployment) -> Door:
    """Look whether only the deployment's authority has signed for the server."""
    name = "a certificate of another authority"
    try:
        context = ssl.create_default_context()  # the authorities that this machine trusts
        with (
            socket.create_connection((there.server, there.port), 15) as raw,
            context.wrap_socket(raw, server_hostname=there.server),
        ):
            return Door(
                name,
                open=True,
                finding="the server's certificate is also one of a public authority's: any "
                "other of its customers may pass",
            )
    except ssl.SSLError:
        return Door(
            name, open=False, finding="clients know the server by this deployment's authority alone"
        )
    except OSError as problem:
        return Door(name, open=None, finding=f"no answer: {problem}")


def _direct(there: Deployment) -> Door:
    """Look whether the SuperLink itself is reached at the server's public addresses."""
    name = "the SuperLink's own port"
    addresses = []
    for host in {
        entry[4][0]
        for entry in socket.getaddrinfo(there.server, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    } - {
        "127.0.0.1",
        "::1",
    }:
        for port in (there.link_port, *OLDER_PORTS):
            with socket.socket(socket.AF_INET6 if ":" in str(host) else socket.AF_INET) as tried:
                tried.settimeout(5)
                if tried.connect_ex((str(host), port)) == 0:
                    addresses.append(f"{host}:{port}")
    return Door(
        name,
        open=bool(addresses),
        finding=f"{', '.join(addresses)} answers" if addresses else "not reached from outside",
    )


def _known_keys(there: Deployment, public: Address) -> Iterator[Door]:
    """Try what a client could do with its own key as another, and what one that was revoked can
    still do, where their keys are here."""
    fleet = flower("proto.fleet_pb2")
    clients = there.clients.clients
    path: Callable[[str], Path] = lambda name: there.folder / "clients" / name / "node.key"  # noqa: E731
    active = next(
        (client for client in clients if not client.revoked and path(client.name).exists()), None
    )
    if active is None:
        why = "not tried: no client's key is here, as it should be"
        yield Door("another client's id", open=None, finding=why, needed=False)
    else:
        request = fleet.PullMessagesRequest()
        request.node.node_id = 1 + hash(active.name) % 2**62
        reply = call(
            public, "/v1/fleet/pull-messages", request, signed(load_private_key(path(active.name)))
        )
        yield _refused("another client's id", reply)._replace(
            finding=f"with the key of {active.name}: HTTP {reply.status}"
        )
    for client in clients:
        if client.revoked and path(client.name).exists():
            yield _activation(
                public,
                f"{client.name}, revoked {client.revoked}",
                load_private_key(path(client.name)),
            )


def _clocks(alive: Called) -> Door:
    try:
        apart = abs(ahead_s(alive.date, datetime.now(UTC)))
    except ValueError:
        return Door("clocks", open=None, finding="the server tells no date")
    return Door(
        "clocks",
        open=apart > MOST_APART_S,
        finding=f"this machine and the server differ by {apart:.0f} s",
    )


def _certificates(there: Deployment) -> Iterator[Door]:
    """Look how long the certificates in the server's folder are valid."""
    from cryptography import x509

    for name, file in (("the server's certificate", "server.crt"), ("the authority's", "ca.crt")):
        path = there.folder / "server" / file
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError) as problem:
            yield Door(name, open=None, finding=f"{path} cannot be read: {problem}")
            continue
        now = datetime.now(UTC)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        days = (end - now).days
        mend = "" if file == "ca.crt" else f"; {command('renew', there.folder)} makes a new one"
        if now >= end:
            yield Door(name, open=True, finding=f"{path} expired on {end:%Y-%m-%d}{mend}")
        elif now < begin:
            yield Door(
                name, open=True, finding=f"{path} is valid from {begin:%Y-%m-%d %H:%M} UTC on"
            )
        else:
            low = days < LEAST_DAYS
            validity = f"{path} is valid until {end:%Y-%m-%d}, {days} days{mend if low else ''}"
            yield Door(name, open=low, finding=validity)


def _shown_certificate(there: Deployment) -> Door:
    """Look whether the server shows the certificate that lies in its folder."""
    name = "the certificate that the server shows"
    path = there.folder / "server" / "server.crt"
    try:
        shown = ssl.get_server_certificate((there.server, there.port), timeout=15)
        own = ssl.PEM_cert_to_DER_cert(path.read_text())
    except (OSError, ValueError) as problem:
        return Door(name, open=None, finding=f"not compared with {path}: {problem}")
    if ssl.PEM_cert_to_DER_cert(shown) != own:
        return Door(name, open=True, finding=f"another than {path}; start server/start again")
    return Door(name, open=False, finding=f"that of {path}")


def _file_modes(folder: Path) -> Door:
    """Look whether anybody but the owner can read a file of a folder."""
    loose = [
        str(path.relative_to(folder)) or "."
        for path in (folder, *sorted(folder.rglob("*")))
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    shown = ", ".join(loose[:5]) + (f" and {len(loose) - 5} more" if len(loose) > 5 else "")
    return Door(
        "file modes",
        open=bool(loose),
        finding=f"others can open {shown}; chmod -R go= {folder}" if loose else "the owner's alone",
    )
