"""Samples that workers share: read once, whoever dies, and written by nobody."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from motley.core.errors import DataError
from motley.core.freed_memory import freed_memory_kept
from motley.engines.serialization import to_memory
from motley.experiments import shared_samples as sharing
from motley.experiments.parallel import job_workers_kept, run_jobs
from motley.experiments.run import run
from motley.experiments.shared_samples import SharedSamples, shared_samples
from motley.results.load import load
from motley.tasks.kept_data import kept, kept_bytes, last_kept, made
from motley.tasks.task import Dataset
from tests.motley.experiments.acts import act
from tests.motley.experiments.reads import dataset, digest, keep, run_kept, tell
from tests.motley.resume.conftest import assert_same

SEEN = f"{digest(dataset(1.0))} {digest(dataset(2.0))}"


@pytest.fixture(scope="module", autouse=True)
def waiting_workers() -> Iterator[None]:
    """Two workers serve all tests but those in which one dies."""
    with job_workers_kept():
        yield


@pytest.fixture
def other() -> SharedSamples:
    """Another process's end of the register, as it were: it finds what this process holds."""
    samples = shared_samples()
    assert samples is not None
    return SharedSamples(samples.descriptor)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def held(process: int | str = "self", what: str = "motley") -> int:
    """How many descriptors of anonymous memory, and mappings of it, a process has."""
    links = []
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing
            links.append(os.readlink(file))
    return links.count(f"/memfd:{what} (deleted)")


def both(folder: Path, way: str, names: tuple[str, str] = ("set", "set")) -> list[bool]:
    """Whether each of two runs at a time kept its samples, and saw what they are."""
    calls = [
        {"number": number, "name": name, "way": way, "folder": folder}
        for number, name in enumerate(names)
    ]
    errors = dict(run_jobs(2, keep, calls))
    files = [folder / f"seen-{number}" for number in range(2)]
    return [errors[n] is None and files[n].read_text() == SEEN for n in range(2)]


def test_one_worker_reads_for_both(tmp_path: Path) -> None:
    assert both(tmp_path, "fine") == [True, True]
    assert lines(tmp_path / "reads") == lines(tmp_path / "doubles") == ["set"]


def test_who_wants_another_set_waits_for_nobody(tmp_path: Path) -> None:
    """The first reads until the second has read."""
    assert both(tmp_path, "another set", ("first", "second")) == [True, True]
    assert lines(tmp_path / "reads") == ["first", "second"]
    assert lines(tmp_path / "doubles") == ["second", "first"]


def test_what_one_writes_the_other_does_not_see(tmp_path: Path) -> None:
    assert both(tmp_path, "writes") == [False, True]
    assert lines(tmp_path / "reads") == ["set"]


def test_where_the_reader_is_killed_the_other_reads(tmp_path: Path) -> None:
    assert both(tmp_path, "dies reading") == [False, True]
    assert lines(tmp_path / "reads") == ["set", "set"]


def test_samples_outlive_the_process_that_read_them(tmp_path: Path) -> None:
    assert both(tmp_path, "dies later") == [False, True]
    assert lines(tmp_path / "reads") == ["set"]


def test_runs_have_the_bits_of_runs_alone(tmp_path: Path) -> None:
    """Label noise and shifts change samples and targets of a run."""
    keys: dict[str, Any] = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "population": 10,
        "cohort": 5,
        "stop": {"rounds": 2},
        "split": {"test": "client"},
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "label_noise": {"name": "symmetric", "rate": 0.3},
        "feature_shift": "transform",
        "concept_shift": "swap",
        "engine": {"name": "auto", "threads": 1},
    }
    (tmp_path / "both").mkdir()
    calls = [
        {"keys": {**keys, "seed": seed}, "out": tmp_path / "both" / str(seed)} for seed in range(2)
    ]
    assert dict(run_jobs(2, run_kept, calls)) == {0: None, 1: None}
    assert len(lines(tmp_path / "both/reads")) == 1
    for seed in range(2):
        alone = run({**keys, "seed": seed}, out=tmp_path / f"alone{seed}")
        assert_same(alone, load(tmp_path / "both" / str(seed)))


def test_what_the_parent_has_read_no_worker_reads(tmp_path: Path) -> None:
    """A file that changed since is read again: its stamp is another one."""
    with last_kept():
        samples = kept(lambda: ("set", tmp_path), lambda: dataset(1.0))
        made(samples, "double", lambda _: dataset(2.0))
        tell(tmp_path / "reader")
        assert both(tmp_path, "writes", ("set", "changed")) == [False, True]
        assert lines(tmp_path / "reads") == lines(tmp_path / "doubles") == ["changed"]
        mapped = kept(lambda: ("set", tmp_path), pytest.fail)
        assert digest(mapped) == digest(samples)
        assert dict(run_jobs(2, act, [{"number": 0, "way": "fine"}])) == {0: None}
        assert kept(lambda: ("set", tmp_path), pytest.fail) is mapped


def test_a_process_that_reads_for_itself_copies_nothing(tmp_path: Path) -> None:
    """So one worker, and what is read after a comparison."""
    with last_kept():
        assert both(tmp_path, "fine") == [True, True]
    before = held()
    with last_kept():
        samples = kept(lambda: "alone", lambda: dataset(1.0))
        assert dict(run_jobs(1, act, [{"number": 0, "way": "fine"}])) == {0: None}
        assert kept(lambda: "alone", pytest.fail) is samples
    assert held() == before


