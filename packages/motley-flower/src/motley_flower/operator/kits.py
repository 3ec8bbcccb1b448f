"""Begin a deployment's folder, add a client, revoke one: keys, the file of clients, a kit folder
for each party, a dated log.

DIR/clients.toml, log.jsonl        who is a client, and what was done when, by whom
DIR/deployment.toml                the server's name and ports
DIR/authority/                     the authority's key: off the server
DIR/server/                        certificate, proxy, start: stays on the server
DIR/clients/NAME/                  what the client of that name gets
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from motley.core.errors import ConfigError, StoreError
from motley.core.files import disk_error
from motley.experiments.document import to_toml
from motley_flower.client_list import LOG_NAME, ClientList, ListedClient, fingerprint, openssh_key
from motley_flower.operator import pages
from motley_flower.operator.certificates import (
    new_authority,
    new_client_key,
    new_server_certificate,
    write_secret,
)

KIT_FILE = "kit.toml"
"""The file of a client's kit that says where its server is."""
PORT = 8443
LINK_PORT = 8000
LARGEST_MB = 64
_HOST = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.-]{0,251}[0-9A-Za-z])?")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,62}")


@dataclass(frozen=True)
class Deployment:
    """The folder of a deployment.

    Parameters
    ----------
    folder: an absolute path.
    server: the name or address that clients connect to.
    port: of the proxy.
    link_port: of the SuperLink, on 127.0.0.1.
    largest_mb: megabytes (2^20 bytes) of the largest upload that the proxy lets through.
    """

    folder: Path
    server: str
    port: int
    link_port: int
    largest_mb: int = LARGEST_MB

    @property
    def clients(self) -> ClientList:
        """The file of clients, read now."""
        return ClientList(self.folder / "clients.toml")


def begin(
    folder: Path,
    server: str,
    names: Sequence[str],
    link_port: int = LINK_PORT,
    largest_mb: int = LARGEST_MB,
) -> Deployment:
    """Write the folder of a new deployment: an authority, the server's certificate, and a kit for
    each client.

    Parameters
    ----------
    server: ``fl.example.org``, or ``fl.example.org:443``.
    names: of the clients, who are numbered from 0.
    link_port, largest_mb: of :class:`Deployment`.

    Raises
    ------
    ConfigError: a name that cannot be one. StoreError: the folder holds something, or the disk
    refuses.
    """
    host, _, port = server.partition(":")
    if (
        not _HOST.fullmatch(host)
        or not (port or "1").isdecimal()
        or not 0 < int(port or PORT) < 65536
    ):
        raise ConfigError(
            f"got {server!r:.80}; expected a name or address that clients connect to, "
            "fl.example.org:8443",
            "--server",
        )
    _check_names(names)
    there = Deployment(
        folder=folder.absolute(),
        server=host,
        port=int(port or PORT),
        link_port=link_port,
        largest_mb=largest_mb,
    )
    if folder.exists() and any(folder.iterdir()):
        raise StoreError(
            f"{folder} holds something; expected a new folder, for nothing is overwritten"
        )
    for part in (".", "authority", "server", "server/flwr", "clients"):
        _make(there.folder / part)
    new_authority(there.folder / "authority", f"authority of {host}")
    new_server_certificate(there.folder / "authority", there.folder / "server", _names(host))
    _write_about(there)
    _write_server(there)
    _write_clients(there, [])
    there.clients.log("begun", {"server": host, "port": there.port})
    for name in names:
        add_client(there, name)
    return there


def open_deployment(folder: Path) -> Deployment:
    """Return the deployment in a folder.

    Raises
    ------
    ConfigError: there is none.
    """
    try:
        settings = tomllib.loads((folder / "deployment.toml").read_text())
        return Deployment(
            folder=folder.absolute(),
            server=str(settings["server"]),
            port=int(settings["port"]),
            link_port=int(settings["link_port"]),
            largest_mb=int(settings.get("largest_mb", LARGEST_MB)),
        )
    except (OSError, tomllib.TOMLDecodeError, KeyError, ValueError):
        raise ConfigError(
            f"{folder} holds no deployment; expected the DIR of motley deployment init DIR, with "
            "--dir"
        ) from None


