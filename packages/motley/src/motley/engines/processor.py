"""What of the machine decides the last bits of its arithmetic: MKL, oneDNN and OpenBLAS choose
kernels, and how they cut matrices into blocks, by the processor, its vector instructions and its
caches, unless variables of the environment choose for them."""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from threadpoolctl import threadpool_info

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
IDENTITY = (
    "vendor_id",
    "cpu family",
    "model",
    "stepping",
    "CPU implementer",
    "CPU part",
    "CPU variant",
)
"""Keys of ``/proc/cpuinfo`` by which libraries tell processors apart; the last three on ARM."""
VECTOR = re.compile(r"(avx|fma|f16c|amx|sve|sme|asimd|bf16|i8mm)")
CHOOSERS = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
)
"""Variables of the environment that choose kernels; libraries read them when they are loaded."""


@functools.cache
def arithmetic() -> Mapping[str, str]:
    """Return ``processor``, ``vectors`` (its vector instructions), ``caches`` (level and size),
    ``blas`` (NumPy's, with the kernels it chose) and ``kernels`` (variables of the environment that
    choose kernels); each is empty where the system does not tell, or none is set."""
    cpuinfo = _pairs(CPUINFO)
    identity = " ".join(cpuinfo[key] for key in IDENTITY if key in cpuinfo)
    flags = (cpuinfo.get("flags") or cpuinfo.get("Features", "")).split()
    chosen = [f"{name}={os.environ[name]}" for name in CHOOSERS if name in os.environ]
    return {
        "processor": identity or platform.processor() or platform.machine(),
        "vectors": " ".join(sorted(flag for flag in flags if VECTOR.match(flag))),
        "caches": _caches(),
        "blas": _blas(),
        "kernels": " ".join(chosen),
    }


def _pairs(path: Path) -> dict[str, str]:
    """Return the first processor's keys and values; nothing where the system has no such file."""
    try:
        first = path.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _caches() -> str:
    """Return ``1d 48K, 1i 32K, 2 1024K, 3 32768K``; empty where the system does not tell."""
    sizes = []
    for folder in sorted(CACHES.glob("index*")):
        try:
            level, kind, size = (
                (folder / name).read_text(encoding="utf-8").strip()
                for name in ("level", "type", "size")
            )
        except OSError:
            continue
        sizes.append(f"{level}{kind[0].lower() if kind != 'Unified' else ''} {size}")
    return ", ".join(sizes)


def _blas() -> str:
    """Return NumPy's BLAS, its version and kernels; empty where NumPy brings none of its own.

    SciPy's is another library, which is loaded when it is first needed.
    """
    return ", ".join(
        " ".join(
            str(info[key]) for key in ("internal_api", "version", "architecture") if info.get(key)
        )
        for info in threadpool_info()
        if info["user_api"] == "blas" and "numpy" in info["filepath"]
    )
