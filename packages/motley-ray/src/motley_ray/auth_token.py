"""Tokens of a Ray cluster: whether the cluster wants one, and whether this process has it.

Ray may demand a token of everybody who reaches its ports. It looks for it in ``RAY_AUTH_TOKEN``, in
the file that ``RAY_AUTH_TOKEN_PATH`` names, and in ``~/.ray/auth_token``. A process must know
before it connects whether the cluster wants a token: Ray's own rules differ between an address and
``auto``, and where both sides differ, workers die or nobody answers. So the cluster is asked. A
cluster that is started for a run gets a token that lies in no file, so that nothing changes for the
next ``ray start``.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import secrets
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from motley.core.errors import ConfigError

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
PATH = "RAY_AUTH_TOKEN_PATH"
_PAGE = "docs/scaling.md#tokens"

_before: dict[str, str | None] = {}
"""The variables that :func:`agree` has set, as they were before; Ray has one connection in a
process."""


def agree(address: str | None) -> None:
    """Set the environment and Ray's mode of authentication to those of the cluster, until
    :func:`restore`.

    Parameters
    ----------
    address: ``host:port``, or ``auto``; None for a cluster that this process is about to start.

    Raises
    ------
    ConfigError: the cluster wants a token and none is here, or another one; or it wants none where
    this process insists on one.
    """
    ray = None
    with suppress(ImportError):  # a module of Ray's own, which may move
        ray = importlib.import_module("ray._raylet")
    if not hasattr(ray, "AuthenticationTokenLoader") or "/" in (address or ""):
        return  # a Ray without tokens, or an address of Ray's client, which authenticates by itself
    if address is None:
        if MODE not in os.environ and not _has_token(ray):
            _set(ray, {TOKEN: secrets.token_hex(32)})
        return
    target = _found() if address == "auto" else address
    wants = None if target is None else _wants_token(ray, target)
    if wants is None:
        return  # nobody answers, which Ray will say
    if not wants:
        _connect_without(ray, target or address)
    else:
        _connect_with(ray, target or address)


def restore() -> None:
    """Undo :func:`agree` after the connection has ended."""
    if _before:
        ray = importlib.import_module("ray._raylet")
        was = dict(_before)
        _before.clear()
        _write(ray, was)


def refused(reason: str) -> bool:
    """Return whether Ray's error message says that a token was refused."""
    return "InvalidAuthToken" in reason or "authentication token" in reason


def _connect_without(ray: Any, target: str) -> None:
    if os.environ.get(MODE, "").lower() == "token":
        raise ConfigError(
            f"got {target!r}, whose cluster asks for no token, and {MODE} = token here insists on "
            f"one; start the cluster with {MODE}=token on every node, or unset {MODE} here",
            "engine.address",
        )
    if not _loopback(target):
        warnings.warn(
            f"the Ray cluster at {target} asks for no token: whoever reaches its ports can run "
            f"commands on its machines; {_PAGE} says how to set one",
            stacklevel=4,
        )
    _set(ray, {MODE: "disabled"})


def _connect_with(ray: Any, target: str) -> None:
    mend = (
        "copy ~/.ray/auth_token of the cluster's head to this machine, or name such a file in "
        "RAY_AUTH_TOKEN_PATH"
    )
    if os.environ.get(MODE, "token").lower() != "token":
        raise ConfigError(
            f"got {target!r}, whose cluster wants a token, and {MODE} = {os.environ[MODE]} here "
            "sends none; unset it",
            "engine.address",
        )
    if not _has_token(ray):
        raise ConfigError(
            f"got {target!r}, whose cluster wants a token, and there is none here; {mend}",
            "engine.address",
        )
    _set(ray, {MODE: "token"})
    if _accepts(ray, target) is False:
        origin = TOKEN if os.environ.get(TOKEN) else os.environ.get(PATH) or "~/.ray/auth_token"
        restore()
        raise ConfigError(
            f"got {target!r}, whose cluster refuses the token here (of {origin}): it is not the "
            f"cluster's; {mend}",
            "engine.address",
        )


def _wants_token(ray: Any, target: str) -> bool | None:
    """Return whether the cluster refuses who sends no token; None if it does not answer."""
    was = os.environ.get(MODE)
    _write(ray, {MODE: "disabled"})
    try:
        accepts = _accepts(ray, target)
    finally:
        _write(ray, {MODE: was})
    return None if accepts is None else not accepts


def _accepts(ray: Any, target: str) -> bool | None:
    """Return whether the cluster takes a request of this process as it is now; None if it does not
    answer."""
    try:
        with _quiet():
            ray.GcsClient(address=target)
    except Exception as error:  # its class is Ray's own, and differs between versions
        return False if refused(str(error)) else None
    return True


def _found() -> str | None:
    """Return the address that Ray takes for ``auto``; None if nothing listens there."""
    with suppress(Exception):  # an interface of Ray's own
        services = importlib.import_module("ray._private.services")
        target = str(services.canonicalize_bootstrap_address("auto"))
        host, _, port = target.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), 5.0).close()
        return target
    return None


def _has_token(ray: Any) -> bool:
    loader = ray.AuthenticationTokenLoader.instance()
    loader.reset_cache()
    return bool(loader.has_token(ignore_auth_mode=True))


def _set(ray: Any, values: dict[str, str]) -> None:
    for name in (MODE, TOKEN):  # Ray sets the mode, too, when it starts a cluster
        _before.setdefault(name, os.environ.get(name))
    _write(ray, values)


def _write(ray: Any, values: dict[str, Any]) -> None:
    """Set or remove variables, and have Ray read them again."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    ray.AuthenticationTokenLoader.instance().reset_cache()
    ray.Config.initialize("")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Ray's C++ code writes to standard error about a refusal, which is told in a
    sentence, off the terminal."""
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _loopback(target: str) -> bool:
    host = target.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
