"""The files of a deployment that are text: the proxy's configuration, one command to start and one
page for each party. Every line with ``motley deployment`` in them is made by :func:`command`."""

from __future__ import annotations

import shlex
from pathlib import Path

_COMMANDS = {
    "add": "add {name} --dir {folder}",
    "add_key": "add {name} --dir {folder} --key {key}",
    "check": "check {folder}",
    "limit": "limit MB --dir {folder}",
    "register": "register {folder}",
    "renew": "renew {folder}",
    "revoke": "revoke {name} --dir {folder}",
}


def command(
    action: str, folder: Path | str, name: str = "NAME", key: Path | str = "node.key.pub"
) -> str:
    """Return a line to type, quoted for a shell.

    Parameters
    ----------
    action: ``add``, ``add_key``, ``check``, ``limit``, ``register``, ``renew`` or ``revoke``.
    folder: of the deployment.
    name: of a client.
    key: the file of a public key.

    Example
    -------
    >>> command("revoke", "/srv/our fl", "site_alder")
    "motley deployment revoke site_alder --dir '/srv/our fl'"
    """
    words = {"folder": str(folder), "name": name, "key": str(key)}
    quoted = {word: shlex.quote(value) for word, value in words.items()}
    return f"motley deployment {_COMMANDS[action].format(**quoted)}"


FLEET_CALLS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)
"""What a SuperNode with a registered key asks of the SuperLink; ``register-node`` and
``unregister-node`` are for nodes without."""

LOCAL_PORT = 9094
"""Of a SuperNode, for Flower's own processes on the client's machine, unless ``PORT`` says
another."""

FIREWALL = """\
# Of this machine's accounts only ACCOUNT, as which ./start runs, reaches port {port} of 127.0.0.1.
# {what}
# As root, at each boot and before ./start:
#     nft -D ACCOUNT=the_account -f firewall.nft
# To keep it, copy this file to /etc (not a link: only root may change it), and write these two
# lines into /etc/nftables.conf:
#     define ACCOUNT = the_account
#     include "/etc/firewall.nft"
table inet motley_{port}
delete table inet motley_{port}
table inet motley_{port} {{
    chain output {{
        type filter hook output priority 0; policy accept;
        oifname "lo" tcp dport {port} tcp flags & (syn | ack) == syn meta skuid $ACCOUNT accept
        oifname "lo" tcp dport {port} tcp flags & (syn | ack) == syn reject with tcp reset
    }}
}}
"""
SERVER_PORT = (
    "Flower's SuperLink, which listens there, asks nobody who they are: whoever connects starts "
    "and\n# stops runs, whose code runs as ACCOUNT."
)
CLIENT_PORT = (
    "Flower's SuperNode, which listens there, asks nobody who they are: whoever connects takes "
    "this\n# client's work, with the model, and answers it in the client's name."
)

PROXY = """\
# What clients can reach of the SuperLink: the calls of a SuperNode, over TLS, and nothing else.
# The SuperLink listens on 127.0.0.1 alone; who submits runs and registers keys works on this
# machine, and firewall.nft lets one account alone do it.
# nginx -p SERVER_FOLDER -c nginx.conf     (motley deployment init wrote this)
worker_processes auto;
daemon off;
pid nginx.pid;
error_log nginx-error.log;

events {{ worker_connections 4096; }}

http {{
    access_log nginx-access.log;
    client_body_temp_path nginx-temp/body;
    proxy_temp_path nginx-temp/proxy;
    fastcgi_temp_path nginx-temp/fastcgi;
    uwsgi_temp_path nginx-temp/uwsgi;
    scgi_temp_path nginx-temp/scgi;
    server_tokens off;

    server {{
        listen {port} ssl;
        ssl_certificate server.crt;
        ssl_certificate_key server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        # the largest object that a node sends: an upload of Motley's loop is one object, and of
        # Flower's strategies' arrays each 5 MiB are one; motley deployment limit changes it
        client_max_body_size {largest_mb}m;

        location ~ "^/v1/fleet/({calls})$" {{
            limit_except POST {{ deny all; }}
            # the path is made anew of the name that matched: nothing that a client writes reaches
            # the SuperLink as a path
            proxy_pass https://127.0.0.1:{link_port}/v1/fleet/$1;
            proxy_ssl_trusted_certificate ca.crt;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_set_header Host localhost;
            proxy_read_timeout 600s;
            # models pass through, and no copy of them is written to a disk
            proxy_request_buffering off;
            proxy_max_temp_file_size 0;
        }}

        location / {{ return 404; }}
    }}
}}
"""

