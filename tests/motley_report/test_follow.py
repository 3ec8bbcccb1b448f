"""A page that is written again while runs go on, and loads itself until the end."""

import os

import pytest

from motley.cli import call
from motley.core.errors import ConfigError, StoreError
from motley_report import follow as following
from motley_report.follow import follow
from motley_report.report import report
from tests.motley.results.test_live import Living


def test_a_page_is_written_again_until_the_runs_have_ended(tmp_path, monkeypatch):
    """Each nap between two looks is a moment in which runs go on: nothing; a first run; a second;
    both have ended."""
    runs = {}
    out = tmp_path / "report.html"
    pages = []
    said = []

    def begin(name, seed):
        runs[name] = Living(tmp_path / name, seed=seed)
        runs[name].rounds(12)

    moments = iter(
        [
            lambda: begin("a", 0),
            lambda: begin("b", 1),
            lambda: None,
            lambda: [run.end() for run in runs.values()],
            lambda: None,
        ]
    )

    def nap(seconds):
        assert seconds >= 0.5
        pages.append(out.read_text(encoding="utf-8") if out.exists() else "")
        next(moments)()

    monkeypatch.setattr(following.time, "sleep", nap)
    assert follow(tmp_path, out, every_s=0.5, grace_s=0.0, tell=said.append) == out
    assert pages[0] == ""
    for page in pages[1:4]:
        assert "location.reload()" in page
        assert '<meta http-equiv="refresh" content="5">' in page
    assert (
        "0 of 1 runs finished. The page loads itself again every 5 s until all have ended."
        in pages[1]
    )
    assert "who to ask on digits, seed 0: round 12 of 60, about 2 min left" in pages[1]
    assert "0 of 2 runs finished" in pages[2]
    assert pages[3] == pages[2]
    last = out.read_text(encoding="utf-8")
    assert "reload" not in last
    assert "refresh" not in last
    assert "Runs go on" not in last
    assert [line.rpartition(": ")[2] for line in said] == [
        "0 of 1 runs finished",
        "0 of 2 runs finished",
        "2 of 2 runs finished",
    ]


def test_a_reference_without_a_run_as_yet_is_waited_for(tmp_path, monkeypatch):
    """The page says that it is not there; once it is, differences are against it."""
    runs = [Living(tmp_path / "uniform")]
    out = tmp_path / "report.html"
    pages = []

    def nap(seconds):
        pages.append(out.read_text(encoding="utf-8") if out.exists() else "")
        if len(runs) == 1:
            runs.append(Living(tmp_path / "late", "power_of_choice"))
            runs[0].rounds(3)
            runs[1].rounds(3)
        else:
            for run in runs:
                run.end()

    runs[0].rounds(2)
    monkeypatch.setattr(following.time, "sleep", nap)
    follow(tmp_path, out, against="power_of_choice", every_s=0.5, grace_s=0.0)
    sentence = "against: got &#39;power_of_choice&#39;; expected one of the methods: who to ask"
    assert sentence in pages[0]
    assert sentence not in pages[1]


def test_who_stops_following_has_a_page_that_stands_still(tmp_path, monkeypatch):
    Living(tmp_path / "a").rounds(2)

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(following.time, "sleep", interrupt)
    page = follow(tmp_path, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "not finished" in page
    assert "reload" not in page
    with pytest.raises(StoreError, match="there is no folder"):
        follow(tmp_path / "none", tmp_path / "r.html")


def test_pages_are_as_private_as_the_runs_that_they_show(tmp_path, monkeypatch):
    """A deployment's record is for its owner alone; so is each page about it, also while it goes
    on, wherever the page lies."""
    private = Living(tmp_path / "a")
    private.rounds(2)
    (tmp_path / "a" / "run.json").chmod(0o600)
    modes = []

    def interrupt(_):
        modes.append((tmp_path / "r.html").stat().st_mode & 0o777)
        raise KeyboardInterrupt

    monkeypatch.setattr(following.time, "sleep", interrupt)
    before = os.umask(0o022)
    try:
        modes.append(follow(tmp_path, tmp_path / "r.html").stat().st_mode & 0o777)
        modes.append(report(tmp_path, tmp_path / "r.md").stat().st_mode & 0o777)
        (tmp_path / "a" / "run.json").chmod(0o644)
        modes.append(report(tmp_path, tmp_path / "r.md").stat().st_mode & 0o777)
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600, 0o600, 0o644]


def test_only_a_page_of_html_is_followed(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"^out: got 'r.md'; a report that follows is a page of HTML, e.g. report.html",
    ):
        follow(tmp_path, tmp_path / "r.md")


def test_bad_input_is_one_sentence(tmp_path, capsys):
    for words, said in (
        (["report", str(tmp_path / "none"), "--follow"], "there is no folder "),
        (
            ["report", str(tmp_path), "--follow", "--format", "pdf"],
            "--follow: figures and tables for a paper are of runs that have ended",
        ),
    ):
        assert call(words) == 2
        assert said in capsys.readouterr().err
