"""The proxy and the clock of ``benchmarks/loopback.py``, and what its committed figures say of the
ledger."""

from __future__ import annotations

import json
import socket
import threading

from benchmarks import loopback


def test_a_proxy_counts_both_directions_to_the_byte() -> None:
    """A server that answers 300 kB with 70 kB."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        near, _ = server.accept()
        left = 300_000
        while left:
            left -= len(near.recv(65_536))
        near.sendall(bytes(70_000))
        near.close()

    threading.Thread(target=answer, daemon=True).start()
    proxy = loopback.Proxy(server.getsockname()[1])
    with socket.create_connection(("127.0.0.1", proxy.port)) as there:
        there.sendall(bytes(300_000))
        got = 0
        while data := there.recv(65_536):
            got += len(data)
    assert (got, proxy.up, proxy.down) == (70_000, 300_000, 70_000)
    server.close()


def test_between_two_moments_lies_the_difference_of_the_last_samples_before_them() -> None:
    counts = loopback.Counts([])
    counts.over.set()
    counts.thread.join()
    counts.rows = [(0.0, 0, 0, 0), (1.0, 5, 7, 20), (2.0, 6, 9, 50)]
    assert counts.between(1.5, 2.0) == [1, 2, 30]
    assert counts.between(0.0, 1.9) == [5, 7, 20]


def test_what_was_counted_is_the_ledger_and_a_fixed_number_of_bytes_more() -> None:
    """The ledger's bytes of a round are two models of 4 bytes a parameter each way, and their
    heads; what is counted above them does not grow with the model, and covers everything that the
    ledger has."""
    found = json.loads(loopback.OUT.read_text())
    assert [model["parameters"] for model in found["models"]] == [2410, 76810, 1126410]
    for model in found["models"]:
        for row in model["rounds"]:
            for way in ("down", "up"):
                values = found["nodes"] * 4 * model["parameters"]
                assert values < row[f"ledger_{way}"] < values + 2_000
                assert 0 < row[f"counted_{way}"] - row[f"ledger_{way}"] < 30_000
