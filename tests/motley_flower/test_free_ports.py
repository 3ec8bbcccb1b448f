"""A port that something listens on is refused before anything is started."""

import socket

from motley_flower.free_ports import in_use, main


def test_the_first_port_in_use_is_named_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (free, taken)]
        free.close()
        addresses = [f"127.0.0.1:{port}" for port in ports]
        told = main(["write another port", *addresses])
        assert told == (
            f"port {ports[1]} on 127.0.0.1 is in use by another process (ss -ltnp shows which); "
            "end that one, or write another port"
        )
        assert main(["write another port", addresses[0]]) is None
    assert not in_use("127.0.0.1", ports[1])
