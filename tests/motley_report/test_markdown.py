"""Markdown of the same page: tables that stay tables whatever is in them, code that stays code,
pictures beside it on white."""

import html
import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from motley.core.errors import StoreError
from motley.results.blocks import (
    BulletList,
    Code,
    Page,
    Picture,
    Section,
    SideBySide,
    Table,
    TableCell,
    TableRow,
    Text,
)
from motley.results.load import load_all
from motley_report.markdown import escaped, markdown
from motley_report.report import report
from tests.motley.results import fake

SVG = '<svg role="img" xmlns="http://www.w3.org/2000/svg"><g id="bars-1"/></svg>'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    for selector in ("uniform", "power_of_choice"):
        for seed in (0, 1):
            path = fake.write(root / selector / str(seed), selector, seed, rounds=20)
            (path / "run.json").write_text(json.dumps(fake.meta(selector, seed)))
    return root


def rows_of(text):
    """Tables of pipes: a list of rows of cells each."""
    tables = re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    return [
        [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in table.strip().split("\n")]
        for table in tables
    ]


@pytest.mark.usefixtures("drawn")
def test_the_report_is_all_there(folder):
    out = report(folder, folder / "out" / "small.md", target=0.5)
    text = out.read_text(encoding="utf-8")
    for words in (
        "# who to ask on digits",
        "## In one table",
        "### Until 50%",
        "### Is the difference more than the seeds?",
        "## What it cost",
        "```sh\nmotley compare demo.toml --set seed=0",
        "```json\n{",
        "clients: **30**",
        "<summary>Resolved experiment: power_of_choice</summary>",
        "```bibtex\n@misc{mcmahan2017,",
    ):
        assert words in text, words
    assert text.count("@misc{mcmahan2017,") == 1
    for table in rows_of(text):
        assert len({len(row) for row in table}) == 1, table[0]
    summary = rows_of(text)[0]
    assert [row[0] for row in summary] == ["method", ":--", "power_of_choice", "uniform"]
    assert "Bold: the best mean, if the 95 % interval of its differences" in text
    named = re.findall(r"!\[[^\]]+\]\(<([^>]+)>\)", text)
    assert len(named) == len(set(named)) == 9
    assert {
        str(path.relative_to(out.parent)) for path in (out.parent / "small_pictures").iterdir()
    } == set(named)
    for name in named:
        first = ElementTree.parse(out.parent / name).getroot()[0]
        assert (first.tag.rpartition("}")[2], first.get("fill"), first.get("width")) == (
            "rect",
            "#ffffff",
            "100%",
        )
    assert "http" not in re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def test_the_same_bytes_twice(folder):
    first = report(folder, folder / "a.md")
    texts = {path.name: path.read_bytes() for path in (folder / "a_pictures").iterdir()}
    before = first.read_bytes()
    assert report(load_all(folder), folder / "a.md").read_bytes() == before
    assert {path.name: path.read_bytes() for path in (folder / "a_pictures").iterdir()} == texts


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("power_of_choice", "power_of_choice"),
        ("_top_ 5", r"\_top\_ 5"),
        ("a|b", r"a\|b"),
        (
            "*x* `y` [z](w) <b> &amp; $k$ ~~no~~ \\",
            r"\*x\* \`y\` \[z\](w) &lt;b> &amp;amp; \$k\$ \~\~no\~\~ " + "\\\\",
        ),
        ("# no heading", r"\# no heading"),
        ("- no list", r"\- no list"),
        ("12. no list", r"12\. no list"),
        ("> 20", r"\> 20"),
        ("+12.00", "+12.00"),
        ("−0.5 to +0.3", "−0.5 to +0.3"),
        ("91.95 ± 0.20", "91.95 ± 0.20"),
        ("two\nlines", "two lines"),
    ],
)
def test_words_stay_words(text, written):
    assert escaped(text) == written


@given(st.text("ab 1_*`[]()<>#+-=.|~\\\\&!:;$\"'@/{}^%0\n", max_size=9).filter(str.strip))
def test_words_are_read_as_they_were(text):
    """As a paragraph, a heading and a cell, by a reader of CommonMark with tables."""
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    read = "".join(
        map(
            reader.render,
            (
                escaped(text),
                f"## {escaped(text)}",
                f"| a | b |\n| -- | -- |\n| {escaped(text)} | c |",
            ),
        )
    )
    found = re.search(
        r"^<p>(.*)</p>\n<h2>(.*)</h2>\n<table>.*<td>(.*)</td>\n<td>c</td>", read, re.DOTALL
    )
    assert found
    assert [html.unescape(one) for one in found.groups()] == [" ".join(text.split())] * 3


def test_every_kind_of_block():
    table = Table(
        ("who", "number", "word"),
        [TableRow("a|b", [TableCell("1", 1.0, best=True), TableCell("so")])],
        "a note",
    )
    code = Code("x = '```'", "Folded <away>", "python")
    page = Page(
        "T",
        [("clients", "3")],
        [
            BulletList(["first", "second"], "Read this"),
            Section(
                "One",
                [
                    Text("words"),
                    SideBySide([table, Picture("bars", "Some bars", SVG)]),
                    Section("Deeper", [code, Picture("bars", "More", SVG)]),
                ],
            ),
            Section(
                "Long & folded", [Text("all of it"), Section("Inside", [Text("too")])], folded=True
            ),
            BulletList(["plain"]),
        ],
    )
    text, pictures = markdown(page, "t_pictures")
    body = text.split("\n\n---\n\n")[0]
    assert body == "\n\n".join(
        [
            "# T",
            "clients: **3**",
            "> **Read this**\n> \n> - first\n> - second",
            "## One",
            "words",
            "| who | number | word |\n| :-- | --: | :-- |\n| a\\|b | **1** | so |",
            "a note",
            "![Some bars](<t_pictures/bars.svg>)",
            "### Deeper",
            "<details><summary>Folded &lt;away></summary>",
            "````python\nx = '```'\n````",
            "</details>",
            "![More](<t_pictures/bars-2.svg>)",
            "<details><summary>Long &amp; folded</summary>",
            "all of it",
            "### Inside",
            "too",
            "</details>",
            "- plain",
        ]
    )
    assert set(pictures) == {"bars.svg", "bars-2.svg"}


def test_what_cannot_be_written_leaves_what_was_there(folder, tmp_path):
    out = report(folder, tmp_path / "r.md")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    out.with_name("r.md.new").mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*r.md: Is a directory"):
        report(folder, out, target=0.5)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*file/r.md"):
        report(folder, tmp_path / "file" / "r.md")
    (tmp_path / "page.md").mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*page.md: Is a directory"):
        report(folder, tmp_path / "page.md")
    assert not (tmp_path / "page_pictures").exists()
