"""What the library asks of data that have a name, and what it says where what reads them is
missing."""

import hashlib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motley
from motley.core import extensions
from motley.core.errors import ConfigError, DataError
from motley.core.fingerprint import fingerprint
from motley.core.keys import Key
from motley.experiments.data_variants import data_variants
from motley.tasks import TASKS
from motley.tasks.image import Image
from motley.tasks.preparation import restore_preparation
from motley_data.formats.npz import arrays
from motley_data.named_data import about, download_mb, images, task_of
from motley_data.public_data.facts import PUBLIC
from motley_data.table_preparation import NumberColumn

MISSING = "comes with motley-data, which is not installed; .*: pip install ./packages/motley-data$"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Motley without any distribution beside it; its catalogue forgets those that it had seen."""
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(()))
    vars(TASKS).pop("targets", None)
    yield
    vars(TASKS).pop("targets", None)


def experiment(task: Any) -> motley.Experiment:
    return motley.Experiment(task=task, population=4, cohort=2, stop={"rounds": 1})


def test_a_name_is_that_of_a_task_and_a_download() -> None:
    names = ("mnist", "iris", "digits", "nobody", "my/patients.csv.gz")
    assert [task_of(name) for name in names] == ["image", "tabular", None, None, "tabular"]
    assert download_mb("mnist") == PUBLIC["mnist"].mb
    assert download_mb("iris") is None
    assert about("mnist", "mnist") == PUBLIC["mnist"].variants["mnist"].about


def test_images_at_a_path_have_the_classes_that_are_named(tmp_path: Path) -> None:
    x = np.zeros((3, 1, 2, 2), np.uint8)
    np.savez(tmp_path / "own.npz", x=x, y=np.array([0, 1, 1]))
    assert set(arrays(tmp_path / "own.npz")) == {"x", "y"}
    own = images("own.npz", ("cat", "dog"), tmp_path, "task.data")
    assert (own.classes, own.names, own.measured) == (2, ("cat", "dog"), {})
    assert len(images("own.npz", None, tmp_path, "task.data").measured) == 1
    with pytest.raises(DataError, match=r"^public.data: got 'minst' \(did you mean 'mnist'\?\)"):
        images("minst", None, tmp_path, "public.data")


@pytest.mark.parametrize(
    ("use", "wanted"),
    [
        (lambda: experiment({"name": "image", "data": "mnist"}), "^task.data: 'mnist'"),
        (lambda: experiment({"name": "image", "data": "my/folder"}), "^task.data: 'my/folder'"),
        (lambda: experiment("tabular"), "task.*: 'tabular'"),
        (
            lambda: experiment("mnist"),
            "'mnist'; expected one of: clustered.*; what reads other data",
        ),
        (lambda: experiment("imgae"), r"'imgae' \(did you mean 'image'\?\); expected one of: "),
        (lambda: experiment({"name": "text", "window": 20}), "task.*: 'text'"),
        (lambda: motley.tasks.from_clients([]), "'from_clients'"),
        (lambda: motley.from_flower(None), "'from_flower'"),
        (lambda: motley.tasks.Tabular, "'tabular'"),
        (lambda: restore_preparation({"kind": "table"}), "the preparation of a table"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_what_needs_the_distribution_names_it_in_one_line(
    use: Callable[[], object], wanted: str
) -> None:
    with pytest.raises(ConfigError, match=MISSING) as caught:
        use()
    assert str(caught.value).count("\n") == 0
    with pytest.raises(ConfigError, match=wanted):
        use()


@pytest.mark.usefixtures("alone")
def test_the_digits_need_no_other_distribution() -> None:
    assert experiment("image").run_id() == experiment({"name": "image", "data": "digits"}).run_id()
    assert Image().load(Key(0), 4).x.shape == (1797, 1, 8, 8)
    assert data_variants(experiment("image")) == {}
    with pytest.raises(ConfigError, match=r"got 'digits', a data set; write task = \{ name = \"im"):
        experiment("digits")
    with pytest.raises(ConfigError, match=r"not\.a\.module"):
        experiment("not.a.module:Task")


def test_a_table_written_as_the_task_is_told_its_place() -> None:
    with pytest.raises(ConfigError, match=r'a data set; write .* "tabular", data = "a/b.xlsx" \}'):
        experiment("a/b.xlsx")


def test_components_of_the_distribution_are_motleys_own() -> None:
    assert TASKS.is_builtin(TASKS.get("tabular"))
    assert TASKS.name_of(TASKS.get("hf")) == "hf"


def test_what_moved_counts_by_its_first_name_in_a_fingerprint() -> None:
    name = b"motley.tasks.preparation.NumberColumn "
    token = b"installed %d:%s" % (len(name), name)
    assert fingerprint(NumberColumn) == hashlib.blake2b(token, digest_size=8).hexdigest()
