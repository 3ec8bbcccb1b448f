"""The bibliography: every entry is read as it was written, and cited by a method. The public code
of papers: every method has an entry, and the options that it names exist."""

import re
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest

import motley
from motley.core.components import check_option
from motley.core.paper import PublicCode, cite, public_code
from motley.experiments import registry

ROOT = Path(motley.__file__).parent
PACKAGES = Path(__file__).parents[3] / "packages"
TEXT = (ROOT / "core" / "papers.bib").read_text(encoding="utf-8")
KEYS = re.findall(r"^@inproceedings\{(.+),$", TEXT, flags=re.MULTILINE)


def test_the_file_is_what_its_entries_write() -> None:
    assert "\n\n".join(cite(key).bibtex() for key in KEYS) + "\n" == TEXT
    assert sorted(set(KEYS)) == KEYS


def test_every_entry_is_cited_and_every_citation_has_an_entry() -> None:
    cited = {
        key
        for path in PACKAGES.rglob("*.py")
        for key in re.findall(r'(?<!>>> )\bcite\("([^"$]+)"\)', path.read_text())
    }
    assert cited == set(KEYS)


METHODS = ("selector", "algorithm", "loss", "aggregator", "compressor", "feedback", "allocator")
CODES = tomllib.loads((ROOT / "core" / "public_code.toml").read_text(encoding="utf-8"))


def _methods() -> dict[str, list[tuple[str, str]]]:
    """Key of a paper -> kind and name of the methods that it describes."""
    found: dict[str, list[tuple[str, str]]] = {}
    for kind in METHODS:
        for row in registry.listing(kind):
            if row["paper"] in KEYS:
                found.setdefault(row["paper"], []).append((kind, row["name"]))
    return found


def test_every_method_of_a_paper_says_which_code_is_public() -> None:
    methods = _methods()
    assert sorted(methods) == sorted(CODES) == list(CODES)
    assert {"oort", "flexcom", "optrate", "fedcg_lp", "topk", "moon"} <= {
        name for found in methods.values() for _, name in found
    }


@pytest.mark.parametrize("key", CODES)
def test_an_entry_has_a_commit_and_whole_rows(key: str) -> None:
    found = public_code(key)
    assert isinstance(found, PublicCode)
    assert bool(found.repository) == bool(found.commit)
    assert not found.repository or re.fullmatch(r"[\w.-]+/[\w.-]+", found.repository)
    assert not found.commit or re.fullmatch(r"[0-9a-f]{7}", found.commit)
    assert all(len(row) == 4 and all(row) for row in found.differences)
    assert not found.differences or (found.repository and found.compared)


@pytest.mark.parametrize("key", [key for key in CODES if "differences" in CODES[key]])
def test_options_that_an_entry_names_exist(key: str) -> None:
    """An option alone is one of a method of the paper, or a component's name, or a key of an
    experiment; with a value, the method takes it."""
    methods = _methods()[key]
    options: dict[str, tuple[str, str]] = {}
    for kind, name in methods:
        options |= dict.fromkeys(
            [option.name for option in registry.catalogue(kind).options(name)], (kind, name)
        )
    known = {name for kind in registry.KINDS for name in registry.catalogue(kind).names()}
    for _, _, _, here in CODES[key]["differences"]:
        for cell in re.findall("`([^`]+)`", here):
            _check(cell, options, known | set(motley.Experiment.model_fields))


def _check(cell: str, options: dict[str, tuple[str, str]], known: set[str]) -> None:
    if "/" in cell:
        return  # another repository
    if " = " not in cell:
        assert cell in options or cell.partition(".")[0] in known, cell
        return
    for option, value in tomllib.loads(re.sub(r", (\w+ = )", r"\n\1", cell)).items():
        _takes(options, option, value, known)


def _takes(options: dict[str, tuple[str, str]], option: str, value: Any, known: set[str]) -> None:
    if option in options:
        kind, name = options[option]
        hints = typing.get_type_hints(registry.catalogue(kind).get(name))
        check_option(value, hints[option], option)
    else:
        assert option in known, option
        assert option == "weights" or value in registry.catalogue(option).names(), value


def test_a_listing_names_the_public_code() -> None:
    rows = {row["name"]: row for row in registry.listing("selector")}
    assert rows["oort"]["code"] == "SymbioticLab/Oort at 05a3aa1"
    assert rows["flash"]["code"] is None
