"""What clients keep: in RAM and on disk alike, never written over before a checkpoint says so,
refused where it cannot fit."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.algorithms.parts import PersonalRule
from motley.core import codec
from motley.core.errors import ConfigError, ContractError, StoreError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.rounds import client_state as module
from motley.rounds.checkpoint import KEPT
from motley.rounds.client_state import (
    ClientStates,
    DiskClientStates,
    free_memory,
    open_client_states,
)
from tests.motley.rounds.going_on import going_on

FIRST = {
    "c": torch.zeros(3),
    "count": torch.tensor(0),
    "seen": torch.zeros((0, 2), dtype=torch.bool),
}


def memory(value: float) -> dict[str, torch.Tensor]:
    return {"c": torch.full((3,), value), "count": torch.tensor(int(value)), "seen": FIRST["seen"]}


def disk(path: Path, saved: dict[str, Any] | None = None) -> DiskClientStates:
    store = DiskClientStates(FIRST, path)
    if saved is not None:
        store.restore(codec.decode(codec.encode(saved)))
    return store


def kept(store: ClientStates) -> dict[int, float]:
    """The number behind each client's memory, which must be whole."""
    for client, found in store.items():
        assert {name: (value.dtype, value.shape) for name, value in found.items()} == {
            name: (value.dtype, value.shape) for name, value in FIRST.items()
        }, client
        assert found["c"].tolist() == [found["count"].item()] * 3
    return {client: float(found["count"]) for client, found in store.items()}


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_who_has_none_of_its_own_keeps_the_first(kind: str, tmp_path: Path) -> None:
    store = open_client_states(kind, FIRST, 10, 10, 10, tmp_path)  # type: ignore[arg-type]
    store.put(7, memory(2.0))
    assert list(store) == [7]
    assert len(store) == 1
    assert 3 not in store
    some = store.of(np.array([3, 7]))
    assert some[3] is FIRST
    assert some[7] is not None
    assert some[7]["c"].tolist() == [2.0] * 3


