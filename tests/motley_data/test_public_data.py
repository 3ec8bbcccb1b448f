import dataclasses
import gzip
import json
import os
import pickle
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import motley
from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.tasks.image import Image
from motley.tasks.kept_data import last_kept
from motley_data.datasets import load_dataset, load_shakespeare
from motley_data.formats import cifar_pickles, texts
from motley_data.public_data import canonical, packs
from motley_data.public_data.facts import PUBLIC, Variant, known_name
from motley_data.public_data.getting import default_folder
from motley_data.public_data.search import looked_in, search
from tests.motley_data import layouts
from tests.motley_data.layouts import CIFAR_LAYOUTS, MNIST_LAYOUTS, TEST, TRAIN, Halves

Write = Callable[[Path, Halves], None]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return layouts.bare_machine(tmp_path, monkeypatch)


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> Halves:
    data = layouts.halves()
    layouts.let_it_be(monkeypatch, "mnist", data)
    return data


@pytest.fixture
def cifar(monkeypatch: pytest.MonkeyPatch) -> Halves:
    data = layouts.halves((32, 32, 3))
    layouts.let_it_be(monkeypatch, "cifar10", data)
    return data


def in_class_order(data: Halves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    orders = [np.argsort(y, kind="stable") for y in data.y]
    x = np.concatenate([x[order] for x, order in zip(data.x, orders, strict=True)])
    y = np.concatenate([y[order] for y, order in zip(data.y, orders, strict=True)])
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    return x, y, np.repeat([False, True], [TRAIN, TEST])


@pytest.mark.parametrize("layout", MNIST_LAYOUTS)
def test_every_layout_of_mnist_gives_the_same_arrays_and_digest(
    empty: Path, mnist: Halves, layout: str
) -> None:
    MNIST_LAYOUTS[layout](empty, mnist)
    found = load_dataset("mnist")
    x, y, test = in_class_order(mnist)
    assert np.array_equal(found.x.numpy(), x)
    assert found.y.tolist() == y.tolist()
    assert found.test.tolist() == test.tolist()
    assert found.names == tuple("0123456789")
    original = np.lexsort((found.places, found.test))
    assert found.y[original].tolist() == np.concatenate(mnist.y).tolist()
    assert found.notes == {
        "data": "MNIST without writers (they are in the pack mnist.npz)",
        "variant": "mnist",
    }
    assert canonical.digest(canonical.canonical(found)) == layouts.canonical_digest(mnist)


@pytest.mark.parametrize("layout", CIFAR_LAYOUTS)
def test_every_layout_of_cifar10_gives_the_same_arrays_and_digest(
    empty: Path, cifar: Halves, layout: str
) -> None:
    CIFAR_LAYOUTS[layout](empty, cifar)
    found = load_dataset("cifar10")
    x, y, _ = in_class_order(cifar)
    assert np.array_equal(found.x.numpy(), x)
    assert found.y.tolist() == y.tolist()
    assert found.names[8] == "ship"
    assert canonical.digest(canonical.canonical(found)) == layouts.canonical_digest(cifar)


def test_the_pack_knows_the_original_order_and_one_that_is_sorted_by_bytes_does_not(
    empty: Path, mnist: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts.pack(empty, mnist, monkeypatch)
    monkeypatch.setenv("MOTLEY_DATA", str(empty))
    found = load_dataset("mnist")
    original = np.lexsort((found.places, found.test))
    assert found.y[original].tolist() == np.concatenate(mnist.y).tolist()
    mixed = dataclasses.replace(found, x=found.x.flip(0), y=found.y.flip(0), test=found.test[::-1])
    variant = Variant("", digest=canonical.digest(canonical.canonical(found)), ordered="other")
    assert canonical.checked(mixed, variant, "here").places.tolist() == []


def test_the_bits_of_a_run_are_the_same_from_every_layout(
    empty: Path, mnist: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same run id, the same model and the same tables, from the pack, too."""
    keys = {
        "population": 5,
        "cohort": 2,
        "stop": {"rounds": 2},
        "partition": {"name": "dirichlet", "alpha": 0.5, "min_size": 1},
        "task": {"name": "image", "data": "mnist", "model": "logistic_regression"},
        "split": {"test": "global"},
    }
    ids = set()
    models = set()
    tables = set()
    every = {**MNIST_LAYOUTS, "pack": lambda root, data: layouts.pack(root, data, monkeypatch)}
    for number, (name, write) in enumerate(every.items()):
        root = empty / str(number)
        monkeypatch.setenv("HF_HUB_CACHE", str(root))
        write(root, mnist)
        run = motley.run(keys, out=empty / "runs" / name.replace(" ", "_"), data=root)
        ids.add(json.loads((run.directory / "run.json").read_text())["run_id"])
        models.add((run.directory / "model.safetensors").read_bytes())
        tables.add(str(run.tables["evaluations"].to_pydict()))
    assert len(ids) == len(models) == len(tables) == 1


@pytest.mark.parametrize("folder", ["home/here", "~/here"])
def test_a_folder_of_data_is_a_string_as_well_as_a_path(
    folder: str, empty: Path, mnist: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts.pack(empty / "home" / "here", mnist, monkeypatch)
    keys = {
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "partition": "iid",
        "task": {"name": "image", "data": "mnist", "model": "logistic_regression"},
    }
    assert motley.run(keys, out="alone", data=folder).finished
    assert motley.compare(keys, seeds=[0], out="together", data=folder).runs[0].finished
    assert not motley.build(keys, data=folder).done
    monkeypatch.setenv("MOTLEY_DATA", folder)
    assert not motley.build(keys).done
    assert default_folder().resolve() == empty / "home" / "here"


def test_a_sweep_reads_a_set_once_and_writes_nothing_into_it(
    empty: Path, mnist: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits of each run are those of a run by itself, whatever is done to the samples; a file
    that changed is read anew."""
    layouts.pack(empty / "here", mnist, monkeypatch)
    base = {
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "partition": "iid",
        "split": {"test": "global"},
        "task": {"name": "image", "data": "mnist", "model": "logistic_regression"},
    }
    base |= {
        "label_noise": {"name": "symmetric", "rate": 0.5},
        "concept_shift": "swap",
        "feature_shift": "transform",
    }
    over = {"task.augment": ["none", "crop_flip"], "label_noise.rate": [0.5, 0.0]}
    times = []
    whole = packs.read
    monkeypatch.setattr(packs, "read", lambda *where: times.append(where) or whole(*where))
    together = motley.compare(base, over, out=empty / "together", data=empty / "here").runs
    assert (len(together), len(times)) == (4, 1)
    for number, one in enumerate(together):
        alone = motley.run(one.meta["config"], out=empty / f"alone{number}", data=empty / "here")
        assert (alone.directory / "model.safetensors").read_bytes() == (
            one.directory / "model.safetensors"
        ).read_bytes()
        assert alone.tables["evaluations"].equals(one.tables["evaluations"])
    with last_kept():
        first = load_dataset("mnist", empty / "here")
        assert load_dataset("mnist", empty / "here") is first

        def scaled(scale: str) -> torch.Tensor:
            return Image("mnist", scale=scale).load(Key(0), 4, empty / "here").x

        standard = scaled("standard")
        assert scaled("standard") is standard
        assert not torch.equal(scaled("unit"), standard)
        mnist.x[0][0] = 255 - mnist.x[0][0]
        layouts.pack(empty / "here", mnist, monkeypatch)
        assert not torch.equal(load_dataset("mnist", empty / "here").x, first.x)
        assert not torch.equal(scaled("standard"), standard)
    assert load_dataset("mnist", empty / "here") is not load_dataset("mnist", empty / "here")


def test_cifar100_is_checked_by_the_means_of_its_channels(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = layouts.halves((32, 32, 3), 100)
    means = tuple(float(mean) for mean in (data.x[0] / 255).mean((0, 1, 2)))
    known = PUBLIC["cifar100"]
    for wanted in (means, (0.5, 0.5, 0.5)):
        variants = {
            **known.variants,
            "cifar100": Variant("CIFAR-100", train=TRAIN, test=TEST, means=wanted),
        }
        monkeypatch.setitem(PUBLIC, "cifar100", dataclasses.replace(known, variants=variants))
        for write, folder in (
            (layouts.cifar_binary, "cifar-100-binary"),
            (layouts.cifar_pickle, "cifar-100-python"),
        ):
            write(empty / folder, data, True)
            if wanted == means:
                assert np.array_equal(load_dataset("cifar100").x.numpy(), in_class_order(data)[0])
            else:
                with pytest.raises(
                    DataError,
                    match=r"corrupt or no original: the means of its channels are .*; expected "
                    r"0.5, 0.5, 0.5",
                ):
                    load_dataset("cifar100")


def test_another_order_gets_the_canonical_one_and_says_so(empty: Path, mnist: Halves) -> None:
    shuffled = Halves(
        tuple(x[::-1].copy() for x in mnist.x), tuple(y[::-1].copy() for y in mnist.y)
    )
    layouts.idx(empty / "MNIST/raw", shuffled)
    found = load_dataset("mnist")
    assert "in another order than the original's" in found.notes["data"]
    assert canonical.digest(found) == layouts.canonical_digest(mnist)


def test_images_without_a_digest_of_their_own_are_left_out_of_it(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CIFAR-10's digest does not cover the images that the pack has from JPEG only."""
    data = layouts.halves((32, 32, 3))
    orders = [np.argsort(y, kind="stable") for y in data.y]
    drop = [orders[0][3], orders[1][5]]  # rows 3 and 50 + 5 of the data set
    rest = Halves(
        tuple(np.delete(x, row, 0) for x, row in zip(data.x, drop, strict=True)),
        tuple(np.delete(y, row) for y, row in zip(data.y, drop, strict=True)),
    )
    variant = Variant(
        "CIFAR-10",
        layouts.canonical_digest(rest),
        layouts.ordered_digest(rest),
        TRAIN,
        TEST,
        (3, TRAIN + 5),
    )
    monkeypatch.setitem(
        PUBLIC, "cifar10", dataclasses.replace(PUBLIC["cifar10"], variants={"cifar10": variant})
    )
    layouts.cifar_binary(empty / "cifar-10-batches-bin", data)
    assert len(load_dataset("cifar10").x) == TRAIN + TEST
    data.x[0][orders[0][4]] += 1
    layouts.cifar_binary(empty / "cifar-10-batches-bin", data)
    with pytest.raises(DataError, match="is corrupt or no original"):
        load_dataset("cifar10")


def test_emnist_is_turned_upright_and_its_letters_count_from_zero(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = layouts.halves(classes=26)
    sideways = Halves(tuple(x.transpose(0, 2, 1) for x in data.x), tuple(y + 1 for y in data.y))
    known = PUBLIC["emnist_letters"]
    variants = {"emnist_letters": Variant("EMNIST", train=TRAIN, test=TEST)}
    monkeypatch.setitem(PUBLIC, "emnist_letters", dataclasses.replace(known, variants=variants))
    layouts.idx(empty / "EMNIST/raw", sideways, ".gz", "emnist-letters-")
    # another split beside it
    layouts.idx(empty / "EMNIST/raw", layouts.halves(), ".gz", "emnist-digits-")
    found = load_dataset("emnist_letters")
    assert np.array_equal(found.x.numpy(), in_class_order(data)[0])
    assert found.names[0] == "A"


@pytest.mark.parametrize("layout", ["leaf", "parquet"])
def test_femnist_as_leaf_and_the_hub_have_it(empty: Path, layout: str) -> None:
    data = layouts.halves(classes=40)
    if layout == "leaf":
        layouts.leaf(empty / "femnist/data/all_data", data)
        rows = np.concatenate([np.arange(TRAIN)[writer::5] for writer in range(5)])
    else:
        (empty / "femnist").mkdir()
        rows = np.arange(TRAIN)
        columns = {
            "image": [{"bytes": layouts.png(x)} for x in data.x[0]],
            "character": data.y[0],
            "writer_id": [f"f{row % 5:04d}_14" for row in range(TRAIN)],
        }
        pq.write_table(pa.table(columns), empty / "femnist" / "train-00000-of-00001.parquet")
    found = load_dataset("femnist")
    assert np.array_equal(found.x[:, 0].numpy(), data.x[0][rows])
    assert found.y.tolist() == data.y[0][rows].tolist()
    assert found.groups is not None
    assert found.groups.tolist() == (rows % 5).tolist()
    assert found.notes["data"] == "FEMNIST, 5 writers as LEAF has them"


def test_shakespeare_as_the_hub_has_it(empty: Path) -> None:
    (empty / "shakespeare").mkdir()
    text = 'to be, or\n"not" to be'
    quoted = [
        [text[i : i + 4].replace('"', '""'), text[i + 4].replace('"', '""')]
        for i in range(len(text) - 4)
    ]
    rows = "".join(f'LEAR,"{window}","{after}"\n' for window, after in quoted)
    (empty / "shakespeare" / "shakespeare.csv").write_text("character_id,x,y\n" + rows)
    found = load_shakespeare()
    assert found.names == ("LEAR",)
    assert found.train[0] + found.test[0] == text
    (empty / "shakespeare" / "shakespeare.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="expected the columns character_id, x, y"):
        texts.read_csv(empty / "shakespeare")


# -------------------------------------------------------------------------------- what is not found


def test_what_is_not_found_names_places_and_the_command(empty: Path) -> None:
    with pytest.raises(DataError) as error:
        load_dataset("mnist")
    said = str(error.value)
    assert said.startswith(
        "mnist was not found: looked for mnist.npz, MNIST/raw/, datasets--ylecun--mnist/, "
    )
    assert f"in {empty}, {empty}/data, " in said
    assert "home/.cache/motley" in said
    assert said.endswith(
        "get it with: motley data get mnist (12 MB), or name the folder that has it: --data DIR, "
        "or MOTLEY_DATA"
    )


def test_the_order_of_the_search(
    empty: Path, mnist: Halves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHVISION_DATA", str(empty / "torchvision"))
    monkeypatch.setenv("HF_HOME", str(empty / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE")
    for root in ("given", "data", "home/.cache/motley", "torchvision"):
        layouts.idx(empty / root / "MNIST/raw", mnist)
    layouts.keras(empty / "home/.keras/datasets", mnist)
    layouts.parquet(empty / "hf/hub/datasets--ylecun--mnist", mnist)
    found = [str(one.path.relative_to(empty)) for one in search("mnist", empty / "given")]
    roots = ["given", "data", "home/.cache/motley", "torchvision"]
    assert found == [
        *(f"{root}/MNIST/raw" for root in roots),
        "home/.keras/datasets",
        "hf/hub/datasets--ylecun--mnist",
    ]
    assert looked_in(empty / "given")[:2] == [empty / "given", empty]


def test_what_is_no_file_is_never_opened(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        zipfile, "ZipFile", lambda path: pytest.fail("a named pipe would wait for ever")
    )
    (empty / "pack").mkdir()
    os.mkfifo(empty / "pack" / "mnist.npz")
    assert [one.where for one in search("mnist", empty / "pack")] == [empty / "pack" / "mnist.npz"]
    with pytest.raises(DataError, match=r"mnist.npz is a named pipe; expected a file of data"):
        load_dataset("mnist", empty / "pack")


def test_natural_clients_are_refused_where_the_source_has_none(empty: Path, mnist: Halves) -> None:
    layouts.idx(empty / "MNIST/raw", mnist)
    keys = {
        "stop": {"rounds": 1},
        "cohort": 1,
        "task": {"name": "image", "data": "mnist"},
        "partition": "by_writer",
    }
    with pytest.raises(
        ConfigError, match=r"MNIST without writers \(they are in the pack mnist.npz\)"
    ):
        motley.run(keys, out=empty / "run")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("MNIST", "mnist"),
        ("Fashion-MNIST", "fashion_mnist"),
        ("CIFAR-10", "cifar10"),
        ("emnist", "emnist_balanced"),
    ],
)
def test_names_as_people_write_them(said: str, name: str) -> None:
    assert known_name(said) == name


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        DataError, match=r"task.data: got 'emnist' \(did you mean 'emnist_balanced'\?\)"
    ):
        Image(data="emnist").load(Key(0), 1)
    with pytest.raises(
        ConfigError, match=r"got 'mnst' \(did you mean 'mnist'\?\); expected one of: mnist"
    ):
        known_name("mnst")


# ---------------------------------------------------------------------------- damaged and malicious


def test_changed_images_are_noticed(empty: Path, mnist: Halves) -> None:
    mnist.x[1][7, 3, 3] ^= 1
    layouts.idx(empty / "MNIST/raw", mnist)
    with pytest.raises(
        DataError,
        match=r"MNIST/raw \(MNIST\) is corrupt or no original: the digest of its decoded images is",
    ):
        load_dataset("mnist")


def test_missing_images_and_other_shapes_are_noticed(empty: Path, mnist: Halves) -> None:
    layouts.idx(
        empty / "MNIST/raw", Halves((mnist.x[0][:-1], mnist.x[1]), (mnist.y[0][:-1], mnist.y[1]))
    )
    with pytest.raises(DataError, match="has 49 training samples; expected 50: a part is missing"):
        load_dataset("mnist")
    layouts.idx(empty / "MNIST/raw", layouts.halves((20, 20)))
    with pytest.raises(
        DataError, match=r"holds torch.uint8 of shape \[1, 20, 20\]; expected bytes"
    ):
        load_dataset("mnist")


def test_half_of_a_series_of_parquet_files(empty: Path, mnist: Halves) -> None:
    root = empty / "datasets--ylecun--mnist"
    layouts.parquet(root, mnist)
    train = next(root.rglob("train-*"))
    train.rename(train.with_name("train-00000-of-00003.parquet"))
    with pytest.raises(DataError, match=r"has 1 of 3 files train-\*.parquet; get the others"):
        load_dataset("mnist")


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (b"no picture", "image 0 cannot be decoded"),
        (layouts.png(np.zeros((300, 300), np.uint8)), "300 x 300 pixels, expected at most 256"),
    ],
)
def test_pictures_that_are_not_decoded(
    empty: Path, mnist: Halves, picture: bytes, message: str
) -> None:
    root = empty / "datasets--ylecun--mnist"
    layouts.parquet(root, mnist)
    pq.write_table(
        pa.table({"image": [{"bytes": picture}], "label": [0]}), next(root.rglob("train-*"))
    )
    with pytest.raises(DataError, match=message):
        load_dataset("mnist")
    pq.write_table(pa.table({"pixels": [1]}), next(root.rglob("train-*")))
    with pytest.raises(DataError, match="have columns pixels; expected image or img"):
        load_dataset("mnist")


class _Command:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch owned",)


class _Process:
    def __reduce__(self) -> tuple[object, ...]:
        return subprocess.check_output, (["touch", "owned"],)


@pytest.mark.parametrize(
    "evil",
    [_Command(), {"data": _Process()}, {"data": np.array([_Command()], object)}, torch.zeros(2)],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_malicious_pickles_are_refused_and_do_nothing(
    empty: Path, evil: object, protocol: int
) -> None:
    path = empty / "data_batch_1"
    path.write_bytes(pickle.dumps(evil, protocol))
    with pytest.raises(DataError, match="is no batch of CIFAR's"):
        cifar_pickles.read_batch(path, "labels")
    assert not (empty / "owned").exists()


@pytest.mark.parametrize(
    "module", ["os\nsystem", "builtins\neval", "numpy\nload", "numpy.core.multiarray\nfromfile"]
)
def test_names_outside_the_allow_list_are_refused_before_they_are_imported(
    empty: Path, module: str
) -> None:
    path = empty / "data_batch_1"
    path.write_bytes(f"c{module}\n(S'touch owned'\ntR.".encode())
    with pytest.raises(
        DataError, match=f"it names {module.replace(chr(10), '.')}, which is never loaded"
    ):
        cifar_pickles.read_batch(path, "labels")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        layouts.old_pickle(np.zeros((2, 3072), np.uint8), np.arange(2))[:-40],
        layouts.old_pickle(np.zeros((2, 3072), np.uint8), np.arange(3)),
        layouts.old_pickle(np.zeros((2, 30), np.uint8), np.arange(2)),
        layouts.old_pickle(np.zeros((2, 3072), np.uint8), np.arange(2), b"other"),
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": 3, b"labels": []}),
    ],
)
def test_damaged_pickles(empty: Path, content: bytes) -> None:
    path = empty / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is no batch of CIFAR's"):
        cifar_pickles.read_batch(path, "labels")


def test_a_pickle_of_a_present_numpy_is_read_too(empty: Path) -> None:
    x = layouts.halves((32, 32, 3)).x[1].transpose(0, 3, 1, 2)
    for protocol in (2, 4):
        (empty / "batch").write_bytes(
            pickle.dumps({"data": x.reshape(TEST, -1), "labels": list(range(TEST))}, protocol)
        )
        pixels, labels = cifar_pickles.read_batch(empty / "batch", "labels")
        assert np.array_equal(pixels, x)
        assert labels.tolist() == list(range(TEST))


def test_a_bomb_in_a_gzip_file_is_not_unpacked(empty: Path, mnist: Halves) -> None:
    layouts.idx(empty / "MNIST/raw", mnist, ".gz")
    images = empty / "MNIST/raw/train-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(struct.pack(">4I", 0x803, TRAIN, 28, 28) + bytes(50_000_000)))
    with pytest.raises(
        DataError, match=r"truncated or damaged: 39217 or more bytes for shape \[50, 28, 28\]"
    ):
        load_dataset("mnist")
    images.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 2**31, 2**10, 2**10)))
    with pytest.raises(DataError, match="says that it holds 2097152 GiB; expected at most 4"):
        load_dataset("mnist")


# ------------------------------------------------------------------------ the packs, where they are


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_digests_of_the_packs(name: str) -> None:
    found = next((one for one in search(name) if one.layout.kind == "pack"), None)
    if found is None:
        pytest.skip(f"the pack {name} is not on this machine")
    data = packs.read(name, found.path)
    variant = PUBLIC[name].variants[found.layout.variant]
    assert canonical.digest(data) == variant.ordered
    assert canonical.digest(canonical.canonical(data)) == variant.digest
