"""A deployment's folder: who gets which files, with which modes; clients added, revoked and given
new keys; the dated log."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import tomllib
import types
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from motley.cli import call
from tests.motley_flower.conftest import HERE

pytest.importorskip("cryptography")
from motley.core.errors import ConfigError, StoreError
from motley_flower.client_list import ClientList, fingerprint
from motley_flower.operator import calls, clocks, doors
from motley_flower.operator.certificates import new_client_key
from motley_flower.operator.doors import _shown_certificate
from motley_flower.operator.kits import (
    add_client,
    begin,
    open_deployment,
    renew_certificate,
    revoke_client,
)

ROOT = Path(__file__).resolve().parents[2]
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
NFT = shutil.which("nft", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
OPENSSH = shutil.which("ssh-keygen")
OPENSSL = shutil.which("openssl")


@pytest.fixture
def there(tmp_path):
    return begin(tmp_path / "there", "fl.example.org:443", ["site_alder", "site_birch"])


def log(there):
    return [json.loads(line) for line in (there.folder / "log.jsonl").read_text().splitlines()]


def done(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def test_every_toml_of_a_deployment_is_toml_wherever_its_folder_lies(tmp_path):
    folder = tmp_path / 'the "new" one\\two'
    there = begin(folder, "fl.example.org:443", ["site_alder"])
    link = tomllib.loads((folder / "server" / "flwr" / "config.toml").read_text())["superlink"]
    assert link["here"] == {
        "address": f"127.0.0.1:{there.link_port}",
        "root-certificates": str(folder / "server" / "ca.crt"),
    }
    assert tomllib.loads((folder / "deployment.toml").read_text()) == {
        "server": "fl.example.org",
        "port": 443,
        "link_port": there.link_port,
        "largest_mb": 64,
    }


def test_init_writes_what_each_party_needs_and_nobody_else_can_read(there):
    assert {path.name for path in there.folder.iterdir()} == {
        "README.md",
        "authority",
        "clients",
        "clients.toml",
        "deployment.toml",
        "log.jsonl",
        "server",
    }
    assert {path.name for path in (there.folder / "clients" / "site_alder").iterdir()} == {
        "README.md",
        "ca.crt",
        "firewall.nft",
        "kit.toml",
        "node.key",
        "node.pub",
        "start",
    }
    assert {path.name for path in (there.folder / "server").iterdir()} == {
        "ca.crt",
        "firewall.nft",
        "flwr",
        "nginx.conf",
        "server.crt",
        "server.key",
        "start",
    }
    assert all(
        path.stat().st_mode & 0o077 == 0 for path in (there.folder, *there.folder.rglob("*"))
    )
    listed = ClientList(there.folder / "clients.toml")
    assert listed.names == {0: "site_alder", 1: "site_birch"}
    assert [(one["event"], one.get("name")) for one in log(there)] == [
        ("begun", None),
        ("added", "site_alder"),
        ("added", "site_birch"),
    ]
    assert open_deployment(there.folder) == there
    page = (there.folder / "clients" / "site_birch" / "README.md").read_text()
    assert "`site_birch`, client 1, of the deployment at `fl.example.org:443`" in page
    assert fingerprint(listed.clients[1].key) in page
    assert "site_alder" not in page


@pytest.mark.skipif(
    OPENSSL is None or OPENSSH is None, reason="openssl and ssh-keygen are not installed"
)
def test_other_tools_read_the_certificates_and_keys(there):
    server = there.folder / "server" / "server.crt"
    authority = there.folder / "server" / "ca.crt"
    for name in (("-verify_hostname", "fl.example.org"), ("-verify_ip", "127.0.0.1")):
        found = done(
            OPENSSL,
            "verify",
            "-x509_strict",
            "-CAfile",
            authority,
            "-purpose",
            "sslserver",
            *name,
            server,
        )
        assert found.returncode == 0, found.stderr
    assert done(
        OPENSSL, "verify", "-CAfile", authority, "-verify_hostname", "other.org", server
    ).returncode
    kit = there.folder / "clients" / "site_alder"
    listed = ClientList(there.folder / "clients.toml").clients[0]
    assert fingerprint(listed.key) in done(OPENSSH, "-lf", kit / "node.pub").stdout
    assert (
        done(OPENSSH, "-y", "-P", "", "-f", kit / "node.key").stdout.split()[:2]
        == listed.key.split()
    )


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed; apt-get install nginx-light")
def test_nginx_takes_the_configuration(tmp_path):
    there = begin(tmp_path / "there", "localhost:28443", ["a"])
    (there.folder / "server" / "nginx-temp").mkdir()
    found = done(NGINX, "-t", "-p", f"{there.folder / 'server'}/", "-c", "nginx.conf")
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("who", ["server", "clients/site_alder"])
def test_start_says_what_is_missing(there, who, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "mkdir"):
        (tools / name).symlink_to(shutil.which(name))
    start = there.folder / who / "start"
    text = start.read_text().replace("/usr/sbin", str(tools))
    start.write_text(text)
    found = subprocess.run(
        ["/bin/sh", start], env={"PATH": str(tools)}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    missing = (
        "nginx is not there: apt-get install nginx-light"
        if who == "server"
        else "flower-supernode is not there: activate"
    )
    assert missing in found.stderr
    assert done("sh", "-n", start).returncode == 0


def test_a_client_is_added_revoked_and_given_a_new_key(there):
    cedar = add_client(there, "site_cedar")
    assert cedar.id == 2
    with pytest.raises(
        ConfigError,
        match="site_cedar is a client already; give it a new key with motley deployment revoke",
    ):
        add_client(there, "site_cedar")
    gone = revoke_client(there, "site_alder")
    assert ClientList(there.folder / "clients.toml").clients[0].revoked == gone.revoked
    with pytest.raises(
        ConfigError,
        match="got 'site_alder', which is no client; expected one of site_birch, site_cedar",
    ):
        revoke_client(there, "site_alder")
    again = add_client(there, "site_alder")
    assert (again.id, again.revoked) == (0, "")
    assert again.key != gone.key
    told = log(there)[-1]
    assert (told["event"], told["key"], told["before"]) == (
        "changed",
        fingerprint(again.key),
        fingerprint(gone.key),
    )
    assert [one["event"] for one in log(there)] == [
        "begun",
        "added",
        "added",
        "added",
        "revoked",
        "changed",
    ]


@pytest.mark.skipif(OPENSSH is None, reason="ssh-keygen is not installed")
def test_a_client_brings_its_own_key_and_never_one_that_was_revoked(there, tmp_path):
    pair = tmp_path / "node.key"
    assert done(OPENSSH, "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", pair).returncode == 0
    one = add_client(there, "site_elm", pair.with_suffix(".key.pub"))
    assert one.key == " ".join(pair.with_suffix(".key.pub").read_text().split()[:2])
    kit = there.folder / "clients" / "site_elm"
    assert not (kit / "node.key").exists()
    assert "The operator does not have it" in (kit / "README.md").read_text()
    revoke_client(there, "site_elm")
    with pytest.raises(ConfigError, match=r"was revoked; expected a new pair"):
        add_client(there, "site_elm", pair.with_suffix(".key.pub"))
    other = tmp_path / "other"
    assert done(OPENSSH, "-q", "-t", "ed25519", "-N", "", "-f", other).returncode == 0
    with pytest.raises(ConfigError, match="a key ssh-ed25519, which Flower does not take"):
        add_client(there, "site_fir", other.with_suffix(".pub"))
    with pytest.raises(ConfigError, match="holds no public key"):
        add_client(there, "site_fir", pair)


def test_mistakes_are_sentences(there, tmp_path, capsys):
    with pytest.raises(StoreError, match="holds something; expected a new folder"):
        begin(there.folder, "a.org", ["a"])
    for server in ("", "https://a.org", "a.org:0", "a.org:x"):
        with pytest.raises(ConfigError, match="expected a name or address that clients connect to"):
            begin(tmp_path / "new", server, ["a"])
    for names in (["a", "a"], ["../a"], [""]):
        with pytest.raises(ConfigError, match="expected names of their own"):
            begin(tmp_path / "new", "a.org", names)
    with pytest.raises(ConfigError, match="got no client"):
        begin(tmp_path / "new", "a.org", [])
    with pytest.raises(ConfigError, match="holds no deployment"):
        open_deployment(tmp_path)
    assert not (tmp_path / "new").exists()
    assert (
        call(["deployment", "init", str(tmp_path / "new"), "--server", "a.org", "--clients", "a,b"])
        == 0
    )
    assert (
        tomllib.loads((tmp_path / "new" / "clients.toml").read_text())["client"][1]["name"] == "b"
    )
    assert call(["deployment", "revoke", "c", "--dir", str(tmp_path / "new")]) == 2
    assert "expected one of a, b" in capsys.readouterr().err


@pytest.mark.skipif(HERE, reason="Flower is installed")
def test_without_flower_check_says_what_to_install_and_revoke_does_what_it_can(there, capsys):
    assert call(["deployment", "revoke", "site_alder", "--dir", str(there.folder)]) == 0
    said = capsys.readouterr()
    assert "is refused from the next round on" in said.out
    assert "Flower is not installed" in said.err


def checked(there, capsys):
    """What ``check`` returns, its lines, and what it says at the end."""
    code = call(["deployment", "check", str(there.folder)])
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err


def test_a_server_that_does_not_answer_is_no_shut_door(tmp_path, capsys):
    there = begin(tmp_path / "local", "127.0.0.1:9", ["a"])
    code, lines, end = checked(there, capsys)
    assert code == 1
    assert lines[0].startswith("?     the server: 127.0.0.1:9 does not answer")
    assert all(line.startswith("shut") for line in lines[1:-1])
    assert lines[-1].startswith(
        "-     another account of the server's machine: not tried: no Super"
    )
    assert "0 doors are open, 1 could not be tried" in end
    (there.folder / "clients.toml").chmod(0o644)
    code, lines, end = checked(there, capsys)
    assert code == 1
    assert "OPEN  file modes: others can open clients.toml; chmod -R go=" in lines[-2]
    assert "1 doors are open, 1 could not be tried" in end


def test_a_certificate_that_has_expired_is_named_with_its_date_and_renewed(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("motley_flower.operator.certificates.SERVER_DAYS", 0)
    there = begin(tmp_path / "our fl", "127.0.0.1:9", ["a"])
    monkeypatch.undo()
    path = there.folder / "server" / "server.crt"
    code, lines, _ = checked(there, capsys)
    assert code == 1
    renew = f"motley deployment renew {shlex.quote(str(there.folder))}"
    assert lines[1] == (
        f"OPEN  the server's certificate: {path} expired on {datetime.now(UTC):%Y-%m-%d}; "
        f"{renew} makes a new one"
    )
    before = path.with_suffix(".key").read_bytes()
    assert call(shlex.split(renew)[1:]) == 0
    assert "start server/start again" in capsys.readouterr().out
    code, lines, _ = checked(there, capsys)
    end = datetime.now(UTC) + timedelta(days=397)
    assert lines[1] == (
        f"shut  the server's certificate: {path} is valid until {end:%Y-%m-%d}, 396 days"
    )
    assert path.with_suffix(".key").read_bytes() != before
    assert {one.name for one in path.parent.iterdir()} == {
        "ca.crt",
        "firewall.nft",
        "flwr",
        "nginx.conf",
        "server.crt",
        "server.key",
        "start",
    }
    path.write_text("nothing")
    code, lines, _ = checked(there, capsys)
    assert code == 1
    assert lines[1].startswith(f"?     the server's certificate: {path} cannot be read")
    shutil.rmtree(there.folder / "authority")
    assert call(shlex.split(renew)[1:]) == 2
    assert "put the folder authority back" in capsys.readouterr().err


def test_another_certificate_than_the_folder_s_is_shown_until_the_server_starts_again(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        there = begin(tmp_path / "there", f"127.0.0.1:{port}", ["a"])
        server = there.folder / "server"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server / "server.crt", server / "server.key")

        def serve():
            for _ in range(2):
                with context.wrap_socket(listening.accept()[0], server_side=True) as link:
                    link.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert _shown_certificate(there).open is False
        renew_certificate(there)
        shown = _shown_certificate(there)
        thread.join(timeout=10)
    assert shown.open is True
    assert "start server/start again" in shown.finding
    assert _shown_certificate(there).open is None  # nobody answers now


@pytest.fixture
def accounts(monkeypatch):
    """Which of this machine's accounts reach which port, in place of a firewall; what was tried."""
    tried = []
    reach = {}

    def reached(uid, port):
        tried.append((uid, port))
        if isinstance(reach.get(uid, False), Exception):
            raise reach[uid]
        return reach.get(uid, False)

    monkeypatch.setattr(doors, "_reached_as", reached)
    return types.SimpleNamespace(reach=reach, tried=tried)