def add_client(there: Deployment, name: str, key: Path | None = None) -> ListedClient:
    """Add a client, or give one that was revoked a new key; write its kit and return what the file
    says of it.

    Parameters
    ----------
    key: the public key of a pair that the client made; None: a pair is made here.

    Raises
    ------
    ConfigError: a client of that name, or a key that was revoked or is none.
    """
    _check_names([name])
    by_name = {client.name: client for client in there.clients.clients}
    before = by_name.get(name)
    if before is not None and not before.revoked:
        raise ConfigError(
            f"{name} is a client already; give it a new key with "
            f"{pages.command('revoke', there.folder, name)}, then add again"
        )
    if before is None:
        number = max((client.id for client in by_name.values()), default=-1) + 1
    else:
        number = before.id
    public = None if key is None else _public_key(key)
    if public is not None and fingerprint(public) in _revoked(there):
        raise ConfigError(
            f"the key in {key} was revoked; expected a new pair, ssh-keygen -t ecdsa -b 384 -f "
            "node.key"
        )
    kit = there.folder / "clients" / name
    if kit.exists():
        kit.rename(kit.with_name(f".{name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"))
    _make(kit)
    if public is None:
        public = new_client_key(kit)
    else:
        write_secret(kit / "node.pub", public + "\n")
    client = ListedClient(name, number, openssh_key(public.encode()))
    _write_kit(there, client, kit, made_here=key is None)
    _write_clients(there, [*(listed for listed in by_name.values() if listed.name != name), client])
    about: dict[str, object] = {"client": number, "name": name, "key": fingerprint(public)}
    there.clients.log(
        "added" if before is None else "changed",
        about | ({} if before is None else {"before": fingerprint(before.key)}),
    )
    return client


def revoke_client(there: Deployment, name: str) -> ListedClient:
    """Let the file say that a client is none any more; return what it says of it.

    Raises
    ------
    ConfigError: no such client.
    """
    listed = there.clients.clients
    before = next((client for client in listed if client.name == name), None)
    if before is None or before.revoked:
        active = ", ".join(client.name for client in listed if not client.revoked)
        raise ConfigError(
            f"got {name!r:.80}, which is no client; expected one of {active or 'nobody'}"
        )
    gone = ListedClient(before.name, before.id, before.key, f"{datetime.now(UTC):%Y-%m-%d}")
    _write_clients(there, [gone if client.name == name else client for client in listed])
    there.clients.log("revoked", {"client": gone.id, "name": name, "key": fingerprint(gone.key)})
    return gone


def renew_certificate(there: Deployment) -> None:
    """Write a new key and certificate of the server in place of the old ones; clients go on with
    the authority's certificate that they have.

    Raises
    ------
    ConfigError: the authority's key is not here. StoreError: the disk refuses.
    """
    authority, server = there.folder / "authority", there.folder / "server"
    if not (authority / "ca.key").exists():
        raise ConfigError(
            f"{authority} holds no ca.key, which signs for the server; put the folder authority "
            "back from where it is locked away, and take it off again afterwards"
        )
    with tempfile.TemporaryDirectory(dir=server, prefix=".renewed-") as scratch:
        new_server_certificate(authority, Path(scratch), _names(there.server))
        for name in ("server.key", "server.crt"):
            (Path(scratch) / name).replace(server / name)
    there.clients.log("renewed", {"server": there.server})


def set_limit(there: Deployment, largest_mb: int) -> Deployment:
    """Let the proxy take uploads of so many megabytes, from its next start on; return the
    deployment as it is then."""
    new = replace(there, largest_mb=largest_mb)
    _write_about(new)
    path = new.folder / "server" / "nginx.conf"
    path.unlink(missing_ok=True)
    _write_proxy(new)
    new.clients.log("limit", {"largest_mb": largest_mb})
    return new


def _names(host: str) -> list[str]:
    """Return the names and addresses for which the server's certificate is."""
    return [host, "localhost", "127.0.0.1"]


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name) or names.count(name) > 1:
            raise ConfigError(
                f"got the name {name!r:.80}; expected names of their own of letters, digits, _ . -",
                "--clients",
            )
    if not names:
        raise ConfigError("got no client; expected --clients site_alder,site_birch", "--clients")


def _public_key(path: Path) -> str:
    try:
        public = openssh_key(path.read_bytes())
    except (OSError, ValueError):
        raise ConfigError(
            f"{path} holds no public key; expected the .pub file of ssh-keygen -t ecdsa -b 384",
            "--key",
        ) from None
    if not public.startswith("ecdsa-sha2-nistp"):
        raise ConfigError(
            f"{path} holds a key {public.split()[0]}, which Flower does not take; expected "
            "ssh-keygen -t ecdsa -b 384",
            "--key",
        )
    return public


