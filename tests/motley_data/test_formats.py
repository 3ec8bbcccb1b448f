import gzip
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from motley.core.errors import DataError
from motley_data.formats import parquet_images, read

RNG = np.random.default_rng(0)


def idx(path: Path, data: np.ndarray) -> None:
    raw = (
        struct.pack(f">I{data.ndim}I", 0x800 + data.ndim, *data.shape)
        + data.astype(np.uint8).tobytes()
    )
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def mnist(folder: Path, suffix: str = "") -> tuple[np.ndarray, np.ndarray]:
    x = RNG.integers(0, 256, (7, 5, 4))
    y = np.array([0, 1, 2, 0, 1, 2, 2])
    for name, part in (("train", slice(0, 5)), ("t10k", slice(5, 7))):
        idx(folder / f"{name}-images-idx3-ubyte{suffix}", x[part])
        idx(folder / f"{name}-labels-idx1-ubyte{suffix}", y[part])
    return x, y


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx(tmp_path: Path, suffix: str) -> None:
    x, y = mnist(tmp_path, suffix)
    pool = read(tmp_path)
    assert np.array_equal(pool.x.numpy(), x[:, None])
    assert pool.y.tolist() == y.tolist()
    assert pool.test.tolist() == [False] * 5 + [True] * 2
    assert pool.classes == 3


def test_idx_troubles(tmp_path: Path) -> None:
    mnist(tmp_path)
    images = tmp_path / "train-images-idx3-ubyte"
    whole = images.read_bytes()
    images.write_bytes(whole[:-3])
    with pytest.raises(
        DataError,
        match=r"train-images-idx3-ubyte is truncated or damaged: 113 bytes for shape \[5, 5, 4\]",
    ):
        read(tmp_path)
    images.write_bytes(b"abcdefgh")
    with pytest.raises(DataError, match="not an IDX file of images"):
        read(tmp_path)
    images.write_bytes(whole[:8] + (0).to_bytes(4, "big") + whole[12:16])
    with pytest.raises(DataError, match="holds images of 0 x 4 pixels; expected at least one"):
        read(tmp_path)
    images.write_bytes(whole)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="2 IDX files of images and 1 of labels"):
        read(tmp_path)


def test_idx_gzip_cut_short(tmp_path: Path) -> None:
    mnist(tmp_path, ".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"cannot be read .*truncated"):
        read(tmp_path)


def test_cifar10_binary(tmp_path: Path) -> None:
    rows = np.concatenate(
        [RNG.integers(0, 10, (6, 1)), RNG.integers(0, 256, (6, 3072))], axis=1
    ).astype(np.uint8)
    rows[:2].tofile(tmp_path / "data_batch_1.bin")
    rows[2:4].tofile(tmp_path / "data_batch_2.bin")
    rows[4:].tofile(tmp_path / "test_batch.bin")
    pool = read(tmp_path)
    assert pool.y.tolist() == rows[:, 0].tolist()
    assert np.array_equal(pool.x.numpy(), rows[:, 1:].reshape(6, 3, 32, 32))
    assert pool.test.tolist() == [False] * 4 + [True] * 2
    assert pool.classes == 10
    rows[0, 0] = 77
    rows[:2].tofile(tmp_path / "data_batch_1.bin")
    with pytest.raises(DataError, match=r"labels out of range, from \d to 77; expected 0 .. 9"):
        read(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="has 100 bytes, not a multiple of 3073"):
        read(tmp_path)


def test_cifar100_binary_and_the_pickled_form(tmp_path: Path) -> None:
    rows = np.zeros((3, 3074), np.uint8)
    rows[:, 0], rows[:, 1] = 19, [99, 0, 5]
    rows[:2].tofile(tmp_path / "train.bin")
    with pytest.raises(DataError, match=r"has no test.bin"):
        read(tmp_path)
    rows[2:].tofile(tmp_path / "test.bin")
    pool = read(tmp_path)
    assert (pool.y.tolist(), pool.classes) == ([99, 0, 5], 100)
    other = tmp_path / "py"
    other.mkdir()
    (other / "data_batch_1").write_bytes(b"\x80\x04")
    with pytest.raises(DataError, match="has no test_batch; fetch it again"):
        read(other)


def leaf(path: Path, users: dict[str, int], start: int = 0) -> None:
    data = {
        u: {"x": RNG.random((n, 16)).tolist(), "y": [(start + i) % 3 for i in range(n)]}
        for u, n in users.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"users": list(users), "num_samples": list(users.values()), "user_data": data})
    )


