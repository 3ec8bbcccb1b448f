"""Names of recipes and tables are told at once."""

from __future__ import annotations

import os
import subprocess
import sys

from motley_papers.packaged import recipe_names, table_names
from tests.places import PYTHONPATH


def test_names_are_of_folders_with_a_recipe_and_of_files() -> None:
    assert {"flash", "league"} <= set(recipe_names())
    assert not {"rules", "tables", "recipe"} & set(recipe_names())
    assert {"flamby_brca", "ji_mnist"} <= set(table_names())
    assert all("." not in name for name in table_names())
    assert recipe_names() == sorted(recipe_names())
    assert table_names() == sorted(table_names())


def test_a_shell_that_completes_them_does_not_wait_for_what_runs_them() -> None:
    program = (
        "import sys; from motley_papers.command import _recipes; print(*_recipes('fla')); "
        "assert not {'torch', 'pydantic', 'pyarrow'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    every = [*recipe_names(), *table_names()]
    assert done.stdout.split() == [name for name in every if name.startswith("fla")]
