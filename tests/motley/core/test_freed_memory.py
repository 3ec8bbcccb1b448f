"""Freed memory is kept inside a run, where the C library is glibc, and given back after it."""

import platform
import resource

import numpy as np
import pytest

from motley.core.freed_memory import freed_memory_kept, keep_freed_memory

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have no thresholds"
)
BYTES = 2**26  # above what glibc keeps by itself


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)


def faults(blocks: int) -> int:
    """Return the page faults of this thread while it fills so many blocks, one after the other."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(blocks):
        np.ones(BYTES, np.int8)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def test_a_block_is_faulted_in_once_inside_and_each_time_after() -> None:
    """A block of 64 MiB has 32 huge pages, or 16,384 small ones."""
    with freed_memory_kept():
        faults(1)
        assert faults(4) < 32
    assert faults(4) >= 4 * 32


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_a_user_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "131072")
    assert not keep_freed_memory()
    with freed_memory_kept():
        faults(1)
        assert faults(4) >= 4 * 32