SERVER_START = """\
#!/bin/sh
# Start the SuperLink on 127.0.0.1:{link_port} and the proxy on port {port}; both end when this
# ends. Run it under a supervisor.
set -eu
umask 077
cd "$(dirname "$0")"
need() {{ command -v "$1" >/dev/null || {{ echo "$1 is not there: $2" >&2; exit 2; }}; }}
PATH="$PATH:/usr/sbin"  # where Debian has nginx
need nginx "apt-get install nginx-light (Debian, Ubuntu), or dnf install nginx"
need flower-superlink "activate the environment in which Motley and motley-flower are installed"
python -m motley_flower.free_ports \\
    "write another into start, config.toml and nginx.conf" \\
    127.0.0.1:{link_port} 0.0.0.0:{port} || exit 2
export FLWR_HOME="$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost
# older interfaces, which would listen on all addresses
unset FLWR_INTERNAL_GRPC_CONTROL_API FLWR_INTERNAL_GRPC_FLEET_API
mkdir -p nginx-temp
# what the database held of runs that have ended is given back to the disk
[ ! -f state.db ] || python -c 'import sqlite3; sqlite3.connect("state.db").execute("VACUUM")'
stop() {{
    trap - EXIT INT TERM HUP
    kill "$link" 2>/dev/null || true
    [ -z "${{proxy:-}}" ] || kill "$proxy" 2>/dev/null || true
    [ -z "${{tend:-}}" ] || kill "$tend" 2>/dev/null || true
    wait
}}
flower-superlink --host 127.0.0.1 --port {link_port} --database "$PWD/state.db" \\
    --ssl-ca-certfile "$PWD/ca.crt" --ssl-certfile "$PWD/server.crt" \\
    --ssl-keyfile "$PWD/server.key" \\
    --enable-supernode-auth --disable-runtime-dependency-installation &
link=$!
trap stop EXIT
trap 'exit 143' INT TERM HUP
motley deployment register ..
nginx -p "$PWD/" -c nginx.conf &
proxy=$!
motley deployment tend .. --superlink "$link" &
tend=$!
while kill -0 "$link" 2>/dev/null && kill -0 "$proxy" 2>/dev/null && kill -0 "$tend" 2>/dev/null
do sleep 1; done
echo "the SuperLink, the proxy or what looks after them has ended" >&2
exit 1
"""

CLIENT_START = """\
#!/bin/sh
# Start the SuperNode of {name}, client {client}. Run it under a supervisor.
# PORT: of this machine, for Flower's own processes here.
# NODE_CONFIG: what your app wants besides, e.g. 'num-partitions=3'.
set -eu
umask 077
cd "$(dirname "$0")"
refuse() {{ echo "$1" >&2; exit 2; }}
[ -f node.key ] || refuse \\
    "node.key is not here: put the private key of the node.pub that you sent beside this file"
need() {{ command -v "$1" >/dev/null || refuse "$1 is not there: $2"; }}
need flower-supernode "activate the environment in which Motley and motley-flower are installed"
python -m motley_flower.free_ports \\
    "choose another: PORT=9095 ./start" "127.0.0.1:${{PORT:-9094}}" || exit 2
python -m motley_flower.operator.clocks {server} {port} ca.crt || exit 2
export FLWR_HOME="$PWD/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
mkdir -p state flwr
# flower-supernode, which ends when its heartbeats do, so that the supervisor starts it again
exec python -m motley_flower.operator.supernode \\
    --superlink {server}:{port} --root-certificates "$PWD/ca.crt" \\
    --auth-supernode-private-key "$PWD/node.key" --host 127.0.0.1 --port "${{PORT:-9094}}" \\
    --node-config "partition-id={client} folder=\\"$PWD/state\\" ${{NODE_CONFIG:-}}"
"""

