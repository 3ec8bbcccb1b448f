"""The report at the end of runs: written by the distribution that makes reports, or missed in one
sentence."""

from importlib import metadata

import pytest

from motley.core import extensions
from motley.results.written_report import write_report
from tests.motley.results import fake


def _put(monkeypatch, *points):
    named = metadata.EntryPoints(metadata.EntryPoint(*point) for point in points)
    monkeypatch.setattr(extensions, "_entry_points", lambda: named)


def test_what_an_entry_point_names_writes_it(monkeypatch, tmp_path):
    _put(monkeypatch, ("report", f"{__name__}:_page", "motley.function"))
    runs = [fake.run()]
    written = write_report(runs, tmp_path / "r.html", 0.5, plain_intervals=True)
    assert written == tmp_path / "r.html"
    assert written.read_text() == f"{runs[0].name} 0.5 True"


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
