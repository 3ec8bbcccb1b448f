"""The key files of secure aggregation: a client's own private key, and the register of all clients'
public keys.

The register is a JSON object, ``{"0": "9f3c...", "1": ...}``: client id -> Ed25519 public key, 64
hex digits. It is made once, when the clients are enrolled, and reaches every client by another way
than the server.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley.core.errors import ConfigError

_KEY = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST = 2**25
"""Bytes of a register's file, at most: some 400,000 clients."""


def new_identity(path: str | os.PathLike[str]) -> str:
    """Write a new Ed25519 private key, which only its owner may read, and return the public key for
    the register, in hex.

    Raises
    ------
    ConfigError: the file exists.
    """
    key = Ed25519PrivateKey.generate()
    try:
        # Made with its mode: between making and chmod others could open it.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"{path} exists; expected a new file: a key is made once", "identity"
        ) from None
    with os.fdopen(file, "w") as out:
        out.write(key.private_bytes_raw().hex() + "\n")
    return key.public_key().public_bytes_raw().hex()


def read_identity(path: str | os.PathLike[str]) -> bytes:
    """Return the private key in a file of :func:`new_identity`, 32 bytes.

    Raises
    ------
    ConfigError: no such file, another content, or one that others than its owner may read or write.
    """
    text = _text(path, "identity").strip()
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o077:
        raise ConfigError(
            f"got a private key in {path} with permissions {mode:04o}; expected one that its owner "
            f"alone may read: chmod 600 {path}",
            "identity",
        )
    return bytes.fromhex(_checked(text, str(path), "identity"))


def as_register(register: Mapping[int, bytes] | str | os.PathLike[str]) -> dict[int, bytes]:
    """Return the public keys by client, of a mapping or of a register's file.

    Raises
    ------
    ConfigError: no such file, another content, an id that is no whole number from 0 to 2^32 - 1 or
    occurs twice, or a key that two clients have.
    """
    if isinstance(register, Mapping):
        return _checked_register(register, "the register")
    text = _text(register, "register")
    try:
        content = strict_json(text) if len(text) <= _LARGEST else None
    except ValueError as problem:
        raise ConfigError(f"{register} holds no register: {problem}", "register") from None
    if not isinstance(content, dict) or not all(map(_ID.fullmatch, content)):
        raise ConfigError(
            f'{register} holds no register; expected {{"0": "<64 hex digits>", ...}} of client ids '
            "from 0 to 2^32 - 1",
            "register",
        )
    keys = {
        int(k): bytes.fromhex(_checked(key, f"client {k}", "register"))
        for k, key in content.items()
    }
    return _checked_register(keys, str(register))


def strict_json(text: str) -> Any:
    """Return what a JSON text holds.

    Raises
    ------
    ValueError: no JSON, a name that occurs twice in an object, or one that is nested too deeply.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            name = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"{name[:40]!r} occurs twice; write each name once")
        return table

    try:
        return json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _checked_register(register: Mapping[int, bytes], where: str) -> dict[int, bytes]:
    owners: dict[bytes, int] = {}
    for client, key in register.items():
        if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < 2**32:
            raise ConfigError(
                f"got client {client!r} in {where}; expected an id from 0 to 2^32 - 1", "register"
            )
        if not isinstance(key, bytes) or len(key) != 32:
            raise ConfigError(
                f"the key of client {client} in {where} is not one; expected 32 bytes", "register"
            )
        if key in owners:
            raise ConfigError(
                f"clients {owners[key]} and {client} have one key in {where}; make one for each "
                "with new_identity",
                "register",
            )
        owners[key] = client
    return dict(register)


def _text(path: str | os.PathLike[str], key: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it holds no text"
        raise ConfigError(
            f"{path} cannot be read ({reason}); make keys with "
            "motley_flower.secure.keyfiles.new_identity",
            key,
        ) from None


def _checked(value: object, where: str, key: str) -> str:
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise ConfigError(f"the key of {where} is not one; expected 64 hex digits", key)
    return value
