"""Places of the tree that make a machine ask a package index for motley-fl, a name that belongs to
nobody: whoever registers it runs code there. A direct address (``motley-fl @ ...``) asks no index.

    python benchmarks/privacy_attacks/dependency_name.py
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import motley

ROOT = next(
    folder for folder in Path(motley.__file__).resolve().parents if (folder / "examples").is_dir()
)
"""Of the tree that is attacked, one distribution or several in packages/."""
PROJECTS = [ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")]
NAME = re.compile(r"motley-fl\b(?:\[[^\]\n]*\])?(?! *@ )")


def hints() -> list[str]:
    """Messages and pages with a pip command, a requirement or an extra of that name."""
    files = [
        ROOT / "README.md",
        *(ROOT / "motley").rglob("*.py"),
        *(ROOT / "packages").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.*"),
    ]
    found = []
    for file in files:
        if file.suffix not in (".py", ".md", ".toml") or "measured" in file.parts:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            asks = "pip install" in line or "dependencies" in line or "motley-fl[" in line
            if asks and any(
                "[" in hit or f'"{hit}"' in line or f"'{hit}'" in line for hit in NAME.findall(line)
            ):
                found.append(f"{file.relative_to(ROOT)}:{number}")
    return found


def main() -> None:
    asked = []
    for file in PROJECTS:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
        for extra in project.get("optional-dependencies", {}).values():
            asked += [f"{file.relative_to(ROOT)}: {one}" for one in extra if NAME.match(one)]
    found = [*hints(), *asked]
    figure = f"{len(found)} places ask an index for motley-fl" + (
        f", e.g. {', '.join(found[:3])}" if found else ""
    )
    print(
        json.dumps(
            {"fault": "a name that nobody holds", "succeeded": bool(found), "figure": figure}
        )
    )


if __name__ == "__main__":
    main()