def test_leaf(tmp_path: Path) -> None:
    leaf(tmp_path / "train" / "a.json", {"f1": 3, "f0": 2})
    leaf(tmp_path / "train" / "b.json", {"f2": 4})
    leaf(tmp_path / "test" / "a.json", {"f0": 1, "f1": 1, "f2": 1})
    pool = read(tmp_path)
    assert tuple(pool.x.shape) == (12, 1, 4, 4)
    assert pool.groups is not None
    assert pool.groups.tolist() == [1, 1, 1, 0, 0, 2, 2, 2, 2, 0, 1, 2]
    assert pool.test.tolist() == [False] * 9 + [True] * 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"users": [', "not readable JSON"),
        ("[]", "no table 'user_data'"),
        ('{"user_data": {"u": {"x": [[1, 2]]}}}', "user 'u' has no x and y"),
        (
            '{"user_data": {"u": {"x": [[1, 2]], "y": [0, 1]}}}',
            "user 'u' has 1 samples and 2 labels",
        ),
        (
            '{"user_data": {"u": {"x": [[1, 2], [1]], "y": [0, 1]}}}',
            "user 'u' have different lengths",
        ),
        ('{"user_data": {"u": {"x": ["to be"], "y": [0]}}}', "text is not read"),
        ('{"user_data": {"u": {"x": [[NaN, 1]], "y": [0]}}}', "NaN or infinity"),
        ('{"user_data": {"u": {"x": [[1, 1]], "y": [-1]}}}', "labels out of range, from -1 to -1"),
        ('{"user_data": {"u": {"x": 3, "y": 4}}}', "x and y of user 'u' are no lists"),
        ('{"user_data": {"u": {"x": [[1, 1]], "y": [[0]]}}}', "user 'u' has labels that are lists"),
        (
            '{"user_data": {"u": {"x": [1], "y": [0]}}}',
            "samples of user 'u' are single numbers; expected a list of numbers for each",
        ),
        ("[" * 100_000, "not readable JSON"),
        ('{"user_data": {"u": {"x": [[' + "9" * 5000 + "]]}}}", "not readable JSON"),
        ('{"user_data": {}}', "hold no samples"),
    ],
)
def test_leaf_troubles(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "all.json").write_text(text)
    with pytest.raises(DataError, match=words):
        read(tmp_path)


def picture(path: Path, value: int, size: tuple[int, int] = (6, 5), mode: str = "L") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value, 0, 0)).save(path)


def test_pictures_by_class(tmp_path: Path) -> None:
    for value, name in enumerate(("dog/1.png", "cat/1.png", "cat/2.png")):
        picture(tmp_path / name, value)
    pool = read(tmp_path)
    assert pool.names == ("cat", "dog")
    assert pool.y.tolist() == [0, 0, 1]
    assert tuple(pool.x.shape) == (3, 1, 5, 6)
    assert pool.x[:, 0, 0, 0].tolist() == [1, 2, 0]
    assert pool.groups is None