def _revoked(there: Deployment) -> set[str]:
    """Return the fingerprints of all keys that the log says were revoked."""
    try:
        lines = [json.loads(line) for line in (there.folder / LOG_NAME).read_text().splitlines()]
    except (OSError, ValueError):
        return {fingerprint(client.key) for client in there.clients.clients if client.revoked}
    return {str(entry.get("key")) for entry in lines if entry.get("event") == "revoked"}


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise disk_error(error, folder) from None


def _write_clients(there: Deployment, clients: Sequence[ListedClient]) -> None:
    """Write the file of clients anew, whole or not at all: a server app may be reading it."""
    text = "# Who is a client of this deployment; the server app looks here before each round.\n"
    for client in sorted(clients, key=lambda client: client.id):
        keys = {
            "name": client.name,
            "id": client.id,
            "key": client.key,
            "revoked": client.revoked or None,
            "examples": None if client.examples is None else round(client.examples),
        }
        # a table of its own also where it would fit into a line: people edit this file
        text += f"\n[[client]]\n{to_toml(keys)}"
    path = there.folder / "clients.toml"
    new = there.folder / ".clients.toml.new"
    new.unlink(missing_ok=True)
    write_secret(new, text if clients else "client = []\n")
    new.replace(path)


def _write_about(there: Deployment) -> None:
    about = {
        "server": there.server,
        "port": there.port,
        "link_port": there.link_port,
        "largest_mb": there.largest_mb,
    }
    path = there.folder / "deployment.toml"
    path.unlink(missing_ok=True)
    write_secret(path, to_toml(about))


def _write_proxy(there: Deployment) -> None:
    text = pages.PROXY.format(
        calls="|".join(pages.FLEET_CALLS),
        port=there.port,
        link_port=there.link_port,
        largest_mb=there.largest_mb,
    )
    write_secret(there.folder / "server" / "nginx.conf", text)


def _write_server(there: Deployment) -> None:
    folder = there.folder / "server"
    names = {
        "server": there.server,
        "port": there.port,
        "link_port": there.link_port,
        "largest_mb": there.largest_mb,
        "folder": str(there.folder),
        "server_folder": shlex.quote(str(folder)),
    }
    write_secret(folder / "ca.crt", (there.folder / "authority" / "ca.crt").read_bytes())
    _write_proxy(there)
    write_secret(folder / "start", pages.SERVER_START.format(**names), 0o700)
    firewall = pages.FIREWALL.format(port=there.link_port, what=pages.SERVER_PORT)
    write_secret(folder / "firewall.nft", firewall)
    link = {
        "address": f"127.0.0.1:{there.link_port}",
        "root-certificates": str(folder / "ca.crt"),
    }
    write_secret(
        folder / "flwr" / "config.toml",
        to_toml({"superlink": {"default": "here", "here": link}}),
    )
    lines = {
        action: pages.command(action, there.folder)
        for action in ("add", "check", "limit", "renew", "revoke")
    }
    home = shlex.quote(str(folder / "flwr"))
    page = pages.SERVER_PAGE.format(**names, **lines, home=home)
    write_secret(there.folder / "README.md", page)


def _write_kit(there: Deployment, client: ListedClient, kit: Path, made_here: bool) -> None:
    # what the operator types, whose folder no client knows
    lines = {action: pages.command(action, "DIR", client.name) for action in ("add_key", "revoke")}
    lines["check"] = pages.command("check", ".")
    names = {
        "name": client.name,
        "client": client.id,
        "server": there.server,
        "port": there.port,
        "fingerprint": fingerprint(client.key),
        "local_port": pages.LOCAL_PORT,
        "origin": (pages.KEY_MADE_HERE if made_here else pages.KEY_MADE_THERE).format(**lines),
        **lines,
    }
    write_secret(kit / "ca.crt", (there.folder / "server" / "ca.crt").read_bytes())
    write_secret(kit / "start", pages.CLIENT_START.format(**names), 0o700)
    about = {"name": client.name, "server": there.server, "port": there.port}
    write_secret(kit / KIT_FILE, to_toml(about))
    firewall = pages.FIREWALL.format(port=pages.LOCAL_PORT, what=pages.CLIENT_PORT)
    write_secret(kit / "firewall.nft", firewall)
    write_secret(kit / "README.md", pages.CLIENT_PAGE.format(**names))