CLIENT_PAGE = """\
# {name}: a client of {server}

You are `{name}`, client {client}, of the deployment at `{server}:{port}`.

1. Install Motley with Flower in an environment of its own, of the version that the operator names:
   `pip install ./packages/motley ./packages/motley-data ./packages/motley-flower` in a checkout of
   it.
2. Compare your key with the operator by telephone, not by the mail that brought this folder:
   `ssh-keygen -lf node.pub` must say `{fingerprint}`.
3. Make an account that can read the training data and nothing more, for this client alone.
   `firewall.nft` keeps all other accounts of this machine from its port {local_port}, where whoever
   connects could answer in your name: as root, `nft -D ACCOUNT=the_account -f firewall.nft`, at
   each boot (with another `PORT`, write that into the file).
4. Start, as that account: `./start`, under a supervisor (systemd, a container's restart policy). It
   needs an outgoing connection to `{server}:{port}` and no open port. The clock must be right to
   four seconds (NTP): the server refuses a signature from the future.
5. As root, `{check}` in this folder: it tries that port as another account.

| file | what it is | who may have it |
| --- | --- | --- |
| `node.key` | the private key that is you | \
nobody else: never send it, never copy it to a second machine |
| `node.pub` | its public key | the operator |
| `ca.crt` | by which you know the server | anybody |
| `firewall.nft`, `kit.toml` | step 3; the server's address | anybody |
| `state/`, `flwr/` | \
what this client keeps between rounds; the app's code that the server sent | nobody else |

{origin}

What you trust: the operator's server sends the code of the app, and this machine runs it, with all
that its account may read. It learns what the app sends; docs/privacy.md says what that is.

If the key is lost, or somebody else may have it: tell the operator at once, who runs
`{revoke}`, DIR being the folder there.
"""

KEY_MADE_HERE = """\
The operator's machine made this key pair, so the operator could have kept a copy. To have a key
that only you have, make one, `ssh-keygen -t ecdsa -b 384 -N "" -f node.key`, send `node.key.pub`
and no other file, and ask the operator for `{revoke}` and
`{add_key}`, DIR being the folder there."""
KEY_MADE_THERE = (
    "You made the key pair yourself: put its private key beside this file as "
    "`node.key`. The operator does not have it."
)

SERVER_PAGE = """\
# The deployment at {server}:{port}

| folder | goes to | by |
| --- | --- | --- |
| `server/` and `clients.toml`, `log.jsonl` | stays on the server, readable by its user alone | - |
| `clients/NAME/` | the client of that name | \
a private channel that you know: handed over, or encrypted. Then delete `node.key` here |
| `authority/` | off this machine: it is needed when the server's certificate is renewed | \
a medium that you lock away |

Never send `authority/ca.key`, `server/server.key`, or one client's folder to another.

1. Install nginx (`apt-get install nginx-light`) and Motley with Flower:
   `pip install ./packages/motley ./packages/motley-data ./packages/motley-flower` in a checkout of
   it. Open port {port} of this machine to the clients, and no other: not {link_port}.
2. **Any account of this machine that reaches port {link_port} of 127.0.0.1 may start and stop runs,
   without a key**, and a run's code reads `server/server.key`. So let an account of its own have
   this folder, and, as root, `nft -D ACCOUNT=the_account -f {server_folder}/firewall.nft`, at each
   boot, before the start; the file says how to keep it.
3. Start `server/start` as that account, under a supervisor, which also rotates what it prints.
   Uploads of more than {largest_mb} MB are refused; `{limit}` changes that.
4. As root, `{check}` tries the doors as an outsider and as another
   account of this machine would, and ends with 1 where one is open or could not be tried.
5. Give the server app the file of clients: `run(grid, ..., clients="{folder}/clients.toml")`, or
   `with_selector(..., clients="{folder}/clients.toml")`.
6. Submit it on this machine, as that account: `FLWR_HOME={home} flwr run APP here --stream`.
   Whoever can do that runs code on this machine and on every client's.

`{add}` adds a client, `{revoke}` refuses one from the next round on. Before the server's
certificate ends (the check names the day), put `authority/` back, `{renew}`, and start
`server/start` again.

`log.jsonl` has a dated line for each client registered, added, revoked or refused, and for each run
that the SuperLink's records show, of whatever app: when it was submitted, and when and how it ended
or was stopped. Who did that Flower does not know. It is only appended to; `chattr +a log.jsonl`
lets nobody but root do anything else.
"""