def test_pictures_by_client_and_class_in_colour(tmp_path: Path) -> None:
    for value, name in enumerate(("ann/dog/1.png", "ann/cat/1.png", "bob/cat/1.png")):
        picture(tmp_path / name, value, mode="RGB")
    pool = read(tmp_path)
    assert pool.groups is not None
    assert list(zip(pool.groups.tolist(), pool.y.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]
    assert pool.x.shape[1] == 3


def test_pictures_in_halves_as_tinyimagenet_has_them(tmp_path: Path) -> None:
    for name in (
        "train/n1/images/a.png",
        "train/n2/images/b.png",
        "val/images/v0.png",
        "val/images/v1.png",
        "test/images/t0.png",  # whose class nobody has: it is no class called images
    ):
        picture(tmp_path / name, 9)
    (tmp_path / "val" / "val_annotations.txt").write_text(
        "v0.png\tn2\t0\t0\t1\t1\nv1.png\tn1\t0\t0\t1\t1\n"
    )
    with pytest.warns(UserWarning, match=r"1 file not read: test.images.t0.png"):
        pool = read(tmp_path)
    assert pool.classes == 2
    assert pool.y.tolist() == [0, 1, 1, 0]
    assert pool.test.tolist() == [False, False, True, True]


def test_picture_troubles(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 1)
    picture(tmp_path / "b" / "1.png", 1, size=(9, 5))
    with pytest.raises(DataError, match=r"1.png is 9 x 5 but the first picture is 6 x 5; resize"):
        read(tmp_path)
    (tmp_path / "b" / "1.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="cannot be decoded"):
        read(tmp_path)


def test_pictures_of_16_bits_keep_their_range(tmp_path: Path) -> None:
    """0, 300 and 65535 are three shades; as bytes the last two would be one."""
    for value in (0, 300, 65535):
        path = tmp_path / "a" / f"{value:05}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 4), value, np.uint16)).save(path)
    pool = read(tmp_path)
    assert pool.x.dtype == torch.float32
    assert pool.x[:, 0, 0, 0].tolist() == pytest.approx([0.0, 300 / 65535, 1.0])
    assert pool.notes["pixels"] == "16 bits, values 0 to 65535, read as shares of 65535"
    assert not pool.measured


def png_of_16_bits(pixels: NDArray[np.uint16]) -> bytes:
    """Return a PNG of ``[H, W, C]`` in colour, which Pillow does not write."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def tiff_of_16_bits(pixels: NDArray[np.uint16]) -> bytes:
    """Return a TIFF of ``[H, W, 3]``."""
    height, width, _ = pixels.shape
    bits = 8 + 2 + 9 * 12 + 4
    size = pixels.size * 2
    short = ((256, width), (257, height), (259, 1), (262, 2), (277, 3), (278, height))
    tags = {tag: (3, 1, value) for tag, value in short}
    tags |= {258: (3, 3, bits), 273: (4, 1, bits + 6), 279: (4, 1, size)}
    entries = b"".join(struct.pack("<HHII", tag, *tags[tag]) for tag in sorted(tags))
    end = struct.pack("<I", 0) + struct.pack("<HHH", 16, 16, 16)
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + entries + end + pixels.astype("<u2").tobytes()


def ppm_of_16_bits(pixels: NDArray[np.uint16]) -> bytes:
    height, width, _ = pixels.shape
    return f"P6 {width} {height} 65535\n".encode() + pixels.astype(">u2").tobytes()


@pytest.mark.parametrize(
    ("name", "channels", "write"),
    [
        ("1.png", 3, png_of_16_bits),
        ("1.png", 4, png_of_16_bits),
        ("1.png", 2, png_of_16_bits),
        ("1.tif", 3, tiff_of_16_bits),
        ("1.ppm", 3, ppm_of_16_bits),
    ],
)
def test_16_bits_in_colour_are_refused(
    tmp_path: Path, name: str, channels: int, write: Callable[[NDArray[np.uint16]], bytes]
) -> None:
    """300 and 330 are one shade of 8 bits, which is what Pillow gives."""
    pixels = np.full((2, 3, channels), 300, np.uint16)
    pixels[0] = 330
    path = tmp_path / "a" / name
    path.parent.mkdir()
    path.write_bytes(write(pixels))
    with Image.open(path) as opened:
        assert len(np.unique(np.asarray(opened)[..., 0])) == 1
    with pytest.raises(DataError, match=rf"{name} has 16 bits for each channel, of which 8 would"):
        read(tmp_path)


def test_parquet_files_with_pictures_of_16_bits_are_refused(tmp_path: Path) -> None:
    encoded = io.BytesIO()
    Image.fromarray(np.full((2, 2), 999, np.uint16)).save(encoded, "PNG")
    colour = png_of_16_bits(np.full((2, 2, 3), 999, np.uint16))
    messages = {
        encoded.getvalue(): "image 0 has pixels of more than 8 bits; expected 8",
        colour: "image 0 has 16 bits for each channel",
    }
    for data, message in messages.items():
        with pytest.raises(DataError, match=message):
            parquet_images._decoded([{"bytes": data}], tmp_path)


def floating(path: Path, *values: float) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.array([values], np.float32)).save(path)


def test_pictures_of_floating_point_numbers_keep_their_range(tmp_path: Path) -> None:
    """-2 to 6: 0 is a quarter of the way."""
    floating(tmp_path / "a" / "1.tif", 0.25, 0.75)
    assert read(tmp_path).x.flatten().tolist() == [0.25, 0.75]
    floating(tmp_path / "a" / "1.tif", -2.0, 0.0)
    floating(tmp_path / "a" / "2.tif", 6.0, 2.0)
    pool = read(tmp_path)
    assert pool.x.flatten().tolist() == [0.0, 0.25, 1.0, 0.5]
    assert pool.notes["pixels"] == "values -2 to 6, read as shares of this range"
    assert "the range of the pixels is measured" in pool.measured
    floating(tmp_path / "a" / "2.tif", np.inf, 2.0)
    with pytest.raises(DataError, match="NaN or infinity among the pixels"):
        read(tmp_path)


def test_pictures_of_other_depths_are_refused_and_other_colours_told(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 9)
    picture(tmp_path / "a" / "2.png", 9, mode="RGB")
    assert read(tmp_path).notes["pictures"] == "1 of 2 were converted, the first is grey"
    Image.fromarray(np.full((5, 6), 999, np.uint16)).save(tmp_path / "a" / "3.png")
    with pytest.raises(
        DataError, match=r"3\.png has pixels of 16 bits, the first picture of 8 bits; save all"
    ):
        read(tmp_path)


def test_what_is_no_picture_is_named_and_hidden_files_are_not(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", 9)
    for name in ("a/._1.png", ".DS_Store", "a/scan.dcm"):
        (tmp_path / name).write_bytes(b"")
    with pytest.warns(UserWarning, match=r"1 file not read: a/scan\.dcm"):
        pool = read(tmp_path)
    assert len(pool.x) == 1


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_channels_that_come_last_are_put_first(tmp_path: Path, channels: int) -> None:
    x = np.arange(2 * 6 * 5 * channels, dtype=np.uint8).reshape(2, 6, 5, channels)
    np.savez(tmp_path / "x.npz", x=x, y=[0, 1])
    assert np.array_equal(read(tmp_path / "x.npz").x.numpy(), x.transpose(0, 3, 1, 2))
    np.savez(tmp_path / "x.npz", x=x.transpose(0, 3, 1, 2), y=[0, 1])
    assert np.array_equal(read(tmp_path / "x.npz").x.numpy(), x.transpose(0, 3, 1, 2))


def test_arrays_of_16_bits_are_shares_of_white(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([[[0, 13107]], [[65535, 0]]], np.uint16), y=[0, 1])
    assert read(tmp_path / "x.npz").x.flatten().tolist() == pytest.approx([0, 0.2, 1, 0])


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(
        path,
        x=RNG.integers(0, 256, (4, 8, 8, 3)).astype(np.uint8),
        y=[0, 1, 1, 2],
        client=["b", "a", "b", "a"],
    )
    pool = read(path)
    assert tuple(pool.x.shape) == (4, 3, 8, 8)
    assert pool.groups is not None
    assert pool.groups.tolist() == [1, 0, 1, 0]
    np.savez(
        path, x_train=np.zeros((2, 5, 5)), y_train=[0, 1], x_test=np.ones((1, 5, 5)), y_test=[1]
    )
    pool = read(path)
    assert tuple(pool.x.shape) == (3, 1, 5, 5)
    assert pool.test.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a": np.zeros(3)}, "holds a; expected arrays x and y"),
        (
            {"x": np.array([[1.0, np.nan], [0, 1]]), "y": [0, 1]},
            r"row 1 of .*d.npz: NaN or infinity among the features \(in 1 of 2 samples\); fill or "
            r"drop them",
        ),
        (
            {"x": np.zeros((2, 2)), "y": [0, -3]},
            r"labels out of range, from -3 to 0; expected 0 .. C - 1",
        ),
        (
            {"x": np.zeros((2, 2)), "y": [0, 5], "classes": ["a", "b"]},
            r"labels out of range, from 0 to 5; expected 0 .. 1",
        ),
        ({"x": np.zeros((2, 2)), "y": [0, 10**9]}, "labels out of range"),
        (
            {"x": np.zeros((2, 2)), "y": [0, 0.5]},
            r"row 2 of .*d.npz: the label 0.5 is no whole number",
        ),
        (
            {"x": np.zeros((2, 2)), "y": [0, np.nan]},
            r"row 2 of .*d.npz: the label is NaN or infinite \(in 1 of 2 rows\)",
        ),
        (
            {"x": np.zeros((2, 2)), "y": np.array([0, 2**64 - 1], np.uint64)},
            "labels out of range, from 0 to 18446744073709551615",
        ),
        (
            {"x": np.zeros((2, 2)), "y": [0, 1], "client": [0.0, np.nan]},
            "some client ids are missing",
        ),
        ({"x": np.zeros((2, 2)), "y": [0]}, r"labels of shape \[1\] for 2 samples"),
        ({"x": np.zeros((0, 2)), "y": []}, "there are no samples"),
        ({"x": np.array(["a", "b"]), "y": [0, 1]}, "expected numbers"),
        (
            {"x": np.zeros((2, 2)), "y": [0, 1], "client": [1]},
            r"client ids of shape \[1\] for 2 samples",
        ),
        (
            {"x": np.zeros((2, 2)), "y": [0, 1], "test": [True]},
            r"test flags of shape \[1\] for 2 samples",
        ),
    ],
)
def test_npz_troubles(tmp_path: Path, content: dict[str, np.ndarray], words: str) -> None:
    np.savez(tmp_path / "d.npz", **content)
    with pytest.raises(DataError, match=words):
        read(tmp_path / "d.npz")


def test_npz_that_promises_more_than_it_has(tmp_path: Path) -> None:
    """NumPy makes room for all that a header promises: 8 TB here, of a file of 600 bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"shape": (10**12,), "fortran_order": False, "descr": "<f8"}
    )
    np.savez(tmp_path / "x.npz", y=np.arange(3))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as packed:
        packed.writestr("x.npy", header.getvalue())
    with pytest.raises(DataError, match=r"x\.npy promises 8,000,000,000,000 bytes and has 128"):
        read(tmp_path / "x.npz")


