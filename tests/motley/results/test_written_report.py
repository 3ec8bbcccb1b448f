"""The report at the end of runs: written by the distribution that makes reports, or missed in one
sentence."""

import os
import subprocess
import sys
from importlib import metadata

import pytest

from motley.core import extensions
from motley.results.written_report import load_report, write_report
from tests.motley.results import fake
from tests.places import PYTHONPATH


def _put(monkeypatch, *points):
    named = metadata.EntryPoints(metadata.EntryPoint(*point) for point in points)
    monkeypatch.setattr(extensions, "_entry_points", lambda: named)


def test_what_an_entry_point_names_writes_it(monkeypatch, tmp_path):
    _put(monkeypatch, ("report", f"{__name__}:_page", "motley.function"))
    runs = [fake.run()]
    written = write_report(runs, tmp_path / "r.html", 0.5, plain_intervals=True)
    assert written == tmp_path / "r.html"
    assert written.read_text() == f"{runs[0].name} 0.5 True"


@pytest.mark.parametrize("text", ["<html><title>My results</title></html>", "mine"])
def test_a_page_of_the_users_own_stays(monkeypatch, tmp_path, text):
    """``motley compare --out .`` beside a page of that name."""
    _put(monkeypatch, ("report", f"{__name__}:_page", "motley.function"))
    page = tmp_path / "report.html"
    page.write_text(text)
    with pytest.warns(UserWarning, match=r"report\.html is no report of Motley's, or cannot"):
        assert write_report([fake.run()], page) is None
    assert page.read_text() == text


def test_a_page_that_may_not_be_read_stays(monkeypatch, tmp_path):
    _put(monkeypatch, ("report", f"{__name__}:_page", "motley.function"))
    page = tmp_path / "report.html"
    page.write_text("another user's")

    def refuse(path, *args):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(type(page), "open", refuse)
        with pytest.warns(UserWarning, match=r"or cannot be read, and stays as it is"):
            assert write_report([fake.run()], page) is None
    assert page.read_text() == "another user's"


def test_an_earlier_report_and_an_empty_file_are_written_over(monkeypatch, tmp_path):
    _put(monkeypatch, ("report", f"{__name__}:_page", "motley.function"))
    page = tmp_path / "report.html"
    for text in ("<head><title>\n a \u00b7 Motley report</title>", ""):
        page.write_text(text, encoding="utf-8")
        assert write_report([fake.run()], page) == page
        assert page.read_text() != text


def _page(runs, page, target, plain_intervals):
    page.write_text(f"{runs[0].name} {target} {plain_intervals}")
    return page


def test_without_one_it_is_missed_in_one_sentence(monkeypatch, tmp_path):
    _put(monkeypatch)
    said = (
        "^no report is written: 'report' comes with motley-report, which is not installed; in a "
        "checkout of Motley: pip install ./packages/motley-report$"
    )
    with pytest.warns(UserWarning, match=said):
        assert write_report([fake.run()], tmp_path / "r.html") is None
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_imported_beforehand_ends_nothing():
    """An unknown backend of matplotlib is a ValueError at its import, while runs are under way."""
    program = """
from motley.results.written_report import load_report
load_report()
try:
    import matplotlib
except ValueError:
    print("unknown")
"""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "MPLBACKEND": "bogus"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "unknown"


def test_all_that_it_needs_is_imported_beforehand():
    program = """
import sys
from motley.results.written_report import load_report
load_report()
print(*(name in sys.modules for name in ("motley_report.report", "matplotlib.figure", "scipy")))
"""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    printed = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert printed.split() == ["True"] * 3


def test_what_is_missing_is_not_said_beforehand(monkeypatch):
    _put(monkeypatch, ("report", f"{__name__}.absent:report", "motley.function"))
    load_report()
