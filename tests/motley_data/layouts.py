"""Small data sets in every layout in which public ones lie on disk, all written from the same
arrays."""

import dataclasses
import gzip
import hashlib
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from motley_data.public_data.facts import PACKS, PUBLIC, Variant

TRAIN = 50
TEST = 20


@dataclass(frozen=True)
class Halves:
    """Pixels ``[n, H, W(, 3)]`` and classes of both halves, in the original order."""

    x: tuple[np.ndarray, np.ndarray]
    y: tuple[np.ndarray, np.ndarray]


def halves(shape: tuple[int, ...] = (28, 28), classes: int = 10) -> Halves:
    rng = np.random.default_rng(3)
    x = [rng.integers(0, 256, (n, *shape), dtype=np.uint8) for n in (TRAIN, TEST)]
    return Halves((x[0], x[1]), tuple(np.arange(n) * 7 % classes for n in (TRAIN, TEST)))


def bare_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let nothing be found but below a folder, which is ``MOTLEY_DATA`` and the hub's cache."""
    for name in ("MOTLEY_DATA", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(folder))
    for name in ("TORCHVISION_DATA", "KERAS_HOME", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setattr("motley_data.public_data.places.__file__", str(folder / "a/b/c/d.py"))
    monkeypatch.chdir(folder)
    return folder


def let_it_be(monkeypatch: pytest.MonkeyPatch, name: str, data: Halves, **changes: object) -> None:
    """Let a public data set be these few images."""
    variant = Variant(PUBLIC[name].title, canonical_digest(data), ordered_digest(data), TRAIN, TEST)
    variants = {**PUBLIC[name].variants, name: variant}
    monkeypatch.setitem(
        PUBLIC, name, dataclasses.replace(PUBLIC[name], variants=variants, **changes)
    )


def canonical_digest(data: Halves) -> str:
    """By hand: a sorted list of (class, bytes)."""
    sha = hashlib.sha256()
    for x, y in zip(data.x, data.y, strict=True):
        rows = sorted((int(label), image.tobytes()) for image, label in zip(x, y, strict=True))
        sha.update(b"".join(image for _, image in rows))
        sha.update(b"".join(struct.pack("<q", label) for label, _ in rows))
    return sha.hexdigest()


def ordered_digest(data: Halves) -> str:
    """By hand: class after class, each in the original order."""
    sha = hashlib.sha256()
    for x, y in zip(data.x, data.y, strict=True):
        rows = [row for label in range(100) for row in range(len(y)) if y[row] == label]
        sha.update(b"".join(x[row].tobytes() for row in rows))
        sha.update(b"".join(struct.pack("<q", int(y[row])) for row in rows))
    return sha.hexdigest()


def idx_bytes(array: np.ndarray) -> bytes:
    return (
        struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape)
        + array.astype(np.uint8).tobytes()
    )


def idx(folder: Path, data: Halves, suffix: str = "", prefix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for half, x, y in zip(("train", "t10k" if not prefix else "test"), data.x, data.y, strict=True):
        for name, array in (("images-idx3", x), ("labels-idx1", y)):
            raw = idx_bytes(array)
            (folder / f"{prefix}{half}-{name}-ubyte{suffix}").write_bytes(
                gzip.compress(raw, 1) if suffix else raw
            )


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def parquet(folder: Path, data: Halves, image: str = "image", label: str = "label") -> None:
    """As the hub's cache has it."""
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text("abc123")
    inner = folder / "snapshots" / "abc123" / "data"
    inner.mkdir(parents=True, exist_ok=True)
    for half, x, y in zip(("train", "test"), data.x, data.y, strict=True):
        pictures = [{"bytes": png(one), "path": None} for one in x]
        pq.write_table(
            pa.table({image: pictures, label: y}), inner / f"{half}-00000-of-00001.parquet"
        )


def keras(folder: Path, data: Halves) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        folder / "mnist.npz",
        x_train=data.x[0],
        y_train=data.y[0].astype(np.uint8),
        x_test=data.x[1],
        y_test=data.y[1].astype(np.uint8),
    )


