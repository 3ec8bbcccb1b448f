"""The Dockerfile's instructions fit this checkout; no test builds the image, for its base comes
from the internet."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib

from tests.places import ROOT

TEXT = (ROOT / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    """Return the instructions and their arguments, without comments."""
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines()]


def arguments(name: str) -> list[str]:
    return [argument for instruction, argument in instructions() if instruction == name]


def test_every_instruction_is_one_and_its_places_are_there() -> None:
    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in instructions()} <= known
    assert instructions()[0][0] == "FROM"
    source, target = arguments("COPY")[0].split()
    assert (ROOT / source).is_dir()
    for command in arguments("RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True, timeout=20)
    installs = arguments("RUN")[-1]
    assert installs == f"cd {target} && make install"
    assert re.search(r"^install:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "make" in arguments("RUN")[0].split()
    # what make install builds is what the path begins with, and no environment of the host's
    built = re.search(r"environment=\$\{1:-(\S+)\}", (ROOT / "scripts" / "install").read_text())
    assert built is not None
    assert arguments("ENV")[0].startswith(f"PATH={target}/{built[1]}/bin:")
    assert ".venv*" in (ROOT / ".dockerignore").read_text().splitlines()


def test_its_python_and_its_command_are_the_projects() -> None:
    project = tomllib.loads((ROOT / "packages" / "motley" / "pyproject.toml").read_text())
    lowest = project["project"]["requires-python"].removeprefix(">=").split(".")
    version = re.fullmatch(r"python:(\d+)\.(\d+)-slim", arguments("FROM")[0])
    assert version is not None
    assert [int(part) for part in version.groups()] >= [int(part) for part in lowest]
    assert json.loads(arguments("ENTRYPOINT")[0])[0] in project["project"]["scripts"]
    assert json.loads(arguments("CMD")[0]) == ["--help"]
    shown = re.search(r"docker run .* motley (.*)", TEXT)
    assert shown is not None
    assert f"motley {shown[1]}" in (ROOT / "README.md").read_text()
