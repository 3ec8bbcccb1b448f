"""What the pages show runs, and what they list is what there is.

The blocks of a page are run in the order in which a reader meets them, in one namespace and one
folder:

``python``                 executed; a block that needs a library we do not require (pandas, ...) is
                           left where it needs it; a file of a Flower app (``# server_app.py``) is
                           only compiled
``toml``                   checked as an experiment; parts of one are laid over a small whole one;
                           ``title="x.toml"`` writes the file
``toml title="pyproject"`` only has to be TOML
``sh``                     ``motley ...`` is run when the files it names are there (the page has
                           made them) and the libraries, too, else only parsed, as is a line of the
                           README on another page with the same files; ``make ...`` must be a
                           target, ``python x.py`` a file of the repository
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import tomllib
import types
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from motley import cli
from motley.experiments.config import Experiment
from motley_papers import published_table, recipe

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not page.match("docs/api/motley.*")
    ),
]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
OPTIONAL = {
    "pandas",
    "polars",
    "duckdb",
    "flwr",
    "transformers",
    "peft",
    "datasets",
    "flwr_datasets",
}
WHOLE = {"task": "image", "population": 10, "cohort": 2, "stop": {"rounds": 1}}


def _blocks(page: Path) -> list[tuple[str, str, str]]:
    """(language, title, text) of every fenced block."""
    found = []
    for fence in FENCE.finditer(page.read_text(encoding="utf-8")):
        language, _, rest = fence["info"].strip().partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        body = re.sub(rf"^{fence['indent']}", "", fence["body"], flags=re.MULTILINE)
        found.append((language, title[1] if title else "", body))
    return found


@pytest.mark.usefixtures("forget_names")
# what peft calls and transformers will rename
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_shows_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = types.ModuleType(f"page_{page.stem}")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    files = {}
    for number, (language, title, text) in enumerate(_blocks(page)):
        where = f"{page.name}, block {number}"
        if title:
            files[title] = text
        if language == "python":
            _python(text, vars(module), where)
        elif language == "toml":
            _toml(text, title, where)
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                _command(
                    line.strip(),
                    where,
                    run=(page == PAGES[0] or not _in_the_readme(line.strip(), files))
                    and not _lacks_extra(files),
                )
        else:
            assert language in ("text", "bibtex", "mermaid"), f"{where}: nobody checks {language!r}"


def _lacks_extra(files: dict[str, str]) -> bool:
    """Whether the page's experiments need the extra hf, which is not here (make test-hf has it)."""
    asked = any(re.search(r'name\s*= "hf"', text) for text in files.values())
    return asked and any(find_spec(name) is None for name in ("transformers", "peft"))


def _in_the_readme(line: str, files: dict[str, str]) -> bool:
    """Whether the README has this line, too, after the same files: then it is run there."""
    blocks = _blocks(PAGES[0])
    lines = {
        shown.strip()
        for language, _, text in blocks
        if language == "sh"
        for shown in text.splitlines()
    }
    return (
        line in lines
        and files.items() <= {title: text for _, title, text in blocks if title}.items()
    )


def _python(text: str, names: dict[str, object], where: str) -> None:
    code = compile(text, where, "exec")
    if re.match(r"# (\w+/)?\w+_app\.py(, [\w ._]+)?\n", text):
        return  # a file of a Flower app, run by Flower
    try:
        exec(code, names)  # noqa: S102 - the very point
    except ImportError as error:
        # another test may have put stand-ins for parts of flwr among the modules
        library = (error.name or "").partition(".")[0]
        if library not in OPTIONAL or PathFinder.find_spec(library) is not None:
            raise


def _toml(text: str, title: str, where: str) -> None:
    table = tomllib.loads(text)
    if title == "pyproject.toml":
        return
    if title == "recipe.toml":
        Path(title).write_text(text, encoding="utf-8")
        assert recipe.read(Path.cwd()).exhibit
        return
    if title:
        Path(title).write_text(text, encoding="utf-8")
    if title == "my_table.toml":
        assert published_table.read(Path(title)).numbers
        return
    if "stop" in table:
        Experiment(**table)
    else:
        Experiment(
            **{
                **({} if "participation" in table else {"cohort": 2}),
                **{k: v for k, v in WHOLE.items() if k != "cohort"},
                **table,
            }
        )


