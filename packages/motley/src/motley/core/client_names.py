"""The names of clients in words, for tables, reports and messages; the one place in which a number
becomes a name.

>>> name_of(1, ["alder", "birch"]), name_of(1, ()), name_of(-1, ())
('birch', 'client 1', 'no client')
>>> client_in_words(1, ["alder", "birch"]), client_in_words(1, ())
('client birch', 'client 1')
>>> number_of("birch", ["alder", "birch"])
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motley.core.errors import ConfigError, suggest
from motley.core.untrusted import printable, shortened

Names = Sequence[str] | Mapping[int, str]
"""By client id; empty where clients have none, and of some clients alone where a deployment lists
no others."""
_LONGEST = 60


def name_of(client: int, names: Names) -> str:
    """Return a client's name, fit to print; its number where it has none, and "no client" for a
    number below 0."""
    if client < 0:
        return "no client"
    has_name = client in names if isinstance(names, Mapping) else client < len(names)
    return shortened(printable(names[client]), _LONGEST) if has_name else f"client {client}"


def client_in_words(client: int, names: Names) -> str:
    """Return a client within a sentence: ``client birch``, or its number where it has no name."""
    named = name_of(client, names)
    return named if named in ("no client", f"client {client}") else f"client {named}"


def number_of(name: str, names: Names) -> int:
    """Return the id of the client with a name.

    Raises
    ------
    ConfigError: no client is called so, or several are.
    """
    by_id = dict(names) if isinstance(names, Mapping) else dict(enumerate(names))
    matches = [client for client, client_name in by_id.items() if client_name == name]
    if not by_id:
        raise ConfigError(
            f"got {name!r}, and the clients of this run have no names; give a number, 0 for the "
            "first"
        )
    if len(matches) != 1:
        listed = ", ".join(name_of(client, by_id) for client in list(by_id)[:10]) + (
            ", ..." if len(by_id) > 10 else ""
        )
        problem = f"{len(matches)} clients are called" if matches else "there is no client"
        raise ConfigError(
            f"{problem} {name!r}{'' if matches else suggest(name, by_id.values())}; this run has: "
            f"{listed}"
        )
    return matches[0]
