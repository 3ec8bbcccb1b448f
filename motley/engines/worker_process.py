"""The program of a worker process: ``python -m motley.engines.worker_process LINE PARENT THREADS``.

It reads settings and orders from the line it was given and ends when the other end is closed or its parent is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time

from motley.core.errors import EngineError
from motley.engines.serialization import unwrap
from motley.engines.shared_memory import SharedMemoryChannel, handed, look

__all__ = ["ANSWER", "ORDER", "SETTING", "main"]

SETTING, ORDER, ANSWER = range(3)
"""What a message is."""
_LOOK_S = 0.5


def main(line: int, parent: int, threads: int) -> None:
    """Work until nobody wants anything more.

    Parameters
    ----------
    line: descriptor of the socket. parent: process that gives the orders. threads: of torch.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    import torch

    from motley.engines.worker import Worker
    from motley.engines.worker_pool import Failed

    torch.set_num_threads(threads)
    end, worker = SharedMemoryChannel(socket.socket(fileno=line)), None
    while True:
        try:
            what, number, handles = end.receive()
        except (EOFError, OSError):
            return
        if what == SETTING:
            if worker is not None:
                worker.end()
            device = f"cuda:{number % torch.cuda.device_count()}" if number >= 0 else None
            worker = Worker(look(handles[0]), device)
            continue
        posted, own = (unwrap(look(handle)) for handle in handles)
        answer = Failed(EngineError("a worker was given an order before it was told the setting"))
        if worker is not None:
            answer = worker.execute(own, posted)
        del posted, own
        try:
            handle = handed(answer)
        except Exception as error:  # an exception may hold anything
            said = answer.error if isinstance(answer, Failed) else error
            handle = handed(Failed(EngineError(f"a worker failed: {type(said).__name__}: {said}")))
        del answer
        try:
            end.send(ANSWER, number, handle)
        except OSError:
            return
        os.close(handle)


def _leave_with(parent: int) -> None:
    """A worker in the middle of a long chunk would not notice that its parent is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
