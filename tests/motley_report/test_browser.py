"""The page in a browser, on a desk and in a hand: nothing stands out sideways, switches hide, heads
sort, nothing is asked for."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from motley.results.blocks import Page, Section, Table, TableCell, TableRow, Text
from motley_report.page import write
from motley_report.report import report
from tests.motley.results import fake

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium")]

PROBE = """<body><script>
const frame = document.createElement("iframe");
frame.style = "width: WIDTHpx; height: 800px; border: 0";
frame.onload = () => {
  const page = frame.contentWindow, it = page.document, said = {};
  PROBES
  document.body.textContent = JSON.stringify(said);
};
frame.srcdoc = PAGE;
document.body.append(frame);
</script></body>"""


def asked(page: Path, probes: str, tmp_path: Path, width: int = 390) -> dict:
    """What the script in ``probes`` puts into ``said``, of the page in a frame of so many
    pixels."""
    source = json.dumps(page.read_text(encoding="utf-8")).replace("</", "<\\/")
    probe = tmp_path / "probe.html"
    probe.write_text(
        PROBE.replace("WIDTH", str(width)).replace("PROBES", probes).replace("PAGE", source),
        encoding="utf-8",
    )
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
    ]
    options += [
        "--disable-component-update",
        "--disable-quic",
        "--virtual-time-budget=4000",
        f"--user-data-dir={tmp_path / 'browser'}",
    ]
    done = subprocess.run(
        [BROWSER, *options, "--dump-dom", probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r"<body>(\{.*\})</body>", done.stdout, re.DOTALL)
    assert found, done.stdout[-500:] + done.stderr[-500:]
    return json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    for selector in fake.METHODS:
        for seed in (0, 1):
            path = fake.write(root / selector / str(seed), selector, seed, rounds=20)
            (path / "run.json").write_text(json.dumps(fake.meta(selector, seed)))
    return report(root, root / "report.html", target=0.5)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    long = (
        "its container ran out of memory while samples were loaded from "
        "/srv/ward-seven/records/2026/03 " * 3
    )
    more = {
        "incidents": fake.table(
            "incidents",
            round=[1],
            time_s=[70.0],
            at=["2026-01-02T03:04:05Z"],
            client=[2],
            event=["lost"],
            reason=[long],
        )
    }
    return report([fake.two_rounds(**more)], tmp_path_factory.mktemp("deployment") / "report.html")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("which", ["page", "deployment"])
def test_nothing_stands_out_sideways(which, request, tmp_path, width):
    """Wide things lie in boxes of their own that scroll; the page itself is as wide as the
    window."""
    probes = """
      const inside = node => node.parentElement.closest(".wide, .large, nav.methods");
      const room = it.documentElement.clientWidth;
      said.more = it.documentElement.scrollWidth - room;
      const outside = n => n.getBoundingClientRect().right > room + 1 && !inside(n);
      said.out = [...it.querySelectorAll("body *")].filter(outside)
        .map(n => n.tagName + "." + (n.getAttribute("class") ?? ""));
      said.asked = page.performance.getEntriesByType("resource").map(entry => entry.name);
    """
    page = request.getfixturevalue(which)
    assert asked(page, probes, tmp_path, width) == {"more": 0, "out": [], "asked": []}


def test_a_table_of_ten_columns_is_whole_on_a_desk(tmp_path):
    """Nine methods by 21 rows with deviations, as FLASH's Table 1, in a window of 1280 pixels; on
    one of 800 it scrolls."""
    heads = ["setting / aggregation", "random", "random_robust", "oort", "pyramidfl"]
    heads += ["restless_bandit", "neural_bandit", "fedcor", "feel", "flash"]
    rows = [
        TableRow(f"noniid30_noise15 / scaffold{i}", [TableCell("84.31 ± 0.05", 84.31)] * 9)
        for i in range(25)
    ]
    shown = [Section(str(i), [Text("a")]) for i in range(3)]
    file = write(
        Page("Wide", [], [Section("T", [Table(heads, rows)]), *shown]), tmp_path / "r.html"
    )
    probes = """
      const box = it.querySelector(".wide");
      said.more = box.scrollWidth - box.clientWidth;
    """
    assert asked(file, probes, tmp_path, 1280) == {"more": 0}
    assert asked(file, probes, tmp_path, 800)["more"] > 0


def test_switches_hide_and_the_pointer_brings_out(page, tmp_path):
    probes = """
      const visible = n => page.getComputedStyle(n).display !== "none";
      const shown = kind => [...it.querySelectorAll(kind)].filter(visible).length;
      const rows = shown("tr.method-1"), drawn = shown("g.method-1"), others = shown("tr.method-0");
      const box = it.querySelectorAll("nav.methods input")[1];
      box.click();
      said.hidden = rows > 3 && drawn > 5 && shown("tr.method-1") === 0
        && shown("g.method-1") === 0;
      said.others = shown("tr.method-0") === others && shown("nav label.method-1") === 1;
      box.click();
      said.back = shown("tr.method-1") === rows;
      const over = node =>
        node.dispatchEvent(new page.PointerEvent("pointerover", { bubbles: true }));
      const style = () => it.getElementById("pointed-at").textContent;
      over(it.querySelector("g.method-2 path"));
      said.pointed = style();
      over(it.querySelector("h2"));
      said.nothing = style();
      said.title = it.querySelector("g.method-2").dataset.title.startsWith("uniform: peak ");
    """
    found = asked(page, probes, tmp_path)
    assert (
        found.pop("pointed")
        == "#page svg [class^=method-]:not(.method-2):not(#page [data-methods] *) { opacity: .12; }"
    )
    assert found == {"hidden": True, "others": True, "back": True, "nothing": "", "title": True}


def test_heads_sort_numbers_and_words_and_parts_hide_their_own(tmp_path):
    rows = [
        TableRow(name, [TableCell(f"{v:g}", v), TableCell(word)], i)
        for i, (name, v, word) in enumerate(
            (("b", 2.0, "no"), ("c", 10.0, "yes"), ("a", float("nan"), "maybe"))
        )
    ]
    parts = [
        Section("The same title", [Table(("method", "number", "word"), rows)], ("b", "c", "a"))
        for _ in range(2)
    ]
    probes = """
      const order = () => [...it.querySelector("tbody").rows]
        .map(row => row.cells[0].textContent.trim()).join("");
      const heads = it.querySelectorAll("thead")[0].rows[0].cells;
      said.orders = [1, 1, 2, 0, 0].map(i => {
        heads[i].querySelector("button").click();
        return order();
      });
      it.querySelectorAll("nav.methods")[1].querySelector("input").click();
      said.hidden = [...it.querySelectorAll("tr.method-0")]
        .map(n => page.getComputedStyle(n).display === "none");
    """
    found = asked(write(Page("t", [], parts), tmp_path / "p.html"), probes, tmp_path)
    assert found == {"orders": ["cba", "bca", "abc", "abc", "cba"], "hidden": [False, True]}


def test_a_part_within_keeps_its_own_methods(tmp_path):
    def table(names):
        return Table(
            ("method", "n"),
            [TableRow(name, [TableCell("1", 1.0)], i) for i, name in enumerate(names)],
        )

    within = Section("", [table("xy")], ("x", "y"))
    parts = [
        Section(
            "Outer", [table("ab"), Section("In its colours", [table("ab")]), within], ("a", "b")
        )
    ]
    probes = """
      const seen = () => [...it.querySelectorAll("tbody tr")]
        .filter(n => page.getComputedStyle(n).display !== "none")
        .map(row => row.cells[0].textContent.trim()).join("");
      const boxes = it.querySelectorAll("nav.methods input");
      boxes[0].click(); said.outer = seen(); boxes[0].click();
      boxes[3].click(); said.inner = seen();
      said.heads = [...it.querySelectorAll("h2, h3")].map(n => n.textContent);
    """
    found = asked(write(Page("t", [], parts), tmp_path / "p.html"), probes, tmp_path)
    assert found == {"outer": "bbxy", "inner": "ababx", "heads": ["Outer", "In its colours"]}


def test_a_folded_part_is_closed_until_it_is_opened(tmp_path):
    parts = [
        Section("Long", [Text("all of it"), Section("Inside", [Text("too")])], folded=True),
        Section("Plain", [Text("seen")]),
    ]
    probes = """
      const seen = () => [...it.querySelectorAll("main p, section p")]
        .filter(p => p.checkVisibility()).map(p => p.textContent);
      said.closed = seen();
      it.querySelector("main summary").click();
      said.open = seen();
    """
    found = asked(write(Page("t", [], parts), tmp_path / "p.html"), probes, tmp_path)
    assert found == {"closed": ["seen"], "open": ["all of it", "too", "seen"]}


def test_on_a_phone_rows_are_cards_that_say_every_column(page, tmp_path):
    """Nothing of the summary has to be scrolled to; each figure stands below the head of its
    column."""
    probes = """
      const table = it.querySelector("main table"), room = it.documentElement.clientWidth;
      const cells = [...table.querySelectorAll("tbody td")];
      const edges = cells.map(cell => cell.getBoundingClientRect());
      said.inside = edges.every(edge => edge.right <= room && edge.left >= 0);
      said.heads = [...table.tBodies[0].rows[0].cells].slice(1, 4)
        .map(cell => page.getComputedStyle(cell, "::before").content);
      said.columns = cells.length / table.tBodies[0].rows.length;
    """
    assert asked(page, probes, tmp_path) == {
        "inside": True,
        "heads": ['"final"', '"peak"', '"stable"'],
        "columns": 9,
    }


def test_published_stands_below_measured_on_a_phone(tmp_path):
    rows = [
        TableRow(
            "a <b> \\",
            [
                TableCell("1.5 ± 0.5", 1.5, published="65.30 ± 11.60"),
                TableCell("7", 7.0),
                TableCell("8", 8.0),
            ],
        )
    ]
    table = Table(("cell", 'a "head" </style>', "b", "c"), rows)
    probes = """
      const cell = it.querySelector("td"), printed = it.querySelector(".published");
      said.head = page.getComputedStyle(cell, "::before").content;
      said.before = page.getComputedStyle(printed, "::before").content;
      said.below = printed.getBoundingClientRect().top > cell.getBoundingClientRect().top + 10;
      const text = it.createRange();
      text.selectNodeContents(printed);
      const next = cell.nextElementSibling.getBoundingClientRect();
      said.inside = text.getBoundingClientRect().right <= next.left;
    """
    found = asked(write(Page("t", [], [table]), tmp_path / "p.html"), probes, tmp_path)
    assert found == {
        "head": '"a \\"head\\" </style>"',
        "before": '"published"',
        "below": True,
        "inside": True,
    }


def test_a_table_is_copied_as_it_is_seen(tmp_path):
    """Sorted, without hidden methods; mean and deviation apart; a thin space or a minus sign is no
    part of a number."""
    rows = [
        TableRow(name, [TableCell(f"{v}\u202f000 ± 0.5", v), TableCell("−1,5")], i)
        for i, (name, v) in enumerate([("a", 1), ("b", 2), ("c", 3)])
    ]
    page = write(
        Page("t", [], [Table(("method", "n", "w"), rows)], ("a", "b", "c")), tmp_path / "p.html"
    )
    probes = """
      it.querySelectorAll("nav.methods input")[1].click();
      it.querySelectorAll("thead button")[1].click();
      it.execCommand = () => { said.copied = it.querySelector("textarea").value; };
      page.navigator.clipboard.writeText = text => {
        said.copied = text;
        return Promise.resolve();
      };
      it.querySelector("button.copy").click();
    """
    assert asked(page, probes, tmp_path) == {
        "copied": 'method,n,n ±,w\nc,3000,0.5,"-1,5"\na,1000,0.5,"-1,5"\n'
    }


def test_the_pointer_reads_values_along_curves_and_of_bars(page, tmp_path):
    probes = """
      const svg = it.querySelector("svg[data-axes]"), box = svg.getBoundingClientRect();
      const [left, top, wide, high] = JSON.parse(svg.dataset.axes)[0], size = svg.viewBox.baseVal;
      const scale = box.width / size.width;
      const clientX = box.left + (left + wide * 0.7) * scale;
      const clientY = box.top + (top + high / 2) * scale;
      const at = { bubbles: true, clientX, clientY };
      svg.dispatchEvent(new page.PointerEvent("pointermove", at));
      const tip = it.getElementById("tip");
      said.lines = [...tip.children].map(line => line.textContent.replace(/[\\d.]+$/, ""));
      said.shown = !tip.hidden;
      const down = new page.PointerEvent("pointerdown", { bubbles: true });
      it.querySelector("g[data-title*='peak']").dispatchEvent(down);
      said.bar = /^\\w+: (peak|final|stable|drop) [\\d.]+ ± [\\d.]+$/.test(tip.textContent);
      it.querySelector("h1").dispatchEvent(new page.PointerEvent("pointermove", { bubbles: true }));
      said.gone = tip.hidden;
    """
    found = asked(page, probes, tmp_path, 1280)
    assert found.pop("lines")[0].startswith("round ")
    assert found == {"shown": True, "bar": True, "gone": True}


def test_contents_stand_at_the_side_and_open_what_is_folded(tmp_path):
    parts = [Section("First", [Text("one")]), Section("Folded", [Text("two")], folded=True)]
    page = write(Page("t", [], parts), tmp_path / "p.html")
    probes = """
      const contents = it.querySelector("details.contents");
      const links = [...contents.querySelectorAll("a")];
      said.open = contents.open;
      said.names = links.map(link => link.textContent);
      const main = it.querySelector("main").getBoundingClientRect();
      said.beside = contents.getBoundingClientRect().right <= main.left;
    """
    assert asked(page, probes, tmp_path, 1280) == {
        "open": True,
        "names": ["First", "Folded"],
        "beside": True,
    }
    assert asked(page, probes, tmp_path, 390) == {
        "open": False,
        "names": ["First", "Folded"],
        "beside": False,
    }