def test_a_method_without_memory_needs_no_vault(tmp_path: Path) -> None:
    store = open_client_states("disk", None, 10**12, 10**12, 10, None)
    assert store.of([1, 2]) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.parametrize(
    "wrong",
    [{"c": torch.zeros(4)}, {"c": torch.zeros(3, dtype=torch.float64)}, {"d": torch.zeros(3)}, {}],
)
def test_a_memory_of_another_form_breaks_the_contract(
    kind: str, wrong: Any, tmp_path: Path
) -> None:
    store = open_client_states(kind, {"c": torch.zeros(3)}, 10, 10, 10, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(
        ContractError,
        match=r"client 1 would keep .*; its method's first memory is \{'c': \('float32', "
        r"\(3,\)\)\}",
    ):
        store.put(1, wrong)
    assert len(store) == 0


def test_in_ram_a_row_of_a_batch_does_not_keep_the_batch_alive() -> None:
    """Batched engines hand out views ``[c, D] -> [D]``: kept as they are, each client would hold c
    times its own."""
    store = ClientStates({"c": torch.zeros(3)})
    store.put(0, {"c": torch.ones(1000, 3)[5]})
    assert store[0]["c"].untyped_storage().nbytes() == 12


def test_a_row_that_a_kept_checkpoint_names_is_never_written_over(tmp_path: Path) -> None:
    """After each of many saves, the memories of the last two checkpoints can be read whatever was
    put since; a store that kept one checkpoint's rows only, or wrote over a client's own, would
    read other numbers (or a wrong checksum)."""
    store = disk(tmp_path)
    saves = []
    draw = np.random.Generator(np.random.Philox(3))
    for moment in range(1, 40):
        for client in draw.choice(6, size=3, replace=False).tolist():
            store.put(client, memory(float(100 * moment + client)))
        for saved, then in saves[-KEPT:]:
            assert kept(disk(tmp_path, saved)) == then
        if moment % 3 == 0:
            saves.append((store.save(), kept(store)))
    rows = store.path.stat().st_size // module.row_bytes(FIRST)
    # those that count, those of two checkpoints, and the one that is being written
    assert rows <= 3 * 6 + 1


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["put", "save", "kill", "fall back"])),
        max_size=40,
    )
)
def test_whenever_it_is_killed_it_goes_on_as_if_nothing_had_been(
    deeds: list[tuple[int, str]],
) -> None:
    """Against a model: after a kill what counts is the last checkpoint, or the one before where
    that is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        store = disk(Path(folder))
        checkpoints = []
        now: dict[int, float] = {}
        for value, (client, deed) in enumerate(deeds, start=1):
            if deed == "put":
                store.put(client, memory(float(value)))
                now[client] = float(value)
            elif deed == "save":
                checkpoints = [*checkpoints, (store.save(), dict(now))][-KEPT:]
            elif checkpoints:
                checkpoints = checkpoints[: 1 if deed == "fall back" else None]
                saved = checkpoints[-1][0]
                now = dict(checkpoints[-1][1])
                store = disk(Path(folder), saved)
            assert kept(store) == now


def test_saving_twice_without_a_change_forgets_no_checkpoint(tmp_path: Path) -> None:
    store = disk(tmp_path)
    store.put(0, memory(1.0))
    first = store.save()
    store.put(0, memory(2.0))
    for _ in range(3):
        store.save()
    store.put(0, memory(3.0))
    assert kept(disk(tmp_path, first)) == {0: 1.0}


def test_rows_that_are_damaged_or_gone_are_told(tmp_path: Path) -> None:
    store = disk(tmp_path)
    for client in range(3):
        store.put(client, memory(float(client)))
    saved = store.save()
    raw = bytearray(store.path.read_bytes())
    raw[-1] ^= 1
    store.path.write_bytes(raw)
    assert kept_of(store, 1) == 1.0
    with pytest.raises(StoreError, match=r"the memory of client 2 in .*memories.rows is damaged"):
        store[2]
    store.path.write_bytes(raw[:-4])
    with pytest.raises(StoreError, match="client 2"):
        store[2]
    store.path.unlink()
    with pytest.raises(
        StoreError, match=r"memories.rows does not exist, and what clients kept is gone"
    ):
        disk(tmp_path, saved)
    store.path.mkdir()
    with pytest.raises(
        StoreError, match=r"memories.rows is a folder, and what clients kept is gone"
    ):
        disk(tmp_path, saved)
    with pytest.raises(StoreError, match=r"cannot write .*memories.rows: Is a directory"):
        store.save()
    with pytest.raises(StoreError, match=r"cannot write .*memories.rows: Is a directory"):
        disk(tmp_path).put(0, memory(1.0))


def test_rows_are_never_written_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    (tmp_path / "memories.rows").symlink_to(other)
    store = disk(tmp_path)
    store.put(0, memory(1.0))
    assert other.read_bytes() == b"precious"
    saved = store.save()
    store.path.rename(other)
    store.path.symlink_to(other)
    with pytest.raises(StoreError, match=r"memories.rows is a link, and what clients kept is gone"):
        disk(tmp_path, saved)


def kept_of(store: ClientStates, client: int) -> float:
    return float(store[client]["count"])


def test_a_run_may_move_from_ram_to_disk_but_not_back(tmp_path: Path) -> None:
    ram = ClientStates(FIRST)
    ram.put(4, memory(5.0))
    store = disk(tmp_path, ram.save())
    assert kept(store) == {4: 5.0}
    with pytest.raises(
        StoreError,
        match='keeps the memories of its clients on disk; go on with client_state = "disk"',
    ):
        ram.restore(store.save())


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = DiskClientStates(FIRST, tmp_path / "file")
    with pytest.raises(
        StoreError, match=r"cannot write .*memories.rows: .*; make room or choose another folder"
    ):
        store.put(0, memory(1.0))


# ---------------------------------------------------------------------------------- what cannot fit

SCAFFOLD: dict[str, Any] = {
    "task": {"name": "quadratic", "dim": 1000},
    "partition": "by_writer",
    "population": 300,
    "cohort": 4,
    "stop": {"rounds": 3},
    "algorithm": "scaffold",
    "local": {"steps": 2, "batch_size": 1, "optimizer": {"lr": 0.1}},
    "evaluate": {"per_client": False},
    "engine": {"name": "sequential", "threads": 1},
}


def test_memories_that_do_not_fit_in_ram_are_refused_and_told_about_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """300 clients x 1000 weights x 4 bytes = 1,200,000 bytes: that many are enough, one less is
    not."""
    monkeypatch.setattr(module, "free_memory", lambda: 1_200_000)
    build(SCAFFOLD)
    monkeypatch.setattr(module, "free_memory", lambda: 1_199_999)
    with pytest.raises(ConfigError) as refused:
        run(SCAFFOLD, out=tmp_path / "r")
    assert str(refused.value) == (
        "client_state: 300 clients may come to keep 4,000 bytes each, 1,200,000 in all, and "
        "1,199,999 bytes of memory are free; "
        'write client_state = "disk"'
    )
    assert not (tmp_path / "r").exists()
    run({**SCAFFOLD, "client_state": "disk"}, out=tmp_path / "r")
    build({**SCAFFOLD, "algorithm": "fedavg"})  # which keeps nothing


def test_memories_that_do_not_fit_on_the_disk_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """3 rounds of 4 reach 4 + 12 = 16 clients (the first round may be larger), of which two
    checkpoints may hold older rows: 48 rows of 4,000 bytes."""
    on_disk = {**SCAFFOLD, "client_state": "disk"}
    monkeypatch.setattr(module, "_free_disk", lambda folder: 192_000)
    build(on_disk, folder=tmp_path)
    monkeypatch.setattr(module, "_free_disk", lambda folder: 191_999)
    with pytest.raises(
        ConfigError,
        match=r"^client_state: .* 192,000 of them on disk at a time, and 191,999 bytes are free "
        r"below .*; choose",
    ):
        build(on_disk, folder=tmp_path)
    (tmp_path / "memories.rows").write_bytes(b"1")  # what lies there already when a run is resumed
    build(on_disk, folder=tmp_path)
    with pytest.raises(ConfigError, match="client_state: rows on disk need the folder of a run"):
        build(on_disk)


def test_what_is_free_is_what_the_machine_or_the_control_group_leaves() -> None:
    free = free_memory()
    assert free is None or 0 < free < 2**50


def test_the_key_is_checked_and_changes_no_id() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^client_state: got 'dsk' \(did you mean 'disk'\?\); expected one of: ram, disk",
    ):
        Experiment(**SCAFFOLD, client_state="dsk")
    assert Experiment(**SCAFFOLD).run_id() == Experiment(**SCAFFOLD, client_state="disk").run_id()


def test_nobody_reads_the_disk_to_measure_what_does_not_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe of everybody would otherwise load K memories at once, and break the promise of a
    small one."""
    keys = {
        **SCAFFOLD,
        "client_state": "disk",
        "population": 12,
        "selector": {"name": "power_of_choice", "d": 12},
    }
    simulation = build(keys, folder=tmp_path)
    simulation.step()
    read: list[int] = []
    before = DiskClientStates.__getitem__
    monkeypatch.setattr(
        DiskClientStates,
        "__getitem__",
        lambda self, client: read.append(client) or before(self, client),
    )
    simulation.step()
    assert len(read) <= 4

    @dataclasses.dataclass(frozen=True)
    class Own(PersonalRule):
        starts_own = True

        def start(self, download: Any, client_state: Any) -> Any:
            return super().start(download, client_state)

    read.clear()
    algorithm = dataclasses.replace(simulation.algorithm, local=Own())
    setting = dataclasses.replace(simulation.setting, algorithm=algorithm)
    simulation = going_on(simulation, config={"setting": setting})
    simulation.backend.probe(
        simulation.state.moment,
        np.arange(12),
        {"loss": None},
        algorithm.local.download(simulation.state.server),
    )
    assert len(read) >= 4


LET_GO = """
import torch
from motley.rounds.client_state import free_memory
torch.set_num_threads(1)

def resident():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024

def use():
    blocks = [torch.ones(3_300_000).clone() for _ in range(20)]
    return resident()

use(), free_memory()
before = resident()
print(use() - before, resident() - before, free_memory() > 0, resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_what_this_process_let_go_of_is_free():
    """20 blocks of 13 MB: used once they come from the heap the second time, where glibc would keep
    them when they are let go."""
    out = subprocess.run(
        [sys.executable, "-c", LET_GO], capture_output=True, text=True, check=True, timeout=300
    )
    full, _, told, after = out.stdout.split()
    assert int(full) > 200
    assert told == "True"
    assert int(after) < 50
