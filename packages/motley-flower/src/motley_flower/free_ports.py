"""Refuse ports that are in use, before anything is started:
``python -m motley_flower.free_ports REMEDY HOST:PORT ...``.

>>> import socket
>>> with socket.create_server(("127.0.0.1", 0)) as taken:
...     port = taken.getsockname()[1]
...     in_use("127.0.0.1", port)
True
>>> in_use("127.0.0.1", port)
False
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Sequence


def in_use(host: str, port: int) -> bool:
    """Return whether something listens on a port of this machine; a port that may not be tried is
    left to who wants it."""
    with socket.socket() as tried:
        # connections that are about to end are no listeners
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def main(argv: Sequence[str]) -> str | None:
    """Return a sentence about the first port that is in use, which ends the process with 1; None
    where all are free.

    Parameters
    ----------
    argv: what to do about it, then the addresses ``host:port``.
    """
    remedy, *addresses = argv
    for address in addresses:
        host, _, port = address.rpartition(":")
        if in_use(host, int(port)):
            return (
                f"port {port} on {host} is in use by another process (ss -ltnp shows which); "
                f"end that one, or {remedy}"
            )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
