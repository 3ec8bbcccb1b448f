"""The example notebook, run in a kernel as Jupyter does. The ordinary suite runs its cells in its
own process."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.notebook
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:(jupyter_client|zmq|tornado|nbclient|nbformat)"
)
def test_every_cell_of_the_notebook_runs_in_a_kernel_and_shows_its_value(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    outputs: list[list[Any]] = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert not [one for some in outputs for one in some if one.output_type in ("error", "stream")]
    values = [one.data for some in outputs for one in some if one.output_type == "execute_result"]
    experiment, found, table, picture, run, curve = values
    assert all("<table>" in one["text/html"] for one in (experiment, found, run))
    assert 'class="dataframe"' in table["text/html"]
    assert table["text/plain"].splitlines()[1].split()[:3] == ["0", "uniform", "0"]
    for figure in (picture, curve):
        assert base64.b64decode(figure["image/png"]).startswith(b"\x89PNG")
    shown = [one.data["text/plain"] for one in outputs[1] if one.output_type == "display_data"]
    assert shown[0] == ""  # progress is gone when the runs are
    assert shown[1].startswith("in-a-notebook: 4 runs, accuracy ")