def test_another_account_that_reaches_the_superlink_is_an_open_door(there, accounts):
    server = there.folder / "server"
    (server / "state.db").touch()
    os.chown(server, 1234, -1) if os.geteuid() == 0 else None
    owner = server.stat().st_uid
    accounts.reach |= {owner: True, 65534: True}
    door = doors._local_accounts(there)
    assert door.open is True
    assert f"reaches 127.0.0.1:8000; as root, nft -D ACCOUNT={owner}" in door.finding
    accounts.reach[65534] = False
    door = doors._local_accounts(there)
    assert (door.open, door.finding) == (False, "nobody does not reach 127.0.0.1:8000")
    accounts.reach[owner] = False  # nothing runs there, and nothing is known of the firewall
    door = doors._local_accounts(there)
    assert (door.open, door.needed) == (None, True)
    assert door.finding.startswith("not checked: nothing answers at 127.0.0.1:8000")
    assert set(accounts.tried) == {(65534, 8000), (owner, 8000)}


def test_who_is_not_root_cannot_try_it_and_that_is_no_pass(there, accounts):
    (there.folder / "server" / "state.db").touch()
    accounts.reach[65534] = PermissionError(1, "Operation not permitted")
    door = doors._local_accounts(there)
    assert (door.open, door.needed) == (None, True)
    assert "not checked: only root can try it as another account; sudo " in door.finding