def _command(line: str, where: str, run: bool = True) -> None:
    words = shlex.split(line, comments=True)
    while words and "=" in words[0]:  # PYTHON=... make test
        words = words[1:]
    if not words:
        return
    if words[0] == "motley":
        _motley(words[1:], where, run)
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(words[1:]) <= set(targets), f"{where}: {line}"
    elif words[0] == "sbatch":
        assert (ROOT / words[1]).stat().st_mode & 0o111, f"{where}: {line}"
    elif words[0] == "ray":  # make test-ray parses and runs the lines of Ray
        assert words[1] in ("start", "stop", "get-auth-token", "job"), f"{where}: {line}"
    elif words[0] == "python" and words[1] != "-m":
        assert (ROOT / words[1]).is_file(), f"{where}: {line}"
    elif "/" in words[0]:
        assert (ROOT / words[0]).stat().st_mode & 0o111, f"{where}: {line}"
    else:
        assert words[0] in ("export", "pip", "python", ".", "flwr", "kill", "umask"), (
            f"{where}: nobody checks {line!r}"
        )


@cache
def _parser() -> Any:
    """The command with all its options; to make it anew for each line takes longer than to read the
    line."""
    return typer.main.get_command(cli.app)


def _motley(words: list[str], where: str, run: bool) -> None:
    command = _parser()
    context = command.make_context("motley", list(words))
    name, sub, rest = command.resolve_command(context, list(words))
    assert sub is not None, f"{where}: there is no motley {words[0]}"
    if name in ("data", "deployment"):  # parsed only: what is on a machine differs
        group = sub.make_context(name, list(rest), parent=context)
        name, sub, rest = sub.resolve_command(group, list(rest))
        sub.make_context(name, list(rest), parent=group)
        return
    inner = sub.make_context(name, list(rest), parent=context)
    # tests/motley_papers runs them
    if name == "reproduce" and inner.params["recipe"] in recipe.names():
        recipe.read(inner.params["recipe"]).choose(
            [f"table {number}" for number in inner.params["table"] or []]
        )
        return
    table = inner.params.get("recipe")
    if name == "reproduce" and table is not None:
        assert table in published_table.names() or published_table.read(table).numbers
        return
    sides = [word for word in words if word.startswith("recipe:")]
    if name == "explain" and sides:  # tests/motley_papers runs them
        tables = [
            side.removeprefix("recipe:").partition("/")[0].partition("@")[0] for side in sides
        ]
        there = {*recipe.names(), *published_table.names(), "my_table.toml"}
        assert there.issuperset(tables), f"{where}: {tables}"
        return
    # typer 0.20: still words
    reads = [Path(inner.params[key]) for key in ("file", "where") if key in inner.params]
    if run and all(path.exists() for path in reads):
        assert cli.call(words) == 0, f"{where}: motley {shlex.join(words)}"


@pytest.mark.usefixtures("drawn")
def test_the_pages_say_what_the_code_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, options, signals and columns on the pages are those of the code;
    ``python docs/generate.py`` writes them anew."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import generate

    stale = [
        page.name
        for page in generate.PAGES
        if generate.refreshed(page.read_text()) != page.read_text()
    ]
    whole = generate.whole_files()
    stale += [
        file.name for file, text in whole.items() if not file.is_file() or text != file.read_text()
    ]
    stale += [
        f"{page.name}, to be removed"
        for page in (ROOT / "docs" / "api").glob("motley.*")
        if page not in whole
    ]
    assert not stale, f"{stale} are stale; run: python docs/generate.py"
    import built

    text = "\n".join(page.read_text() for page in generate.PAGES)
    made = [found["name"] for found in generate.BLOCK.finditer(text)]
    looked_up = [found["name"] for found in built.BUILT.finditer(text)]
    assert sorted(made + looked_up) == sorted(generate.MAKERS)
    assert set(generate.from_code.ORDER) == set(generate.from_code.registry.KINDS)


def test_every_key_of_the_experiment_is_shown_in_a_block() -> None:
    """The page of the experiment file shows each top-level key at least once in a TOML block that
    is checked."""
    blocks = [
        text for kind, _, text in _blocks(ROOT / "docs" / "experiment-file.md") if kind == "toml"
    ]
    shown = {key for text in blocks for key in tomllib.loads(text)}
    assert set(Experiment.model_fields) == shown


