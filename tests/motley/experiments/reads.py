"""What workers call in the tests of samples that they share; a module of its own, for each worker
imports it."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from motley.experiments.progress import OneRun
from motley.experiments.run import run
from motley.tasks import image
from motley.tasks.kept_data import kept, made
from motley.tasks.task import Dataset


def dataset(value: float) -> Dataset:
    """Return samples that are all of one value."""
    return Dataset(
        x=torch.full((1000, 3), value),
        y=torch.arange(1000) % 10,
        classes=10,
        test=np.arange(1000) >= 900,
        notes={"data": f"all {value}"},
    )


def digest(samples: Dataset) -> str:
    """Return a hash of what samples are made of."""
    parts = (samples.x.numpy(), samples.y.numpy(), samples.test)
    text = f"{samples.classes} {samples.notes} {[part.dtype for part in parts]}"
    return hashlib.sha256(b"".join([text.encode(), *(p.tobytes() for p in parts)])).hexdigest()


def tell(file: Path, line: object = "") -> None:
    """Append a line to a file that all workers write."""
    with file.open("a") as lines:
        lines.write(f"{line}\n")


def wait_for(file: Path, there: bool = True) -> None:
    """Wait until a file is there, or no longer."""
    deadline_s = time.monotonic() + 60
    while file.exists() != there:
        assert time.monotonic() < deadline_s, f"{file}: {not there}"
        time.sleep(0.01)


def keep(number: int, name: str, way: str, folder: Path, progress: OneRun) -> None:
    """Keep samples in memory, and what is made of them; write digests of both to ``seen-NUMBER``.

    Parameters
    ----------
    number: 0 begins to read before 1 does anything.
    name: of the samples; ``reads`` and ``doubles`` get a line for each time that they are made.
    way: what number 0 waits for or does.
    """

    def read() -> Dataset:
        tell(folder / "reads", name)
        if number == 0:
            tell(folder / "reader", os.getpid())
            wait_for(folder / ("seen-1" if way == "another set" else "wanted"))
            time.sleep(0.2)  # the other may wait for this reading by now
            if way == "dies reading":
                os.kill(os.getpid(), signal.SIGKILL)
        return dataset(1.0)

    def double(samples: Dataset) -> Dataset:
        tell(folder / "doubles", name)
        return dataset(2.0 * float(samples.x[0, 0]))

    if number == 1:
        wait_for(folder / "reader")
        tell(folder / "wanted")
    samples = kept(lambda: (name, folder), read)
    doubled = made(samples, "double", double)
    if way in ("writes", "dies later") and number == 0:
        wait_for(folder / "mapped")
        if way == "dies later":
            os.kill(os.getpid(), signal.SIGKILL)
        samples.x.zero_()
        samples.test[:] = False
        tell(folder / "written")
    if way in ("writes", "dies later") and number == 1:
        tell(folder / "mapped")
        if way == "writes":
            wait_for(folder / "written")
        else:
            wait_for(Path("/proc") / (folder / "reader").read_text().strip(), there=False)
    (folder / f"seen-{number}").write_text(f"{digest(samples)} {digest(doubled)}")


def run_kept(keys: Mapping[str, Any], out: Path, progress: OneRun) -> None:
    """Run an experiment on digits that are kept in memory, as large data sets are."""
    digits = image.digits

    def read() -> Dataset:
        tell(out.parent / "reads")
        return digits()

    def kept_digits() -> Dataset:
        return kept(lambda: ("digits", out.parent), read)

    with mock.patch.object(image, "digits", kept_digits):
        run(keys, out=out)
