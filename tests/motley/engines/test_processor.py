"""What of the machine decides last bits, from the files that Linux has of it."""

import pytest

from motley.engines import processor
from motley.engines.processor import arithmetic

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Some Processor @ 2.00GHz
stepping\t: 7
cpu MHz\t\t: 2000.1
flags\t\t: fpu sse2 fma avx avx2 avx512f

processor\t: 1
vendor_id\t: Other
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd sve bf16 i8mm
CPU implementer\t: 0x41
CPU variant\t: 0x1
CPU part\t: 0xd40
"""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Ask of a machine with this text as ``/proc/cpuinfo`` and a level-2 cache."""
    for name in processor.CHOOSERS:
        monkeypatch.delenv(name, raising=False)

    def ask(cpuinfo):
        (tmp_path / "cpuinfo").write_text(cpuinfo)
        cache = tmp_path / "cache" / "index2"
        cache.mkdir(parents=True, exist_ok=True)
        for name, text in (("level", "2\n"), ("type", "Unified\n"), ("size", "1024K\n")):
            (cache / name).write_text(text)
        monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(processor, "CACHES", tmp_path / "cache")
        return arithmetic.__wrapped__()

    return ask


def test_two_kinds_of_processor_are_told_apart(told):
    intel = told(INTEL)
    assert intel["processor"] == "GenuineIntel 6 85 7"
    assert intel["vectors"] == "avx avx2 avx512f fma"
    assert intel["caches"] == "2 1024K"
    other = told(INTEL.replace(": 85", ": 106"))
    assert {name for name in intel if intel[name] != other[name]} == {"processor"}
    arm = told(ARM)
    assert (arm["processor"], arm["vectors"]) == ("0x41 0xd40 0x1", "asimd bf16 i8mm sve")


def test_the_clock_rate_is_no_kind(told):
    assert told(INTEL) == told(INTEL.replace("2000.1", "3100.7"))


def test_variables_that_choose_kernels_count(told, monkeypatch):
    assert told(INTEL)["kernels"] == ""
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert told(INTEL)["kernels"] == "MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=AVX2"


def test_numpy_s_kernels_are_told(told):
    """Every wheel of NumPy for Linux brings OpenBLAS, which chose kernels when it was loaded."""
    assert told(INTEL)["blas"].startswith("openblas ")


def test_a_system_without_these_files_still_has_a_name(told, tmp_path, monkeypatch):
    told(INTEL)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "missing")
    monkeypatch.setattr(processor, "CACHES", tmp_path / "missing")
    record = arithmetic.__wrapped__()
    assert record["processor"]
    assert (record["vectors"], record["caches"]) == ("", "")
