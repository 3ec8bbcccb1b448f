"""The pages of methods have an entry for every component, made of its docstring and its options."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from motley.experiments import registry

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs" / "methods").glob("*.md"))


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """docs/from_docstrings.py."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import from_docstrings

    yield from_docstrings
    sys.modules.pop("from_docstrings")


def test_every_component_has_one_entry(entries: ModuleType) -> None:
    """Engines have docs/engines.md."""
    named = [
        found["module"]
        for page in PAGES
        for found in entries.ENTRY.finditer(page.read_text(encoding="utf-8"))
    ]
    assert len(named) == len(set(named))
    homeless = []
    for kind in set(registry.KINDS) - {"engine"}:
        names = registry.catalogue(kind)
        for name in names.names():
            module = names.get(name).__module__
            ours = module.startswith("motley.")  # another test may have named a class of its own
            if ours and module not in named:
                homeless.append((kind, name))
    assert not homeless


def test_an_entry_link_leads_to_the_module_that_it_names(
    entries: ModuleType, tmp_path: Path
) -> None:
    assert not [link for page in PAGES for link in entries.missing(page)]
    page = tmp_path / "page.md"
    page.write_text("[motley.selectors.oort](../oort.py)\n", encoding="utf-8")
    assert entries.missing(page) == ["[motley.selectors.oort](../oort.py)"]


def test_an_entry_may_be_of_another_package(entries: ModuleType) -> None:
    made = entries.with_entries(
        "[motley_flower.secure.encoding]"
        "(../../packages/motley-flower/src/motley_flower/secure/encoding.py)\n"
    )
    assert made.startswith("Fixed-point numbers whose sum modulo 2^32")
    assert made.endswith("its tests: `tests/motley_flower/secure/test_encoding.py`.\n")


def test_an_entry_has_source_formula_options_tags_and_numbers(entries: ModuleType) -> None:
    page = entries.with_entries(
        "## Oort {#oort}\n\n"
        "[motley.selectors.oort](../../packages/motley/src/motley/selectors/oort.py)\n\nAfter.\n"
    )
    assert page.startswith("## Oort {#oort}\n\nOort chooses clients by one score")
    assert page.endswith("`tests/motley/selectors/test_oort.py`.\n\nAfter.\n")
    for part in (
        "OSDI 2021",
        "    score_k = [base_k + sqrt(.1 ln t / L_k)] g_k",
        "INTERPRETATION-D",
        "READING",
        "(1.159951, .178680, .339557)",
        "**`oort`** (selector).",
        "- `cutoff`: c.",
        "`exploration = 0.9`, `exploration_decay = 0.98`",
        "`blacklist`, `blacklist_share = 0.3`",
    ):
        assert part in page.replace("(1.159951,\n", "(1.159951, "), part
    assert ">>>" not in page


def test_a_docstring_becomes_markdown(entries: ModuleType) -> None:
    said = (
        "Do it (arXiv:1602.05629), see :class:`~motley.core.keys.Key` and docs/privacy.md#accounts."
        "\n\nParameters\n----------\nrate: a share. size: a number.\n\n>>> 1 + 1\n2\n"
    )
    assert entries.markdown(said, ["rate", "size"]) == (
        "Do it ([arXiv:1602.05629](https://arxiv.org/abs/1602.05629)), see `Key` and "
        "[privacy#accounts](../privacy.md#accounts).\n\n**Parameters**\n\n\n- `rate`: a share. "
        "\n- `size`: a number.\n\n```pycon\n>>> 1 + 1\n2\n```\n"
    )
