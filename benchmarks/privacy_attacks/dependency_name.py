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

ROOT = Path(motley.__file__).resolve().parents[1]
NAME = re.compile(r"motley-fl\b(?:\[[^\]\n]*\])?(?! *@ )")


def hints() -> list[str]:
    """Messages and pages with a pip command, a requirement or an extra of that name."""
    files = [
        ROOT / "README.md",
        *(ROOT / "motley").rglob("*.py"),
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [
        one
        for extra in project["optional-dependencies"].values()
        for one in extra
        if NAME.match(one)
    ]
    found = [*hints(), *(f"pyproject.toml: {one}" for one in asked)]
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
