"""The key files of secure aggregation: a client's own private key, and the register of all clients' public keys.

The register is a JSON object, ``{"0": "9f3c...", "1": ...}``: client id -> Ed25519 public key, 64 hex digits. It is made once, when
the clients are enrolled, and reaches every client by another way than the server.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley.core.errors import ConfigError

__all__ = ["as_register", "new_identity", "read_identity"]

_KEY = re.compile(r"[0-9a-f]{64}")


def new_identity(path: str | os.PathLike[str]) -> str:
    """Write a new Ed25519 private key, which only its owner may read, and return the public key for the register, in hex.

    Raises
    ------
    ConfigError: the file exists.
    """
    key = Ed25519PrivateKey.generate()
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; expected a new file: a key is made once", "identity") from None
    with os.fdopen(file, "w") as out:
        out.write(key.private_bytes_raw().hex() + "\n")
    return key.public_key().public_bytes_raw().hex()


def read_identity(path: str | os.PathLike[str]) -> bytes:
    """Return the private key in a file of :func:`new_identity`, 32 bytes.

    Raises
    ------
    ConfigError: no such file, or another content.
    """
    return bytes.fromhex(_checked(_text(path, "identity").strip(), str(path), "identity"))


def as_register(register: Mapping[int, bytes] | str | os.PathLike[str]) -> dict[int, bytes]:
    """Return the public keys by client, of a mapping or of a register's file.

    Raises
    ------
    ConfigError: no such file, or another content.
    """
    if isinstance(register, Mapping):
        return dict(register)
    try:
        told = json.loads(_text(register, "register"))
        return {int(client): bytes.fromhex(_checked(key, f"client {client}", "register")) for client, key in told.items()}
    except (ValueError, AttributeError):
        raise ConfigError(f'{register} holds no register; expected {{"0": "<64 hex digits>", ...}}', "register") from None


def _text(path: str | os.PathLike[str], key: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); make keys with motley.secure.keyfiles.new_identity", key
        ) from None


def _checked(value: object, where: str, key: str) -> str:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise ConfigError(f"the key of {where} is not one; expected 64 hex digits", key)
    return value
