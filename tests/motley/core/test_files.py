"""Files are replaced whole and never through a link; a run on files that have changed is another
run."""

import os
from pathlib import Path

import numpy as np
import pytest

from motley.core.errors import DataError
from motley.core.files import (
    check_file,
    files_digest,
    is_file,
    is_folder,
    no_file,
    replacing,
    user_path,
    where_paths_start,
)
from motley.experiments.config import Experiment


def test_a_digest_is_of_names_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "a" / "x.txt"
    file.parent.mkdir()
    file.write_text("one")
    alone = files_digest(file)
    below = files_digest(tmp_path)
    assert len({alone, below, ""}) == 3
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "x.txt").write_text("one")
    assert files_digest(tmp_path / "copy") == files_digest(tmp_path / "a")
    file.write_text("two!")
    assert files_digest(file) != alone
    file.rename(tmp_path / "a" / "y.txt")
    assert files_digest(tmp_path / "a") != files_digest(tmp_path / "copy")
    assert files_digest(tmp_path / "none") == ""


@pytest.mark.parametrize("name", ["tabular", "text", "image"])
def test_the_run_id_covers_the_files_of_the_task(name: str, tmp_path: Path) -> None:
    path = tmp_path / {"tabular": "t.csv", "text": "texts", "image": "t.npz"}[name]
    file = path / "ann.txt" if name == "text" else path
    file.parent.mkdir(exist_ok=True)

    def run_id(value: int) -> str:
        if name == "image":
            np.savez(file, x=np.full((4, 1, 2, 2), value, np.uint8), y=np.arange(4))
        else:
            file.write_text(f"a,label\n{value},0\n" * value)
        return Experiment(
            task={"name": name, "data": str(path)}, population=2, cohort=1, stop={"rounds": 1}
        ).run_id()

    assert run_id(1) != run_id(22)
    first = run_id(1)
    assert first == run_id(1)


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("device", "step_s\n1\n2\n", "step_s\n1\n3\n"),
        ("network", "up_mbps\n1\n2\n", "up_mbps\n1\n3\n"),
        (
            "availability",
            "trace,active_s,inactive_s\n0,0,50\n",
            "trace,active_s,inactive_s\n0,0,60\n",
        ),
    ],
)
def test_a_trace_that_has_changed_is_another_run(
    key: str, before: str, after: str, tmp_path: Path
) -> None:
    file = tmp_path / "trace.csv"
    keys = {"task": "quadratic", "population": 4, "cohort": 2, "stop": {"rounds": 1}}
    ids = []
    for text in (before, after, before):
        file.write_text(text)
        ids.append(Experiment(**keys, **{key: {"name": "trace", "file": str(file)}}).run_id())
    assert ids[0] == ids[2] != ids[1]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("before")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"ha", None])  # type: ignore[list-item]
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "before"
    with replacing(path) as file:
        file.write(b"after")
        file.flush()
        assert path.read_text() == "before"
    assert path.read_text() == "after"


def test_a_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    """A stranger's folder may have a link at the name under which a file is written first."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "run.json.new").symlink_to(precious)
    with replacing(tmp_path / "run.json") as file:
        file.write(b"{}")
    assert precious.read_text() == "mine"
    assert not (tmp_path / "run.json").is_symlink()
    assert (tmp_path / "run.json").read_text() == "{}"


def test_a_file_has_the_permissions_that_the_user_gives_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "a") as file:
            file.write(b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640  # 0666 less 0027


def test_what_is_no_file_is_told_without_opening_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    said = {
        name: no_file(tmp_path / name)
        for name in ("file", "link", "gone", "circle", "pipe", "none", "file/x", "a" * 300, "\0")
    }
    assert said == {
        "file": None,
        "link": None,
        "gone": "is a link to a file that is not there",
        "circle": "cannot be read (Too many levels of symbolic links)",
        "pipe": "is a named pipe",
        "none": "does not exist",
        "file/x": "does not exist",
        "a" * 300: "cannot be read (File name too long)",
        "\0": "cannot be read (embedded null byte)",
    }
    assert no_file(tmp_path) == "is a folder"
    assert no_file(Path("/dev/zero")) == "is a device or a socket"
    assert (is_file(tmp_path / "link"), is_folder(tmp_path), is_folder(tmp_path / ("a" * 300))) == (
        True,
        True,
        False,
    )
    with pytest.raises(DataError, match="pipe is a named pipe; expected a file of data"):
        check_file(tmp_path / "pipe")
    assert files_digest(tmp_path / "pipe") == ""
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x")
    assert files_digest(tmp_path)


def test_a_path_has_the_home_folder_as_in_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/runs") == tmp_path / "runs"
    assert user_path(Path("~")) == tmp_path
    assert user_path("a/~") == Path("a/~")
    assert user_path("~nobody-of-this-name/x") == Path("~nobody-of-this-name/x")
    assert str(Path.cwd()) in where_paths_start("~nobody-of-this-name/x")
    assert where_paths_start("~/x") == ""
