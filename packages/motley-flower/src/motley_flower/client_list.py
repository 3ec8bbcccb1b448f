"""The file of a deployment's clients: which public key is which client, and who is one no longer;
and the dated log beside it.

    [[client]]
    name = "site_alder"
    id = 0
    key = "ecdsa-sha2-nistp384 AAAAE2VjZHNh..."
    examples = 12_000  # where the operator knows it: no more training samples count than these

The key is that of the client's SuperNode. Flower's SuperLink lets a node do nothing that is not
signed with its key, and tells the server app which key each node has: so a node is the client that
this file names for its key, whatever the node says, and a node whose key is not in the file is no
client. A line ``revoked = "2026-11-24"`` takes effect when the server app looks next.
"""

from __future__ import annotations

import base64
import functools
import getpass
import hashlib
import json
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, install_hint
from motley_flower.node_config import LARGEST_ID

_LOG = logging.getLogger("motley.flower")
LOG_NAME = "log.jsonl"
"""The file beside the file of clients to which events are added, one JSON object a line."""
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,62}")
_KEYS = {"name", "id", "key", "revoked", "examples"}


@dataclass(frozen=True)
class ListedClient:
    """One client of the file.

    Parameters
    ----------
    name: for people.
    id: whole number from 0, the client's number in every table.
    key: public key, an OpenSSH line without a comment.
    revoked: date from which the client is refused; empty for a client that is one.
    examples: the largest number of training samples that counts; None: the file does not say.
    """

    name: str
    id: int
    key: str
    revoked: str = ""
    examples: float | None = None


class ClientList:
    """The clients that a file names.

    Parameters
    ----------
    path: of the file, TOML.

    Attributes
    ----------
    clients: all of the file, the revoked ones too.
    names: by client id.

    Raises
    ------
    ConfigError: no such file, or another content.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._state: tuple[int, int] = (0, 0)
        self.clients: tuple[ListedClient, ...] = ()
        self._by_key: dict[str, ListedClient] = {}
        self._read()

    @property
    def names(self) -> dict[int, str]:
        """The clients' names by id, the revoked ones too: they may have taken part before."""
        return {client.id: client.name for client in self.clients}

    @property
    def examples(self) -> dict[int, float]:
        """The largest numbers of training samples that count, by client id, where the file says
        one."""
        return {
            client.id: client.examples for client in self.clients if client.examples is not None
        }

    def look(self) -> None:
        """Read the file again if it has changed; a file that cannot be used is logged, and what was
        read last stays."""
        try:
            now = self.path.stat()
            if (now.st_mtime_ns, now.st_size) != self._state:
                self._read()
        except (OSError, ConfigError) as problem:
            _LOG.error(
                "the file of clients cannot be read, and what it said before still counts: %s",
                problem,
            )

    def client_of(self, public_key: bytes) -> ListedClient | None:
        """Return the client whose key this is, revoked or not; None where the file does not have
        it."""
        try:
            return self._by_key.get(openssh_key(public_key))
        except ValueError:
            return None

    def log(self, event: str, about: Mapping[str, object]) -> None:
        """Add an event to the log beside the file; a disk that refuses is logged, and nothing else
        happens."""
        try:
            add_to_log(self.path.with_name(LOG_NAME), event, about)
        except OSError as problem:
            _LOG.error("the log of the deployment cannot be written: %s", problem)

    def log_run(self, grid: Any) -> None:
        """Add to the log that a run begins: its number, app and account, as far as Flower's grid
        tells them."""
        run = getattr(grid, "run", None)
        names = {
            "run": "run_id",
            "app": "fab_id",
            "app_version": "fab_version",
            "app_hash": "fab_hash",
            "account": "flwr_aid",
        }
        self.log("run", {name: getattr(run, field, None) for name, field in names.items()})

    def _read(self) -> None:
        try:
            now = self.path.stat()
            content = tomllib.loads(self.path.read_text(encoding="utf-8"))
        except OSError as error:
            sentence = (
                f"cannot read {self.path}: {error.strerror}; motley deployment init DIR writes one"
            )
            raise ConfigError(sentence, "clients") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is no TOML: {error}", "clients") from None
        self.clients = _checked(self.path, content)
        self._by_key = {client.key: client for client in self.clients}
        self._state = (now.st_mtime_ns, now.st_size)


def _checked(path: Path, content: Mapping[str, Any]) -> tuple[ListedClient, ...]:
    """Return the clients of a file.

    Raises
    ------
    ConfigError: anything but a list of clients with names, ids and keys of their own.
    """
    rows = content.get("client")
    if (
        set(content) != {"client"}
        or not isinstance(rows, list)
        or not all(isinstance(row, dict) for row in rows)
    ):
        raise ConfigError(
            f"{path} holds no clients; expected [[client]] tables with name, id and key", "clients"
        )
    clients = tuple(_client(path, row) for row in rows)
    for column in ("name", "id", "key"):
        values = [getattr(client, column) for client in clients]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"{path} has the {column} {twice!r:.80} twice; expected one client for each",
                "clients",
            )
    return clients


def _client(path: Path, row: Mapping[str, Any]) -> ListedClient:
    name, client, key, revoked = (row.get(column) for column in ("name", "id", "key", "revoked"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or set(row) - _KEYS:
        raise ConfigError(
            f"{path} has a client {dict(row)!r:.120}; expected name (letters, digits, _ . -), id, "
            "key and, where it is refused, revoked",
            "clients",
        )
    if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client <= LARGEST_ID:
        raise ConfigError(
            f"{path} has {name} with id = {client!r:.60}; expected a whole number from 0 to "
            f"{LARGEST_ID}",
            "clients",
        )
    try:
        public_key = openssh_key(str(key).encode())
    except ValueError:
        sentence = (
            f"{path} has {name} with key = {key!r:.60}; expected the line of its node.pub, "
            "'ecdsa-sha2-nistp384 AAAA...'"
        )
        raise ConfigError(sentence, "clients") from None
    examples = row.get("examples")
    if examples is not None and (
        isinstance(examples, bool) or not isinstance(examples, int) or not 0 < examples < 2**53
    ):
        raise ConfigError(
            f"{path} has {name} with examples = {examples!r:.60}; expected a whole number from 1",
            "clients",
        )
    most = None if examples is None else float(examples)
    return ListedClient(
        name=name,
        id=client,
        key=public_key,
        revoked="" if revoked is None else str(revoked),
        examples=most,
    )


@functools.lru_cache(maxsize=4096)
def openssh_key(data: bytes) -> str:
    """Return a public key, OpenSSH's line or PEM as Flower has it, as OpenSSH's line without a
    comment.

    Raises
    ------
    ValueError: no public key. ConfigError: cryptography is not installed.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ModuleNotFoundError:
        sentence = f"the file of clients needs cryptography; {install_hint(folder='motley-flower')}"
        raise ConfigError(sentence, "clients") from None
    if data.lstrip().startswith(b"-----"):
        load: Any = serialization.load_pem_public_key
    else:
        load = serialization.load_ssh_public_key
    try:
        line = load(data.strip()).public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    except (UnsupportedAlgorithm, TypeError, AttributeError) as problem:
        raise ValueError(str(problem)) from None
    return str(line.decode())


def fingerprint(public_key: bytes | str) -> str:
    """Return a key's fingerprint as ``ssh-keygen -lf`` shows it; ``no key`` where there is none
    that can be read."""
    try:
        line = openssh_key(public_key.encode() if isinstance(public_key, str) else public_key)
    except (ValueError, ConfigError):
        return "no key"
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def add_to_log(path: Path, event: str, about: Mapping[str, object]) -> None:
    """Add a line to a log that is only ever appended to: the date, the event, what it is about, and
    the user who caused it.

    Raises
    ------
    OSError: the disk refuses.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    line = json.dumps(
        {"at": at, "event": event, **about, "by": f"{_user()}@{os.uname().nodename}"}, default=str
    )
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(handle, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return str(os.getuid())
