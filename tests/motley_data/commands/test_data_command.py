import dataclasses
import gzip
import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from motley.cli import call
from motley_data.datasets import load_dataset
from motley_data.public_data.facts import PUBLIC, Variant
from tests.motley_data import layouts
from tests.motley_data.layouts import TEST, TRAIN, Halves
from tests.motley_data.serving import Server, serving

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return layouts.bare_machine(tmp_path, monkeypatch)


@pytest.fixture
def server(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("motley_data.public_data.download.time.sleep", lambda _: None)
    with serving() as started:
        yield started


def mnist_on(server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch) -> Halves:
    """The server has the four original files of a small MNIST."""
    data = layouts.halves()
    layouts.idx(empty / "origin", data, ".gz")
    files = {path.name: path.read_bytes() for path in (empty / "origin").iterdir()}
    server.files = {f"/{name}": content for name, content in files.items()}
    downloads = tuple(
        dataclasses.replace(file, checksum=hashlib.md5(files[file.name]).hexdigest())
        for file in PUBLIC["mnist"].downloads
    )
    layouts.let_it_be(monkeypatch, "mnist", data, downloads=downloads)
    return data


def test_the_files_are_got_verified_and_found(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    data = mnist_on(server, empty, monkeypatch)
    server.troubles = ["cut", "fine", "stall"]
    assert call(["data", "where", "mnist"]) == 2
    assert "get it with: motley data get mnist (12 MB)" in capsys.readouterr().err
    assert call(["data", "get", "MNIST", "--mirror", server.base, "--stall", "0.3"]) == 0
    said = capsys.readouterr()
    assert (
        f"70 images; as expected\n    variant mnist, digest {layouts.canonical_digest(data)}"
        in said.out
    )
    assert "train-images-idx3-ubyte.gz: 0.0 MB" in said.err
    assert len(os.listdir(empty / "MNIST/raw")) == 4  # nothing half beside them
    assert len(load_dataset("mnist").x) == TRAIN + TEST
    assert call(["data", "where", "mnist"]) == 0
    assert f"{empty}/MNIST/raw: idx, MNIST" in capsys.readouterr().out
    before = len(server.asked)
    assert call(["data", "get", "mnist", "--mirror", server.base]) == 0
    assert len(server.asked) == before  # it was there


def test_what_is_corrupt_at_the_server_is_not_kept(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    mnist_on(server, empty, monkeypatch)
    server.troubles = ["corrupt"]
    assert call(["data", "get", "mnist", "--mirror", server.base]) == 2
    assert "train-images-idx3-ubyte.gz cannot be read" in capsys.readouterr().err
    assert os.listdir(empty / "MNIST/raw") == []
    assert call(["data", "get", "mnist", "--mirror", server.base]) == 0


def test_a_file_of_the_right_name_with_other_images_is_not_kept(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A mirror may compress files anew; what they hold must be the data set's."""
    mnist_on(server, empty, monkeypatch)
    good = server.files["/train-images-idx3-ubyte.gz"]
    raw = gzip.decompress(good)
    server.files["/train-images-idx3-ubyte.gz"] = gzip.compress(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert call(["data", "get", "mnist", "--mirror", server.base]) == 2
    assert (
        "is corrupt or no original: the digest of its decoded images is" in capsys.readouterr().err
    )
    assert os.listdir(empty / "MNIST/raw") == []
    server.files["/train-images-idx3-ubyte.gz"] = gzip.compress(raw, 1)
    assert call(["data", "get", "mnist", "--mirror", server.base]) == 0


def test_a_damaged_copy_is_replaced(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    mnist_on(server, empty, monkeypatch)
    assert call(["data", "get", "mnist", "--mirror", server.base, "--to", "there"]) == 0
    images = empty / "there/MNIST/raw/t10k-images-idx3-ubyte.gz"
    whole = images.read_bytes()
    images.write_bytes(whole[:100])
    assert call(["data", "verify", "mnist", "--data", "there"]) == 2
    assert "t10k-images-idx3-ubyte.gz cannot be read" in capsys.readouterr().err
    before = len(server.asked)
    assert call(["data", "get", "mnist", "--mirror", server.base, "--to", "there"]) == 0
    assert images.read_bytes() == whole
    assert len(server.asked) == before + 1  # the other three are as they should be


def test_an_archive_is_unpacked_and_removed(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = layouts.halves((32, 32, 3))
    layouts.cifar_binary(empty / "origin/cifar-10-batches-bin", data)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as file:
        file.add(empty / "origin/cifar-10-batches-bin", "cifar-10-batches-bin")
    server.files["/cifar-10-binary.tar.gz"] = raw.getvalue()
    one = dataclasses.replace(
        PUBLIC["cifar10"].downloads[0], checksum=hashlib.md5(raw.getvalue()).hexdigest()
    )
    layouts.let_it_be(monkeypatch, "cifar10", data, downloads=(one,))
    assert call(["data", "get", "cifar10", "--mirror", server.base, "--to", "new"]) == 0
    assert sorted(os.listdir(empty / "new")) == ["cifar-10-batches-bin"]
    assert len(load_dataset("cifar10", empty / "new").x) == TRAIN + TEST


def test_one_zip_has_all_of_emnist(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = layouts.halves()
    layouts.idx(empty / "origin/gzip", data, ".gz", "emnist-digits-")
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file:
        for path in (empty / "origin/gzip").iterdir():
            file.write(path, f"gzip/{path.name}")
    server.files["/gzip.zip"] = raw.getvalue()
    known = PUBLIC["emnist_digits"]
    one = dataclasses.replace(known.downloads[0], checksum=hashlib.md5(raw.getvalue()).hexdigest())
    variants = {"emnist_digits": Variant("EMNIST, digits", train=TRAIN, test=TEST)}
    monkeypatch.setitem(
        PUBLIC, "emnist_digits", dataclasses.replace(known, downloads=(one,), variants=variants)
    )
    assert call(["data", "get", "emnist-digits", "--mirror", server.base]) == 0
    assert len(os.listdir(empty / "EMNIST/raw")) == 4


def test_a_mirror_may_have_the_pack_instead(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Its sha256 is checked, here against that of other bytes."""
    server.files["/shakespeare.npz"] = b"no pack"
    assert call(["data", "get", "shakespeare", "--mirror", server.base]) == 2
    assert [path for path, _ in server.asked] == ["/shakespeare.csv", "/shakespeare.npz"]
    assert "shakespeare.npz could not be downloaded: " in capsys.readouterr().err
    assert not list(empty.rglob("shakespeare.npz*"))


def test_a_mirror_that_has_nothing(server: Server, capsys: Capture) -> None:
    assert call(["data", "get", "mnist", "--mirror", server.base]) == 2
    assert "mnist.npz could not be downloaded: " in capsys.readouterr().err
    assert call(["data", "get", "emnist", "--mirror", server.base]) == 2
    assert "gzip.zip could not be downloaded: " in capsys.readouterr().err


def test_the_list(empty: Path, capsys: Capture) -> None:
    assert call(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in PUBLIC)
    assert "170 MB" in said


@pytest.mark.parametrize("command", ["where", "get", "verify"])
def test_a_name_that_is_none(command: str, capsys: Capture) -> None:
    assert call(["data", command, "librispeech"]) == 2
    assert (
        "NAME: got 'librispeech'; expected one of: mnist, fashion_mnist" in capsys.readouterr().err
    )


def test_a_run_without_its_data_names_the_command(empty: Path, capsys: Capture) -> None:
    (empty / "x.toml").write_text(
        'stop = { rounds = 1 }\npopulation = 4\ncohort = 2\ntask = { name = "image", data = '
        '"cifar10" }\n'
    )
    assert call(["run", "x.toml"]) == 2
    assert "get it with: motley data get cifar10 (170 MB)" in capsys.readouterr().err
    assert call(["compare", "x.toml", "--seeds", "0,1"]) == 2
    assert "get it with: motley data get cifar10 (170 MB)" in capsys.readouterr().err


def test_kept_divisions_are_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    folder = tmp_path / "cache" / "divided"
    monkeypatch.setenv("MOTLEY_CACHE", str(tmp_path / "cache"))
    assert call(["data", "clear"]) == 0
    none = f"divisions of your own data: there is none in {folder}"
    assert capsys.readouterr().out.replace("\n", "") == none
    folder.mkdir(parents=True)
    for name in ("0123.rows", "4567.new"):
        (folder / name).write_bytes(b"0" * 1_500_000)
    for file in (folder / "notes.txt", folder.parent / "mnist.npz"):
        file.write_text("of the user's")
    assert call(["data", "clear"]) == 0
    removed = f"divisions of your own data: removed 2 (3 MB) from {folder}"
    assert capsys.readouterr().out.replace("\n", "") == removed
    left = {path.name for path in (tmp_path / "cache").rglob("*")}
    assert left == {"divided", "notes.txt", "mnist.npz"}


def test_a_disk_that_removes_nothing_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("MOTLEY_CACHE", str(tmp_path))
    (tmp_path / "divided" / "0123.rows").mkdir(parents=True)
    assert call(["data", "clear"]) == 2
    assert f"cannot write {tmp_path / 'divided'}" in capsys.readouterr().err.replace("\n", "")
