"""The facts of a machine on which bits depend: versions of Python and of libraries, and hashes of
source files.

:func:`facts` is sent to the nodes of a cluster by value, for Motley may be absent there. So this
module uses Python's library alone.
"""

import hashlib
import importlib.util
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

CODE = "code of "
"""How the name of a fact begins that is the hash of a source file."""
MISSING = "ModuleNotFoundError: "
"""How the value of a fact begins whose module is not there."""
RAY = "motley_ray"
"""The package of the actors, and the name of the fact that says where it is missing."""


def facts(libraries: Sequence[str], modules: Sequence[str]) -> dict[str, str]:
    """Return the facts of this machine by name: versions, and hashes of the files of Motley, of
    this distribution and of modules, or why there is none.

    Parameters
    ----------
    libraries: names of installed packages.
    modules: full names of modules whose source counts.
    """
    versions = {"Python": platform.python_version()}
    for name in libraries:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if _file(name) is None:
                versions[name] = f"{MISSING}No module named '{name}'"
            else:
                versions[name] = "a version without a name"
    origin = _file("motley")
    if origin is None:
        versions["Motley"] = f"{MISSING}No module named 'motley'"
    else:
        match = re.search(
            r'^__version__ = "(.*)"', Path(origin).read_text(encoding="utf-8"), re.MULTILINE
        )
        versions["Motley"] = match[1] if match else "a version without a number"
        versions |= _hashes(origin)
    origin = _file(RAY)
    if origin is None:
        versions[RAY] = f"{MISSING}No module named '{RAY}'"
    else:
        versions |= _hashes(origin)
    for name in modules:
        origin = _file(name)
        versions[f"{CODE}{name}"] = (
            f"{MISSING}No module named '{name}'" if origin is None else _hash(Path(origin))
        )
    return versions


def _file(name: str) -> str | None:
    """Return the file of a module, which is not imported (its packages are); None if there is
    none."""
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # whatever a package raises when it is imported
        return None
    return None if spec is None else spec.origin


def _hashes(origin: str) -> dict[str, str]:
    """Return the hashes of all files of a package, whose ``__init__.py`` is given."""
    folder = Path(origin).parent
    return {
        f"{CODE}{path.relative_to(folder.parent).as_posix()}": _hash(path)
        for path in sorted(folder.rglob("*.py"))
    }


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        return f"{type(error).__name__}: {error}"