def test_a_server_that_runs_as_root_is_an_open_door(there, accounts, monkeypatch):
    server = there.folder / "server"
    (server / "state.db").touch()
    monkeypatch.setattr(Path, "stat", lambda path, **_: os.stat_result((0o700, *[0] * 9)))
    accounts.reach[0] = True
    door = doors._local_accounts(there)
    assert door.open is True
    assert "is root's, and so is the app; give it its own account" in door.finding


def test_a_client_checks_its_own_port_clock_and_files(there, accounts, capsys, monkeypatch):
    kit = there.folder / "clients" / "site_alder"
    now = datetime.now(UTC)
    answer = calls.Called(404, date=format_datetime(now - timedelta(seconds=90), usegmt=True))
    monkeypatch.setattr(doors, "call", lambda at, path: answer)
    monkeypatch.setenv("PORT", "9095")
    accounts.reach[65534] = True
    assert call(["deployment", "check", str(kit)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"OPEN  clocks: this machine and the server differ by (89|90|91) s", lines[0])
    assert lines[1] == "shut  file modes: the owner's alone"
    assert lines[2].startswith("OPEN  the SuperNode's port: nobody reaches 127.0.0.1:9095")
    with pytest.raises(ConfigError, match="holds no kit of a client"):
        list(doors.doors_of_a_kit(there.folder))


@pytest.mark.skipif(NFT is None or os.geteuid() != 0, reason="needs root and nft")
def test_the_firewall_lets_one_account_alone_reach_its_port(there, tmp_path):
    """In a network namespace of its own; loading the rules twice leaves them once."""
    firewall = there.folder / "server" / "firewall.nft"
    code = (
        "import socket; from motley_flower.operator.doors import _reached_as; "
        "s = socket.create_server(('127.0.0.1', 8000)); t = socket.create_server(('127.0.0.1', "
        "8001)); print([_reached_as(u, 8000) for u in (0, 1, 2, 65534)], _reached_as(65534, 8001))"
    )
    load = f"{NFT} -D ACCOUNT=1 -f {firewall}"
    script = f"ip link set lo up && {load} && {load} && {sys.executable} -c {shlex.quote(code)}"
    found = done("unshare", "--net", "sh", "-c", script)
    assert (found.stdout, found.returncode) == ("[False, True, False, False] True\n", 0), found


def test_the_proxy_takes_uploads_up_to_a_limit_that_can_be_changed(tmp_path, capsys):
    there = begin(tmp_path / "there", "localhost", ["a"], largest_mb=20)
    proxy = there.folder / "server" / "nginx.conf"
    assert "client_max_body_size 20m;" in proxy.read_text()
    assert open_deployment(there.folder).largest_mb == 20
    assert call(["deployment", "limit", "300", "--dir", str(there.folder)]) == 0
    assert "takes uploads of 300 MB; start server/start again" in capsys.readouterr().out
    assert "client_max_body_size 300m;" in proxy.read_text()
    assert open_deployment(there.folder).largest_mb == 300
    assert log(there)[-1]["event"] == "limit"


def test_a_clock_ahead_is_a_sentence_before_the_client_starts(there, monkeypatch):
    """Flower's SuperNode says ``Access denied`` only."""
    now = datetime.now(UTC)
    for shift_s, said in ((-40, "s ahead of fl"), (400, "s behind fl"), (0, None)):
        date = format_datetime(now + timedelta(seconds=shift_s), usegmt=True)
        monkeypatch.setattr(
            clocks, "call", lambda at, path, date=date: calls.Called(404, date=date)
        )
        found = clocks.main(["fl.example.org", "443", "ca.crt"])
        assert (found is None) == (said is None)
        assert said is None or said in found
    why = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate is not yet valid"
    monkeypatch.setattr(clocks, "call", lambda at, path: calls.Called(0, why=why))
    assert "when the server's certificate is not valid" in clocks.main(["a", "443", "ca.crt"])
    monkeypatch.setattr(clocks, "call", lambda at, path: calls.Called(0, why="refused"))
    assert clocks.main(["a", "443", "ca.crt"]) is None  # its SuperNode tries again by itself
    start = (there.folder / "clients" / "site_alder" / "start").read_text()
    assert "python -m motley_flower.operator.clocks fl.example.org 443 ca.crt || exit 2" in start


def test_every_command_in_the_pages_and_errors_runs(tmp_path, capsys):
    """The operator's page said ``add . NAME`` and ``revoke . NAME``, which fail."""
    there = begin(tmp_path / "our fl", "127.0.0.1:9", ["a"])
    made = re.compile(r"motley deployment [^`\n]+")
    pages = [there.folder / "README.md", there.folder / "clients" / "a" / "README.md"]
    text = "\n".join(path.read_text() for path in pages).replace("`{", "`")
    with pytest.raises(ConfigError) as twice:
        add_client(there, "a")
    lines = [*made.findall(text), *made.findall(str(twice.value).partition(", then")[0])]
    assert {shlex.split(line)[2] for line in lines} == {"add", "check", "limit", "renew", "revoke"}
    new_client_key(tmp_path)
    ended = {}
    for line in dict.fromkeys(lines):
        assert "{" not in line
        known = {"NAME": "b", "DIR": str(there.folder), "node.key.pub": str(tmp_path / "node.pub")}
        known["MB"] = "128"
        words = [known.get(word, word) for word in shlex.split(line)[1:]]
        if words[1] == "revoke" and words[2] not in there.clients.names.values():
            assert call(["deployment", "add", words[2], "--dir", str(there.folder)]) == 0
        ended[line] = call(words)
    said = capsys.readouterr().err
    check = {line for line in ended if " check " in line}
    assert {line for line, code in ended.items() if code} == check, said  # nothing listens there


def test_no_other_page_or_sentence_has_a_command_that_fails():
    """Options are those of the commands, and names come before ``--dir``."""
    found = []
    for folder in ("docs", "packages", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".md", ".py", ".sh") and "operator" not in path.parts:
                text = path.read_text(encoding="utf-8")
                found += re.findall(r"motley deployment (\w+) ([^`\n;]*)", text)
    known = {"init", "add", "revoke", "register", "renew", "check", "limit", "tend"}
    words = [(what, rest.split()) for what, rest in found if what in known]
    assert len(words) > 3
    assert not [
        (what, rest) for what, rest in words if what in ("add", "revoke") and "." in rest[:1]
    ]


def test_the_command_loads_nothing_heavy():
    code = (
        "import sys, motley_flower.command; sys.exit(' '.join({'torch', 'flwr', "
        "'cryptography'} & set(sys.modules)) or None)"
    )
    assert done(sys.executable, "-c", code).returncode == 0


def test_the_example_without_certificates_says_so_first_and_stays_on_this_machine():
    example = ROOT / "examples" / "flower" / "run"
    found = done(example, "--host", "0.0.0.0")
    assert found.returncode == 2
    assert found.stdout.startswith(
        "WITHOUT CERTIFICATES: nothing is encrypted, and whoever reaches 0.0.0.0:18000 runs code "
        "here"
    )
    assert "0.0.0.0 is not this machine alone" in found.stderr
    assert "add --insecure" in found.stderr