def test_every_public_object_has_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public is what a package names in ``__all__`` for its users, and what a page tells them to
    import, but for the components, which have a page of their own, and constants."""
    import motley
    import motley.selectors
    import motley.tasks
    import motley_flower
    from motley.experiments import registry

    monkeypatch.syspath_prepend(ROOT / "docs")
    import api_pages

    packages = (motley, motley_flower, motley.selectors, motley.tasks)
    wanted = {
        id(getattr(package, name)): name
        for package in packages
        for name in package.__all__
        if name.upper() != name
    }
    components = {
        target.partition(":")[2]
        for kind in registry.KINDS
        for target in registry.catalogue(kind).targets.values()
    }
    for page in api_pages.guides():
        for name in api_pages.used(page.read_text(encoding="utf-8")):
            above, _, last = name.rpartition(".")
            if (
                last != last.upper()
                and last not in components
                and above not in ("motley", *api_pages.public())
            ):
                with contextlib.suppress(AttributeError):
                    wanted[id(api_pages.resolve(name))] = f"{name} ({page.name})"
    shown = {id(api_pages.resolve(name)) for name in api_pages.public()}
    missing = {name for thing, name in wanted.items() if thing not in shown}
    assert not missing, (
        f"{missing}: add them to GROUPS in docs/api_pages.py, and run: python docs/generate.py"
    )


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_menu() -> None:
    menu = set(re.findall(r"(\S+\.md)", (ROOT / "mkdocs.yml").read_text()))
    assert menu == {
        page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")
    }


def test_pages_of_the_reference_find_functions_of_other_distributions() -> None:
    """``motley.explain`` is documented where ``motley_advice`` defines it, which mkdocstrings loads
    only if it is told to."""
    pattern = r"^    from (motley_\w+)\."
    facades = (ROOT / "packages/motley/src/motley").glob("**/__init__.py")
    texts = [path.read_text(encoding="utf-8") for path in facades]
    named = {name for text in texts for name in re.findall(pattern, text, re.MULTILINE)}
    configured = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (loaded,) = re.findall(r"^ +preload_modules: \[(.+?)\]", configured, re.MULTILINE)
    assert set(loaded.split(", ")) == named != set()
    for name in named:
        assert f"packages/{name.replace('_', '-')}/src" in configured


def test_no_page_installs_what_does_not_exist() -> None:
    """Motley is in no package index: a command takes it from the checkout (``./packages/motley``,
    of extras that there are) or a wheel that lies there, or from an address
    (``motley-fl @ ...``)."""
    extras = tomllib.loads((ROOT / "packages/motley/pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    files = [
        *PAGES,
        *(
            path
            for path in (ROOT / "examples").rglob("*")
            if path.suffix in (".py", ".toml", ".md") or path.name == "run"
        ),
    ]
    for file in files:
        for command in re.findall(r"pip install ([^\n`]+)", file.read_text(encoding="utf-8")):
            assert not re.search(r"(?<![\w/])motley(?!-fl(\[\w+\])? @ )", command), (
                f"{file.name}: pip install {command}"
            )
            folders = re.findall(r"\./(packages/[\w-]+)", command)
            assert all((ROOT / folder / "pyproject.toml").is_file() for folder in folders), (
                f"{file.name}: pip install {command}"
            )
            asked = {
                one
                for group in re.findall(r"packages/motley\[([\w,]+)\]", command)
                for one in group.split(",")
            }
            assert asked <= set(extras), f"{file.name}: pip install {command}"


def test_code_on_a_page_is_not_wider_than_the_page() -> None:
    """At a window of 1280 px a block shows 110 characters; what is longer is cut, with a shadow as
    a sign."""
    wide = {
        f"{page.name}: {line[:60]}"
        for page in PAGES
        for language, _, text in _blocks(page)
        if language != "text"
        for line in text.splitlines()
        if len(line) > 110
    }
    assert not wide


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="its packages come with make docs")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path / "site"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = " ".join(path.read_text() for path in (tmp_path / "site").rglob("*.html"))
    assert (tmp_path / "site" / "search" / "search_index.js").is_file(), (
        "no search in pages that are opened as files"
    )
    assert 'assets/iframe-worker.js"' in pages
    loaded = re.findall(r'<(?:link|script|img)[^>]*(?:href|src)="(https?://[^"]+)"', pages)
    assert not [url for url in loaded if "canonical" not in url], (
        "the pages load something from elsewhere"
    )


def test_the_tests_that_pages_name_are_there() -> None:
    """Each ``pytest FILES -k WORDS``: the files, and of each of the words a test's name that has
    it; ``the same file`` and a ``-k`` alone are of the row before."""
    held = r"`(?:python -m )?(pytest [^`]*|-k [^`]*)`"
    places: list[str] = []
    seen = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for command in re.findall(held, page.read_text(encoding="utf-8")):
            words = shlex.split(command)
            places = [word for word in words if word.startswith("tests/")] or places
            chosen = words[words.index("-k") + 1].split(" or ") if "-k" in words else []
            named = " ".join(
                name
                for place in places
                for name in re.findall(r"def (test_\w+)", (ROOT / place).read_text("utf-8"))
            )
            assert named, f"{page.name}: {command}"
            assert all(word in named for word in chosen), f"{page.name}: {command}"
            seen += 1
    assert seen > 15
