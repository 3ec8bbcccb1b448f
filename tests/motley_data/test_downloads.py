import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from motley.core.errors import ConfigError, DataError, StoreError
from motley_data.public_data.archives import unpack
from motley_data.public_data.download import (
    DownloadLimits,
    MissingFileError,
    check_mirror,
    download,
)
from tests.motley_data.serving import Server, serving

CONTENT = bytes(range(256)) * 4000  # a megabyte
MD5 = hashlib.md5(CONTENT).hexdigest()
QUICK = DownloadLimits(stall_s=0.3, tries=3, pause_s=0.01, max_bytes=2_000_000)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as started:
        started.files["/file"] = CONTENT
        yield started


def test_a_whole_file_appears_at_once(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "deep" / "file"
    assert (
        download(
            [f"{server.base}/file"],
            target,
            MD5,
            QUICK,
            lambda have, size: seen.append((have, size)),
        )
        == target
    )
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert os.listdir(target.parent) == ["file"]


@pytest.mark.parametrize("trouble", ["cut", "stall"])
def test_a_cut_or_stalled_transfer_goes_on_where_it_ended(
    server: Server, tmp_path: Path, trouble: str
) -> None:
    server.troubles = [trouble, trouble, "fine"]
    download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert (tmp_path / "file").read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert server.asked == [("/file", 0), ("/file", half), ("/file", half + half // 2)]


def test_a_connection_that_trickles_is_given_up(server: Server, tmp_path: Path) -> None:
    server.troubles = ["trickle", "fine"]
    download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked[0] == ("/file", 0)
    assert 0 < server.asked[1][1] < 400


def test_the_proxy_of_the_environment_is_used(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.base)
    server.files["http://data.example/file"] = CONTENT
    download(["http://data.example/file"], tmp_path / "file", MD5, QUICK)
    assert server.asked == [("http://data.example/file", 0)]


def test_what_arrived_is_kept_for_the_next_call(server: Server, tmp_path: Path) -> None:
    server.troubles = ["cut"] * 3
    with pytest.raises(
        DataError,
        match=r"file could not be downloaded: .*cut after 896000 of 1024000 bytes \(3 attempts\); "
        r"file.part is kept",
    ):
        download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert os.listdir(tmp_path) == ["file.part"]
    download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert server.asked[-1] == ("/file", 896_000)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_that_is_whole_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert server.asked == []
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("part", [b"other bytes", CONTENT + b"more"])
def test_a_part_of_another_file_is_begun_anew(server: Server, tmp_path: Path, part: bytes) -> None:
    (tmp_path / "file.part").write_bytes(part)
    download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert server.asked == [("/file", len(part)), ("/file", 0)]
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_of_it(server: Server, tmp_path: Path) -> None:
    server.troubles = ["cut", "no ranges"]
    download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_corrupt_bytes_are_never_kept(server: Server, tmp_path: Path) -> None:
    server.troubles = ["corrupt"]
    with pytest.raises(
        DataError, match=r"its checksum is [0-9a-f]{12}\.\.\., expected " + MD5[:12]
    ):
        download([f"{server.base}/file"], tmp_path / "file", MD5, QUICK)
    assert os.listdir(tmp_path) == []


def test_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    server.troubles = ["403", "503", "503", "503", "corrupt"]
    urls = [f"{server.base}/{path}" for path in ("missing", "file", "file", "file")]
    server.files["/missing"] = CONTENT  # refused
    download(urls, tmp_path / "file", MD5, QUICK)
    assert [path for path, _ in server.asked] == ["/missing", *["/file"] * 5]


def test_a_file_that_nobody_has(server: Server, tmp_path: Path) -> None:
    with pytest.raises(
        MissingFileError,
        match=r"nothing could not be downloaded: .*/nothing: not there \(HTTP 404\)",
    ):
        download([f"{server.base}/nothing"], tmp_path / "nothing", "", QUICK)
    assert len(server.asked) == 1  # no use in trying again


def test_nobody_answers(tmp_path: Path) -> None:
    with serving() as gone:
        base = gone.base
    with pytest.raises(DataError, match=r"Connection refused.* \(3 attempts\)"):
        download([f"{base}/file"], tmp_path / "file", MD5, QUICK)


def test_a_file_that_is_too_large(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 MB, more than the 0 MB that this file may have"):
        download(
            [f"{server.base}/file"], tmp_path / "file", MD5, DownloadLimits(0.3, 1, 0.01, 1000)
        )
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "no_folder").write_text("a file")
    with pytest.raises(StoreError, match="cannot write"):
        download([f"{server.base}/file"], tmp_path / "no_folder" / "file", MD5, QUICK)


@pytest.mark.parametrize("mirror", ["ftp://host/x", "/a/folder", "file:///etc", "host"])
def test_mirrors_are_addresses_of_http(mirror: str) -> None:
    with pytest.raises(
        ConfigError, match=r"--mirror: got .*; expected an address like https://host/folder"
    ):
        check_mirror(mirror)
    assert check_mirror("http://host/x/") == "http://host/x"


# ----------------------------------------------------------------------------------------- archives


def tar(path: Path, *members: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(name, content)
    return path


ARCHIVES = [(tar, "a.tar.gz"), (zipped, "a.zip")]


@pytest.mark.parametrize(("make", "name"), ARCHIVES)
def test_wanted_files_are_unpacked_side_by_side(tmp_path: Path, make: object, name: str) -> None:
    archive = make(
        tmp_path / name, ("in/one.bin", b"1"), ("in/deep/two.bin", b"22"), ("in/readme.html", b"no")
    )
    (tmp_path / "out").mkdir()
    unpack(archive, tmp_path / "out", ["*.bin"], 100)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "one.bin": b"1",
        "two.bin": b"22",
    }
    assert not (tmp_path / "out.part").exists()


@pytest.mark.parametrize(("make", "name"), ARCHIVES)
@pytest.mark.parametrize(
    "outside", ["../evil.bin", "/evil.bin", "a/../../evil.bin", "..\\evil.bin", "C:evil.bin"]
)
def test_names_that_lead_outside_are_refused(
    tmp_path: Path, make: object, name: str, outside: str
) -> None:
    archive = make(tmp_path / name, ("fine.bin", b"1"), (outside, b"2"))
    with pytest.raises(DataError, match="which leads outside; nothing was unpacked"):
        unpack(archive, tmp_path / "deep" / "out", ["*.bin"], 100)
    assert not list(tmp_path.rglob("*.bin"))


@pytest.mark.parametrize(("make", "name"), ARCHIVES)
def test_bombs_are_refused(tmp_path: Path, make: object, name: str) -> None:
    archive = make(tmp_path / name, ("zeros.bin", bytes(30_000_000)))
    assert archive.stat().st_size < 50_000
    with pytest.raises(DataError, match="unpacks to more than 5 MB; it is not what it should be"):
        unpack(archive, tmp_path / "out", ["*.bin"], 5_000_000)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.part").exists()


def test_a_bomb_beside_what_is_wanted(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("zeros.html", bytes(30_000_000)), ("one.bin", b"1"))
    with pytest.raises(DataError, match="unpacks to more than 5 MB"):
        unpack(archive, tmp_path / "out", ["*.bin"], 5_000_000)


def test_links_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        info = tarfile.TarInfo("link.bin")
        info.type = tarfile.SYMTYPE
        info.linkname = "/etc/passwd"
        file.addfile(info)
    with pytest.raises(DataError, match=r"holds a link or device, 'link.bin'"):
        unpack(tmp_path / "a.tar", tmp_path / "out", ["*.bin"], 100)


@pytest.mark.parametrize(("make", "name"), ARCHIVES)
def test_damaged_archives_leave_nothing(tmp_path: Path, make: object, name: str) -> None:
    archive = make(tmp_path / name, ("one.bin", os.urandom(100_000)))
    archive.write_bytes(archive.read_bytes()[:50_000])
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(archive, tmp_path / "out", ["*.bin"], 1_000_000)
    make(archive, ("other.txt", b"1"))
    with pytest.raises(DataError, match=r"holds none of \*.bin"):
        unpack(archive, tmp_path / "out", ["*.bin"], 1_000_000)
    make(archive, ("a/one.bin", b"1"), ("b/one.bin", b"2"))
    with pytest.raises(DataError, match=r"holds two files one\.bin"):
        unpack(archive, tmp_path / "out", ["*.bin"], 1_000_000)
    assert not (tmp_path / "out").exists()
