"""Names of the recipes and tables that come with the package, without what runs them: a shell that
completes names does not wait for torch."""

from __future__ import annotations

from importlib import resources


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    folder = resources.files("motley_papers")
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.is_dir() and (entry / "recipe.toml").is_file()
    )


def table_names() -> list[str]:
    """Return the names of the tables that come with the package."""
    folder = resources.files("motley_papers") / "tables"
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )
