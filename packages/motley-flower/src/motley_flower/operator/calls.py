"""Single calls of a SuperLink's interfaces, as a SuperNode, an operator or an outsider would make
them."""

from __future__ import annotations

import base64
import http.client
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from motley.core.errors import ConfigError
from motley_flower.messages import flower

LIMIT_S = 15.0
MEDIA = "application/protobuf"
MOST_BYTES = 16_000_000
"""Bytes of an answer that are read."""


class Address(NamedTuple):
    """Where a server is reached, and the certificate of the authority that it is known by."""

    host: str
    port: int
    authority: Path | None


class Called(NamedTuple):
    """What a call was answered: the HTTP status, 0 where there was no connection; the body; the
    server's date; in words, why not."""

    status: int
    body: bytes = b""
    date: str = ""
    why: str = ""


def call(
    at: Address, path: str, message: Any = None, headers: dict[str, str] | None = None
) -> Called:
    """Post a protobuf message over TLS, and return what came back; the server must be known by the
    authority."""
    try:
        context = ssl.create_default_context(
            cafile=None if at.authority is None else str(at.authority)
        )
    except (OSError, ssl.SSLError) as problem:
        return Called(0, why=f"{at.authority} cannot be read: {problem}")
    there = http.client.HTTPSConnection(at.host, at.port, timeout=LIMIT_S, context=context)
    body = b"" if message is None else message.SerializeToString()
    try:
        there.request(
            "POST", path, body, {"Content-Type": MEDIA, "Accept": MEDIA, **(headers or {})}
        )
        answer = there.getresponse()
        return Called(answer.status, answer.read(MOST_BYTES), answer.getheader("date") or "")
    except (OSError, http.client.HTTPException) as problem:
        return Called(0, why=str(problem) or type(problem).__name__)
    finally:
        there.close()


def signed(key: Any) -> dict[str, str]:
    """Return the headers by which Flower's SuperNode proves its key: the key, the time, and the
    time's signature."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    now = datetime.now(UTC).isoformat()
    signature = key.sign(now.encode("ascii"), ec.ECDSA(hashes.SHA256()))
    constants = flower("supercore.constant")
    names = flower("common.constant")
    return {
        constants.FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(pem_of(key.public_key())).decode(),
        names.TIMESTAMP_HEADER: now,
        constants.FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode(),
    }


def new_private_key() -> Any:
    """Return a new key such as a SuperNode's."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def load_private_key(path: Path) -> Any:
    """Return the private key of a SuperNode.

    Raises
    ------
    ConfigError: the file holds none that can be used without a password.
    """
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        return load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as problem:
        raise ConfigError(
            f"{path} holds no private key ({problem}); expected one of ssh-keygen without a "
            "password"
        ) from None


def pem_of(key: Any) -> bytes:
    """Return a public key, or its OpenSSH line, as Flower has it."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_public_key,
    )

    loaded = load_ssh_public_key(key.encode()) if isinstance(key, str) else key
    return bytes(loaded.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
