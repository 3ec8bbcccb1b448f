"""The command ``motley deployment``: begin one, add and revoke clients, try its doors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motley.commands.shared_options import in_home, say, tell
from motley.core.errors import ConfigError

if TYPE_CHECKING:
    from motley_flower.operator.kits import Deployment

app = typer.Typer(
    help="A deployment's keys, kits and doors.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the deployment.")]
Where = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="The folder of the deployment.", callback=in_home),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the client.")]


@app.command()
def init(
    folder: Folder,
    server: Annotated[
        str,
        typer.Option(
            "--server",
            metavar="HOST[:PORT]",
            help="What clients connect to; port 8443 unless given.",
        ),
    ],
    clients: Annotated[
        str,
        typer.Option(
            "--clients", metavar="NAME,NAME", help="The clients, who are numbered from 0."
        ),
    ],
    link_port: Annotated[
        int,
        typer.Option(
            "--superlink-port",
            metavar="PORT",
            min=1,
            max=65535,
            help="Of the SuperLink, on 127.0.0.1.",
        ),
    ] = 8000,
    largest: Annotated[
        int,
        typer.Option(
            "--largest-upload",
            metavar="MB",
            min=1,
            help="The largest upload that the proxy lets through.",
        ),
    ] = 64,
) -> None:
    """Write an authority, the server's certificate and proxy, clients.toml, and a kit for each
    client."""
    from motley_flower.operator.kits import begin

    names = [name.strip() for name in clients.split(",") if name.strip()]
    there = begin(folder, server, names, link_port, largest_mb=largest)
    tell(
        f"{there.folder}: read README.md; start server/start; give each client its folder of "
        "clients/, by a private channel"
    )


@app.command()
def add(
    name: Name,
    folder: Where = Path(),
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="NODE.PUB",
            help="The public key of a pair that the client made.",
            callback=in_home,
        ),
    ] = None,
) -> None:
    """Add a client, or give one that was revoked a new key."""
    from motley_flower.operator.kits import add_client, open_deployment

    there = open_deployment(folder)
    client = add_client(there, name, key)
    tell(f"{name} is client {client.id}; its kit: {there.folder / 'clients' / name}")
    _tell_superlink(there)


@app.command()
def revoke(name: Name, folder: Where = Path()) -> None:
    """Refuse a client from the next round on."""
    from motley_flower.operator.kits import open_deployment, revoke_client

    there = open_deployment(folder)
    client = revoke_client(there, name)
    tell(f"{name}, client {client.id}, is refused from the next round on")
    _tell_superlink(there)


@app.command()
def renew(folder: Folder) -> None:
    """Give the server a new certificate; needs the folder authority, and server/start is started
    again."""
    from motley_flower.operator.kits import open_deployment, renew_certificate

    there = open_deployment(folder)
    renew_certificate(there)
    tell(f"{there.folder / 'server'} has a new certificate; start server/start again")


@app.command()
def limit(
    largest: Annotated[int, typer.Argument(metavar="MB", min=1, help="Of the largest upload.")],
    folder: Where = Path(),
) -> None:
    """Let the proxy take larger uploads, or smaller ones only; server/start is started again."""
    from motley_flower.operator.kits import open_deployment, set_limit

    there = set_limit(open_deployment(folder), largest)
    tell(f"the proxy takes uploads of {there.largest_mb} MB; start server/start again")


@app.command()
def tend(
    folder: Folder,
    superlink: Annotated[
        int | None,
        typer.Option("--superlink", metavar="PID", help="Of the SuperLink, which must start apps."),
    ] = None,
) -> None:
    """Write each run of the SuperLink's records into log.jsonl, and keep the proxy's logs and the
    database small, until it is stopped; server/start does it."""
    from motley_flower.operator.kits import open_deployment
    from motley_flower.operator.tending import tend as tend_deployment

    with suppress(KeyboardInterrupt):
        tend_deployment(open_deployment(folder), superlink=superlink)


@app.command()
def register(
    folder: Folder,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0.0, help="How long to wait for the SuperLink."
        ),
    ] = 60.0,
) -> None:
    """Let the SuperLink know the keys of clients.toml and no others; server/start does it."""
    from motley_flower.operator.kits import open_deployment
    from motley_flower.operator.registered import register_clients

    done = register_clients(open_deployment(folder), wait)
    for event, names in done.items():
        if names:
            tell(f"{event}: {', '.join(names)}")


@app.command()
def check(folder: Folder) -> None:
    """Try the doors of a deployment, or of a client's kit on its machine, as an outsider and as
    another account would; print open or shut for each, and end with 1 where one is open or could
    not be tried."""
    from motley_flower.operator.doors import doors, doors_of_a_kit
    from motley_flower.operator.kits import KIT_FILE, open_deployment

    opened = untried = 0
    kit = (folder / KIT_FILE).exists()
    for door in doors_of_a_kit(folder) if kit else doors(open_deployment(folder)):
        opened = opened + (door.open is True)
        untried = untried + (door.open is None and door.needed)
        sign = {True: "OPEN", False: "shut", None: "?" if door.needed else "-"}[door.open]
        tell(f"{sign:<5} {door.name}: {door.finding}")
    if opened or untried:
        say(f"{opened} doors are open, {untried} could not be tried")
    raise typer.Exit(1 if opened or untried else 0)


def _tell_superlink(there: Deployment) -> None:
    """Let the SuperLink know the keys, where it runs on this machine; else its start does it."""
    from motley_flower.operator.pages import command
    from motley_flower.operator.registered import register_clients

    try:
        register_clients(there)
        tell("the SuperLink knows")
    except ConfigError as problem:
        say(
            f"the SuperLink does not know yet: {problem}; {command('register', there.folder)} "
            "tells it"
        )