def test_npz_of_small_sizes_that_unpacks_to_more(tmp_path: Path) -> None:
    """The size in the table of contents is a lie; no more than this is unpacked, and the rest is
    missed."""
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(2**20), y=np.arange(3))
    raw = bytearray((tmp_path / "x.npz").read_bytes())
    # uncompressed size of the first file
    struct.pack_into("<I", raw, raw.find(b"PK\x01\x02") + 24, 1000)
    (tmp_path / "x.npz").write_bytes(raw)
    with pytest.raises(DataError, match=r"x\.npz cannot be read as \.npz"):
        read(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("pipe", "is a named pipe"),
        ("folder", "is a folder"),
        ("link", "is a link to a file that is not there"),
    ],
)
@pytest.mark.parametrize(
    "name", ["x.npz", "train-images-idx3-ubyte", "all.json", "data_batch_1.bin", "dog/1.png"]
)
def test_what_is_no_file_is_refused_and_not_waited_for(
    tmp_path: Path, name: str, made: str, words: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    beside = {
        "train-images-idx3-ubyte": "train-labels-idx1-ubyte",
        "data_batch_1.bin": "test_batch.bin",
    }
    (tmp_path / beside.get(name, "nothing")).write_bytes(b"\0" * 3073)
    {
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to("nowhere"),
    }[made]()
    with pytest.raises(DataError) as caught:
        read(path if name == "x.npz" else tmp_path)
    # folders of data are read, whatever they are called
    also_layouts = made == "folder" and name in ("x.npz", "dog/1.png")
    assert words in str(caught.value) or also_layouts


def test_a_list_of_pictures_without_classes(tmp_path: Path) -> None:
    picture(tmp_path / "train/cat/1.png", 1)
    picture(tmp_path / "val/images/1.png", 1)
    (tmp_path / "val" / "val_annotations.txt").write_text("1.png cat\n")
    with pytest.raises(
        DataError,
        match=r"val_annotations.txt has the line '1.png cat'; expected a picture and its class",
    ):
        read(tmp_path)


def test_paths_of_no_known_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "no")
    with pytest.raises(DataError, match="holds no known format"):
        read(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(DataError, match=r"a.txt is of no known format"):
        read(tmp_path / "a.txt")
