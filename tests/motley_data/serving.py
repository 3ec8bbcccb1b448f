"""A local HTTP server that serves bytes, with ranges, and that cuts, corrupts, stalls and fails as
told."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """What is served, and what has been asked for: ``(path, first byte)`` per request.

    ``troubles`` are used up one per request: ``cut``, ``stall``, ``trickle``, ``corrupt``,
    ``no ranges``, ``503``, ``403``, ``fine``.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        self.troubles: list[str] = []
        self.base = ""
        self.awake = threading.Event()


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(found[1]) if found else 0
            server.asked.append((self.path, start))
            trouble = server.troubles.pop(0) if server.troubles else "fine"
            content = server.files.get(self.path)
            if content is None or trouble.isdigit():
                self.send_error(404 if content is None else int(trouble))
                return
            if found and start >= len(content):
                self.send_error(416)
                return
            start = 0 if trouble == "no ranges" else start
            rest = content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            if trouble == "corrupt":
                rest = bytes([rest[0] ^ 1]) + rest[1:]
            if trouble == "trickle":
                for at in range(0, 400, 10):
                    self.wfile.write(rest[at : at + 10])
                    self.wfile.flush()
                    if server.awake.wait(0.05):
                        return
                return
            if trouble in ("cut", "stall"):
                self.wfile.write(rest[: len(rest) // 2])
                self.wfile.flush()
                if trouble == "stall":
                    server.awake.wait(10)
                return
            self.wfile.write(rest)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    thread = threading.Thread(
        target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    server.base = f"http://127.0.0.1:{http.server_port}"
    try:
        yield server
    finally:
        server.awake.set()
        http.shutdown()
        http.server_close()
        thread.join()