def test_the_same_inputs_take_memory_once() -> None:
    """A thousand rows of three numbers of four bytes."""
    with last_kept():
        samples = kept(lambda: "alone", lambda: dataset(1.0))
        made(samples, "the same", dataclasses.replace)
        assert kept_bytes() == 12_000
        made(samples, "double", lambda _: dataset(2.0))
        assert kept_bytes() == 24_000
    assert kept_bytes() == 0


def test_a_worker_has_the_register_once() -> None:
    for number in range(2):
        assert dict(run_jobs(2, act, [{"number": number, "way": "fine"}] * 2)) == {0: None, 1: None}
    workers = [
        child.pid
        for child in psutil.Process().children()
        if "motley.experiments.parallel" in child.cmdline()
    ]
    assert max(held(worker, "motley samples") for worker in workers) == 1


def test_memory_is_given_back_with_the_last_who_has_it(other: SharedSamples) -> None:
    before = held()
    first = other.once("a", lambda: dataset(1.0))
    second = other.once("a", pytest.fail)
    assert held() > before
    del first
    third = other.once("a", pytest.fail)  # the second holds it
    del second, third
    assert held() == before
    assert digest(other.once("a", lambda: dataset(2.0))) == digest(dataset(2.0))


def test_who_has_read_keeps_no_copy_of_its_own(other: SharedSamples) -> None:
    """Not even free: a run has the C library keep what it lets go of."""
    with freed_memory_kept():
        before = psutil.Process().memory_full_info().uss
        inputs = torch.ones(2**24)  # 64 MiB
        samples = other.once("e", partial(dataclasses.replace, dataset(1.0), x=inputs))
        assert psutil.Process().memory_full_info().uss > before + 2**26
        del inputs, samples
        samples = other.once("f", lambda: dataclasses.replace(dataset(1.0), x=torch.ones(2**24)))
        assert psutil.Process().memory_full_info().uss < before + 2**25
        assert float(samples.x.sum()) == 2**24


def test_a_descriptor_that_is_another_files_by_now_is_not_read(other: SharedSamples) -> None:
    first = other.once("b", lambda: dataset(1.0))
    size = sharing._RECORD.size
    record = os.pread(other.descriptor, size, os.fstat(other.descriptor).st_size - size)
    another = to_memory(dataset(3.0))
    os.dup2(another, sharing._RECORD.unpack(record)[2])
    os.close(another)
    assert digest(other.once("b", lambda: dataset(2.0))) == digest(dataset(2.0))
    assert digest(first) == digest(dataset(1.0))


def test_a_descriptor_that_becomes_another_files_before_it_is_opened_is_not_read(
    other: SharedSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = other.once("g", lambda: dataset(1.0))
    size = sharing._RECORD.size
    record = os.pread(other.descriptor, size, os.fstat(other.descriptor).st_size - size)
    descriptor = sharing._RECORD.unpack(record)[2]
    open_file = os.open
    before = held()

    def opened_late(path: str, flags: int) -> int:
        another = to_memory(dataset(3.0))
        os.dup2(another, descriptor)
        os.close(another)
        return open_file(path, flags)

    with monkeypatch.context() as changed:
        changed.setattr(os, "open", opened_late)
        again = other.once("g", lambda: dataset(2.0))
    assert digest(again) == digest(dataset(2.0))
    assert digest(first) == digest(dataset(1.0))
    del again
    assert held() == before


@pytest.mark.parametrize("name", ["stat", "open", "write", "memfd_create", "dup"])
def test_what_the_system_refuses_leaves_samples_of_ones_own(
    other: SharedSamples, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    first = other.once(name, lambda: dataset(1.0))
    before = held()
    with monkeypatch.context() as refused:
        refused.setattr(os, name, refuse)
        refused.setattr(sharing.fcntl, "lockf", refuse)
        again = other.once(name, lambda: dataset(2.0))
        another = other.once(name + "!", lambda: dataset(2.0))
        shared_samples.cache_clear()
        none = shared_samples() is None
    shared_samples.cache_clear()
    assert digest(again) == digest(dataset(1.0 if name == "memfd_create" else 2.0))
    assert digest(another) == digest(dataset(2.0))
    assert none == (name == "memfd_create")
    assert digest(first) == digest(dataset(1.0))
    del again, another
    assert held() == before


def test_an_error_of_reading_is_the_readers_alone(other: SharedSamples) -> None:
    def damaged() -> Dataset:
        raise DataError("damaged")

    with pytest.raises(DataError, match=r"^damaged$"):
        other.once("c", damaged)
    assert digest(other.once("c", lambda: dataset(1.0))) == digest(dataset(1.0))


def test_samples_that_lie_otherwise_in_memory_stay_where_they_are(other: SharedSamples) -> None:
    """Their copy would be contiguous, and operations on it may end in other last bits."""
    turned = dataclasses.replace(dataset(1.0), x=torch.zeros(3, 1000).T)
    assert other.once("d", lambda: turned) is turned