def pack(folder: Path, data: Halves, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the pack ``mnist.npz`` has it: class after class, with the writer of each image."""
    folder.mkdir(parents=True, exist_ok=True)
    orders = [
        [row for label in range(10) for row in range(len(y)) if y[row] == label] for y in data.y
    ]
    arrays = {"classes": np.array(list("0123456789"))}
    for half, x, y, order in zip(("train", "test"), data.x, data.y, orders, strict=True):
        arrays |= {
            f"x_{half}": x[order],
            f"y_{half}": y[order].astype(np.uint8),
            f"writer_{half}": np.array(order, np.int32) % 7,
            f"index_{half}": np.array(order, np.int32),
        }
    np.savez_compressed(folder / "mnist.npz", **arrays)
    monkeypatch.setitem(
        PACKS, "mnist.npz", hashlib.sha256((folder / "mnist.npz").read_bytes()).hexdigest()
    )


def cifar_binary(folder: Path, data: Halves, hundred: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ["train.bin", "test.bin"] if hundred else ["data_batch_1.bin", "test_batch.bin"]
    for name, x, y in zip(names, data.x, data.y, strict=True):
        labels = [y // 5, y] if hundred else [y]
        rows = np.concatenate(
            [*(one[:, None] for one in labels), x.transpose(0, 3, 1, 2).reshape(len(x), -1)], 1
        )
        rows.astype(np.uint8).tofile(folder / name)


def _text(text: bytes) -> bytes:
    return b"T" + struct.pack("<I", len(text)) + text


def old_pickle(data: np.ndarray, labels: np.ndarray, key: bytes = b"labels") -> bytes:
    """The bytes that Python 2 wrote for ``{"data": uint8 array, key: list}`` (protocol 2), opcode
    by opcode."""
    shape = b"".join(b"J" + struct.pack("<i", side) for side in data.shape)
    dtype = (
        b"cnumpy\ndtype\n("
        + _text(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + _text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + _text(b"b") + b"tR"
    array = made + b"(K\x01(" + shape + b"t" + dtype + b"\x89" + _text(data.tobytes()) + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([int(label)]) for label in labels) + b"e"
    return b"\x80\x02}(" + _text(b"data") + array + _text(key) + listed + b"u."


def cifar_pickle(folder: Path, data: Halves, hundred: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ["train", "test"] if hundred else ["data_batch_1", "test_batch"]
    for name, x, y in zip(names, data.x, data.y, strict=True):
        flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        (folder / name).write_bytes(old_pickle(flat, y, b"fine_labels" if hundred else b"labels"))


def leaf(folder: Path, data: Halves, writers: int = 5) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    x = data.x[0].reshape(TRAIN, -1) / 255
    y = data.y[0]
    users = {
        f"f{w:04d}": {"x": x[w::writers].tolist(), "y": y[w::writers].tolist()}
        for w in range(writers)
    }
    content = {
        "users": list(users),
        "num_samples": [len(one["y"]) for one in users.values()],
        "user_data": users,
    }
    (folder / "all_data_0.json").write_text(json.dumps(content))


MNIST_LAYOUTS: dict[str, Callable[[Path, Halves], None]] = {
    "idx": lambda root, data: idx(root / "MNIST/raw", data),
    "gzip idx": lambda root, data: idx(root / "MNIST/raw", data, ".gz"),
    "keras": keras,
    "parquet": lambda root, data: parquet(root / "datasets--ylecun--mnist", data),
}
CIFAR_LAYOUTS: dict[str, Callable[[Path, Halves], None]] = {
    "binary": lambda root, data: cifar_binary(root / "cifar-10-batches-bin", data),
    "pickle": lambda root, data: cifar_pickle(root / "cifar-10-batches-py", data),
    "parquet": lambda root, data: parquet(root / "datasets--uoft-cs--cifar10", data, "img"),
}
