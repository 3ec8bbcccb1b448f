"""Skeletons of components of one's own: the two files that ``motley new KIND NAME`` writes, a
component and its test, or the folder of a package with them that ``--package`` writes.

What is written works as it is and passes its test; its formulas, state and choices are then
replaced by those of a paper. The templates lie in the folder ``skeletons``.

>>> sorted(skeleton("partition", "my_split"))
['my_split.py', 'test_my_split.py']
"""

from __future__ import annotations

import keyword
import sys
from importlib import resources
from string import Template
from typing import Final

from motley.core.errors import ConfigError, suggest
from motley.experiments import registry
from motley.experiments.folder_names import MOST_NAME_BYTES

SKELETONS: Final = (
    "aggregator",
    "algorithm",
    "compressor",
    "partition",
    "recipe",
    "selector",
    "server",
    "stage",
    "task",
)
"""What there is a skeleton for: kinds of component, and ``recipe``, somebody's published table."""


def skeleton(kind: str, name: str, package: bool = False) -> dict[str, str]:
    """Return path -> text of a new component and of its test, both for one folder; of a package,
    also of its ``pyproject.toml``, by which Motley finds the component where it is installed, and
    of its ``README.md``. A recipe is one file.

    Parameters
    ----------
    kind: one of :data:`SKELETONS`, in singular or plural.
    name: of the component and of its module, in snake_case, e.g. ``"loudest_first"``.
    package: lay all of it in a folder of that name, the test in ``tests``.

    Raises
    ------
    ConfigError: another kind; not a valid module name, or already the name of a component of this
    kind or of a Python module.
    """
    plurals = {f"{singular}s": singular for singular in SKELETONS}
    kind, wanted = plurals.get(kind, kind), kind
    if kind not in SKELETONS:
        raise ConfigError(
            f"got {wanted!r}{suggest(wanted, SKELETONS)}; expected one of: {', '.join(SKELETONS)}",
            "KIND",
        )
    if (
        not (name.isascii() and name.isidentifier() and name == name.lower())
        or keyword.iskeyword(name)
        or name[0] == "_"
    ):
        raise ConfigError(
            f"got {name!r}; expected a name in snake_case, such as loudest_first", "name"
        )
    if len(name) > MOST_NAME_BYTES:
        raise ConfigError(
            f"got a name of {len(name)} characters; expected at most {MOST_NAME_BYTES}", "name"
        )
    if kind != "recipe" and name in registry.catalogue(kind).targets:
        raise ConfigError(
            f"got {name!r}, which is the name of a component of this kind; choose another", "name"
        )
    if name in sys.stdlib_module_names or name in ("motley", "numpy", "pytest", "torch"):
        raise ConfigError(
            f"got {name!r}, which is the name of a Python module; choose another, such as "
            f"{name}_{kind}",
            "name",
        )
    words = [word for word in name.split("_") if word]
    fill = {
        "name": name,
        "title": " ".join(words).capitalize(),
        "class": "".join(word.capitalize() for word in words),
    }
    fill |= {"kind": kind, "distribution": name.strip("_").replace("_", "-")}
    templates = {f"{name}.py": f"{kind}.py", f"test_{name}.py": f"test_{kind}.py"}
    if kind == "recipe":
        if package:
            raise ConfigError("a recipe is one file; leave it out", "--package")
        templates = {f"{name}.toml": "recipe.toml"}
    if package:
        places = {
            f"{name}/{name}.py": f"{kind}.py",
            f"{name}/tests/test_{name}.py": f"test_{kind}.py",
        }
        templates = {
            **places,
            **{f"{name}/{file}": file for file in ("pyproject.toml", "README.md")},
        }
    folder = resources.files("motley.experiments") / "skeletons"
    return {
        path: Template((folder / f"{template}.txt").read_text(encoding="utf-8")).substitute(fill)
        for path, template in templates.items()
    }
