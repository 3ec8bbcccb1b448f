"""Public data sets in the files of their authors, as users unpack them: SVHN, CINIC-10,
Tiny-ImageNet, Digit-Five, Camelyon17. All files are small ones of the same form."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as Picture
from scipy.io import savemat

import motley
from motley.cli import call
from motley.core.errors import DataError
from motley.core.keys import Key
from motley.tasks.image import Image
from motley.tasks.task import Dataset
from motley_data.datasets import load_dataset
from motley_data.formats import matlab
from motley_data.public_data.facts import PUBLIC, known_name
from motley_data.public_data.getting import get, verify
from motley_data.public_data.search import first
from tests.motley_data import layouts
from tests.motley_data.serving import serving

Patch = pytest.MonkeyPatch


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: Patch) -> Path:
    return layouts.bare_machine(tmp_path, monkeypatch)


def let_count(monkeypatch: Patch, name: str, **changes: object) -> None:
    """Let a data set have so many samples."""
    known = PUBLIC[name]
    variant = dataclasses.replace(known.variants[name], **changes)
    monkeypatch.setitem(PUBLIC, name, dataclasses.replace(known, variants={name: variant}))


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# -------------------------------------------------------------------------------------------- SVHN


def svhn(folder: Path, prefix: str = "", train: int = 11, test: int = 4) -> list[np.ndarray]:
    """Write both files as the authors have them: images ``[h, w, c, n]``, labels 1 to 10; return
    the images ``[n, h, w, c]``."""
    folder.mkdir(parents=True, exist_ok=True)
    images = [noise(n, 32, 32, 3, seed=n) for n in (train, test)]
    for half, x in zip(("train", "test"), images, strict=True):
        labels = np.arange(len(x), dtype=np.uint8)[:, None] % 10 + 1
        arrays = {"X": x.transpose(1, 2, 3, 0), "y": labels}
        savemat(folder / f"{prefix}{half}_32x32.mat", arrays, do_compression=True)
    return images


def let_svhn_be(monkeypatch: Patch, folder: Path, train: int = 11, test: int = 4) -> None:
    """Let the files of a folder have the right checksums."""
    downloads = tuple(
        dataclasses.replace(
            file, checksum=hashlib.md5((folder / file.name).read_bytes()).hexdigest()
        )
        for file in PUBLIC["svhn"].downloads
    )
    monkeypatch.setitem(PUBLIC, "svhn", dataclasses.replace(PUBLIC["svhn"], downloads=downloads))
    let_count(monkeypatch, "svhn", train=train, test=test)


@pytest.mark.parametrize("place", ["svhn", "SVHN", "."])
def test_label_10_of_svhn_is_the_digit_0(empty: Path, monkeypatch: Patch, place: str) -> None:
    """Labels 1 2 .. 10 1 in the training half, 1 2 3 4 in the other."""
    train, test = svhn(empty / place)
    let_svhn_be(monkeypatch, empty / place)
    found = load_dataset("svhn")
    assert found.y.tolist() == [0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4]
    assert found.test.tolist() == [False] * 11 + [True] * 4
    rows = [9, 0, 10, *range(1, 9)]  # row 9 has label 10
    assert np.array_equal(found.x[:11].numpy(), train[rows].transpose(0, 3, 1, 2))
    assert found.x[11, 2, 5, 7] == test[0, 5, 7, 2]  # channel, row, column
    assert found.names == tuple("0123456789")
    assert found.groups is None
    assert found.notes == {"data": "SVHN, cropped digits", "variant": "svhn"}
    assert verify("svhn", first("svhn")).known


def test_other_files_of_svhn_are_refused_by_their_checksum(empty: Path, monkeypatch: Patch) -> None:
    svhn(empty / "svhn")
    with pytest.raises(
        DataError,
        match=r"svhn/train_32x32.mat \(\d+ bytes\) is corrupt or truncated: its md5 is "
        r"[0-9a-f]{12}..., expected e26dedcc434d...; fetch the file again",
    ):
        load_dataset("svhn")
    let_svhn_be(monkeypatch, empty / "svhn", train=12)
    with pytest.raises(DataError, match=r"has 11 training samples; expected 12: a part is missing"):
        load_dataset("svhn")
    (empty / "svhn/test_32x32.mat").unlink()
    with pytest.raises(DataError, match=r"svhn/test_32x32.mat does not exist; expected a file"):
        load_dataset("svhn")


def test_svhn_is_downloaded_and_found(empty: Path, monkeypatch: Patch) -> None:
    svhn(empty / "origin")
    let_svhn_be(monkeypatch, empty / "origin")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        server.files = {f"/{path.name}": path.read_bytes() for path in (empty / "origin").iterdir()}
        got = get("svhn", empty / "there", server.base)
        assert get("svhn", empty / "there", server.base) == got
        assert len(server.asked) == 2  # the second time it was there
    assert got.known
    assert (got.found.path, got.size) == (empty / "there/svhn", "15 images")


def test_what_torchvision_expects_of_svhn() -> None:
    assert [(file.name, file.checksum) for file in PUBLIC["svhn"].downloads] == [
        ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    ]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": noise(32, 32, 3, 2)}, "has the arrays X; expected X, y"),
        ({"X": noise(2, 32, 32), "y": [1, 2]}, r"images of uint8 and shape \[2, 32, 32\]; expecte"),
        ({"X": noise(32, 32, 2, 2), "y": [1, 2]}, "holds images of 32 x 32 x 2; expected 28 x 28"),
        ({"X": noise(40, 40, 3, 2), "y": [1, 2]}, "holds images of 40 x 40 x 3; expected 28 x 28"),
        ({"X": noise(32, 32, 3, 2), "y": [1, 11]}, r"labels of int64 and shape \[1, 2\] for 2 im"),
        ({"X": noise(32, 32, 3, 2), "y": [1, 2, 3]}, r"shape \[1, 3\] for 2 images; expected a di"),
        ({"X": noise(32, 32, 3, 2), "y": [0, 10]}, "labels 0 and 10; expected one of them for the"),
    ],
)
def test_files_of_matlab_with_other_arrays(
    empty: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    savemat(empty / "train_32x32.mat", arrays)
    with pytest.raises(DataError, match=f"train_32x32.mat .*{message}"):
        matlab.read_svhn(empty)


def test_damaged_files_of_matlab(empty: Path, monkeypatch: Patch) -> None:
    path = empty / "train_32x32.mat"
    svhn(empty)
    whole = path.read_bytes()
    for content in (b"", b"no MATLAB", whole[:-20]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"train_32x32.mat cannot be read as MATLAB's \(.*\); "):
            matlab.read_svhn(empty)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="has the arrays X; expected X, y: it is truncated or ano"):
        matlab.read_svhn(empty)
    path.write_bytes(whole)
    monkeypatch.setattr(matlab, "_LARGEST", 33_802)  # 11 x 3072 pixels and 11 labels
    with pytest.raises(DataError, match="says that it holds 33,803 values; expected fewer"):
        matlab.read_svhn(empty)


# ---------------------------------------------------------------------------------------- CINIC-10

CLASSES = PUBLIC["cinic10"].names


def cinic(folder: Path, each: int = 2, shape: tuple[int, ...] = (32, 32, 3)) -> None:
    """Images of one value: 0 in train, 100 in valid, 200 in test, plus the class, and 10 more for
    the second one."""
    for half, base in (("train", 0), ("valid", 100), ("test", 200)):
        for label, name in enumerate(CLASSES):
            (folder / half / name).mkdir(parents=True)
            for row in range(each):
                image = np.full(shape, base + label + 10 * row, np.uint8)
                # names in the order of ImageNet's part, CIFAR's first
                file = f"cifar-10-train-{label}.png" if row == 0 else f"n0{label}_{row}.png"
                (folder / half / name / file).write_bytes(layouts.png(image))


def test_cinic10_leaves_its_validation_images_out(empty: Path, monkeypatch: Patch) -> None:
    cinic(empty / "CINIC-10")
    let_count(monkeypatch, "cinic10", train=20, test=20)
    found = load_dataset("cinic10")
    values = [label + more for label in range(10) for more in (0, 10)]
    assert found.x[:, 0, 0, 0].tolist() == [*values, *(200 + value for value in values)]
    assert found.y.tolist() == [*np.repeat(range(10), 2)] * 2
    assert found.test.tolist() == [False] * 20 + [True] * 20
    assert found.names[8] == "ship"
    assert found.notes["data"] == "CINIC-10, its validation images left out"


def test_cinic10_enlarged_trains_on_its_validation_images(empty: Path, monkeypatch: Patch) -> None:
    cinic(empty / "cinic-10")
    let_count(monkeypatch, "cinic10_enlarged", train=40, test=20)
    found = load_dataset("cinic10_enlarged")
    assert found.x[:4, 0, 0, 0].tolist() == [0, 10, 100, 110]  # of the first class
    assert found.y[:5].tolist() == [0, 0, 0, 0, 1]
    assert found.test.sum() == 20
    assert found.x[40:42, 0, 0, 0].tolist() == [200, 210]


def test_what_is_missing_in_cinic10(empty: Path, monkeypatch: Patch) -> None:
    cinic(empty / "cinic10")
    with pytest.raises(
        DataError, match=r"cinic10 \(CINIC-10\) has 20 training samples; expected 90000: a part is"
    ):
        load_dataset("cinic10")
    (empty / "cinic10/train/ship").rename(empty / "cinic10/train/Ship")
    with pytest.raises(
        DataError, match=r"has folders of the classes Ship, airplane, .*; expected airplane, aut"
    ):
        load_dataset("cinic10")
    (empty / "cinic10/valid").rename(empty / "cinic10/val")
    with pytest.raises(DataError, match="has no folder valid; expected train, valid, test: unpack"):
        load_dataset("cinic10_enlarged")


def test_what_nobody_downloads_names_its_archive(
    empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        DataError,
        match=r"cinic10 was not found: looked for CINIC-10/, cinic-10/, cinic10/ in .*; get it "
        r"yourself: CINIC-10.tar.gz \(688 MB, md5 6ee4d0c996905fe93221de577967a372\) of doi .*, "
        r"unpacked into a folder CINIC-10 with train/, valid/ and test/, or name the folder",
    ):
        load_dataset("cinic10")
    assert call(["data", "get", "Tiny-ImageNet"]) == 2
    assert (
        "Tiny-ImageNet is not downloaded by this command; get it yourself: tiny-imagenet-200.zip "
        "(248 MB, md5 90528d7ca1a48142e341f4ef8d21d0de) of cs231n.stanford.edu"
    ) in capsys.readouterr().err
    assert call(["data", "list"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if " by hand " in line]
    assert [row.split()[0] for row in rows] == [
        "cinic10",
        "cinic10_enlarged",
        "tiny_imagenet",
        "digit_five",
        "camelyon17",
    ]


def test_other_shapes_are_refused(empty: Path) -> None:
    cinic(empty / "CINIC-10", each=1, shape=(64, 64, 3))
    with pytest.raises(DataError, match=r"of shape \[3, 64, 64\]; expected bytes, 3x32x32"):
        load_dataset("cinic10")


# ----------------------------------------------------------------------------------- Tiny-ImageNet


def test_tiny_imagenet_tests_on_its_validation_images(empty: Path, monkeypatch: Patch) -> None:
    """The class of a training image is its folder, that of a validation image is in the list; a
    grey image has three equal channels, though it be the first. Nothing is said of test/."""
    root = empty / "tiny-imagenet-200"
    wnids = ("n01443537", "n01629819")
    grey = np.full((64, 64), 10, np.uint8)
    colour = np.full((64, 64, 3), (200, 100, 50), np.uint8)
    for wnid, image in zip(wnids, (grey, colour), strict=True):
        (root / "train" / wnid / "images").mkdir(parents=True)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
        Picture.fromarray(image).save(root / "train" / wnid / "images" / f"{wnid}_0.JPEG")
    for half in ("val", "test"):
        (root / half / "images").mkdir(parents=True)
        for row, level in enumerate((30, 60, 90)):
            picture = Picture.fromarray(np.full((64, 64, 3), level, np.uint8))
            picture.save(root / half / "images" / f"{half}_{row}.JPEG")
    listed = [(0, wnids[1]), (1, wnids[0]), (2, wnids[1])]
    (root / "val/val_annotations.txt").write_text(
        "".join(f"val_{row}.JPEG\t{wnid}\t0\t0\t62\t62\n" for row, wnid in listed)
    )
    (root / "wnids.txt").write_text("\n".join(reversed(wnids)))
    let_count(monkeypatch, "tiny_imagenet", train=2, test=3)
    found = load_dataset("tiny_imagenet")
    assert found.y.tolist() == [0, 1, 0, 1, 1]
    assert found.test.tolist() == [False, False, True, True, True]
    assert found.x[:, :, 9, 9][[0, 2, 3, 4]].tolist() == [[v] * 3 for v in (10, 60, 30, 90)]
    assert (found.x[1, :, 9, 9].int() - torch.tensor([200, 100, 50])).abs().max() <= 2  # JPEG
    assert found.names == wnids
    assert found.notes["pictures"] == "1 of 5 are grey and were converted"
    let_count(monkeypatch, "tiny_imagenet", test=4)
    with pytest.raises(DataError, match=r"\(Tiny-ImageNet\) has 3 test samples; expected 4"):
        load_dataset("tiny_imagenet")


# -------------------------------------------------------------------------------------- Digit-Five

DOMAINS = ("mnist", "mnist_m", "svhn", "syn", "usps")


def digit_five(folder: Path, train: int = 3, test: int = 2) -> dict[str, list[np.ndarray]]:
    """Write the six files, in whose training halves the digits are 0, 1, 2 ..., in the others 5, 6
    ..., and return their images."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = (train, test)
    digits = [np.arange(train) % 10, (np.arange(test) + 5) % 10]
    hot = [np.eye(10)[y] for y in digits]
    rows = [y[:, None] for y in digits]
    grey = [noise(n, 32, 32, seed=1) for n in sizes]
    colour = [noise(n, 28, 28, 3, seed=2) for n in sizes]
    made = [noise(n, 32, 32, 3, seed=3) for n in sizes]
    post = [noise(n, 28, 28, seed=4) for n in sizes]
    savemat(
        folder / "mnist_data.mat",
        {"train_32": grey[0], "test_32": grey[1], "label_train": hot[0], "label_test": hot[1]},
    )
    savemat(
        folder / "mnistm_with_label.mat",
        {"train": colour[0], "test": colour[1], "label_train": hot[0], "label_test": hot[1]},
    )
    streets = [noise(n, 32, 32, 3, seed=5) for n in sizes]
    for half, x, y in zip(("train", "test"), streets, rows, strict=True):
        arrays = {"X": x.transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y)}
        savemat(folder / f"svhn_{half}_32x32.mat", arrays)
    savemat(
        folder / "syn_number.mat",
        {
            "train_data": made[0],
            "test_data": made[1],
            "train_label": rows[0],
            "test_label": rows[1],
        },
    )
    cells = np.empty((2, 2), object)
    for half in (0, 1):
        cells[half, 0] = (post[half] / 255.0)[:, None] + 1e-4 * (post[half][:, None] < 255)
        cells[half, 1] = rows[half]
    savemat(folder / "usps_28x28.mat", {"dataset": cells})
    return dict(zip(DOMAINS, (grey, colour, streets, made, post), strict=True))


def let_domains(monkeypatch: Patch, train: int = 3, test: int = 2) -> None:
    let_count(monkeypatch, "digit_five", clients=dict.fromkeys(DOMAINS, (train, test)))


def rows_of(found: Dataset, domain: str) -> np.ndarray:
    assert found.groups is not None
    return found.x[torch.from_numpy(found.groups == DOMAINS.index(domain))].numpy()


@pytest.mark.parametrize("place", ["Digit-Five", "."])
def test_the_domains_of_digit_five_are_clients(empty: Path, monkeypatch: Patch, place: str) -> None:
    images = digit_five(empty / place)
    let_domains(monkeypatch)
    found = load_dataset("digit_five")
    assert found.client_names == DOMAINS
    assert found.y.tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [5] * 5 + [6] * 5
    assert found.groups is not None
    assert found.groups.tolist() == [0, 1, 2, 3, 4] * 5
    assert found.test.tolist() == [False] * 15 + [True] * 10
    assert found.x.shape == (25, 3, 32, 32)
    for domain in ("svhn", "syn"):
        want = np.concatenate(images[domain]).transpose(0, 3, 1, 2)
        assert np.array_equal(rows_of(found, domain), want)
    grey = np.concatenate(images["mnist"])[:, None]
    assert np.array_equal(rows_of(found, "mnist"), np.repeat(grey, 3, 1))


def test_images_of_28_pixels_are_scaled_to_32(empty: Path, monkeypatch: Patch) -> None:
    """By Pillow's bilinear filter, channel by channel; pixels of USPS are numbers in [0, 1] whose
    fractions of a 255th are cut off."""
    images = digit_five(empty)
    let_domains(monkeypatch)
    found = load_dataset("digit_five")

    def scaled(image: np.ndarray) -> np.ndarray:
        return np.asarray(Picture.fromarray(image).resize((32, 32), Picture.Resampling.BILINEAR))

    for at, image in enumerate(np.concatenate(images["mnist_m"])):
        want = np.stack([scaled(image[..., channel]) for channel in range(3)])
        assert np.array_equal(rows_of(found, "mnist_m")[at], want)
    post = np.concatenate(images["usps"])
    for at, image in enumerate(post):
        assert np.array_equal(rows_of(found, "usps")[at], np.stack([scaled(image)] * 3))


def test_mnist_of_digit_five_may_lie_in_rows(empty: Path, monkeypatch: Patch) -> None:
    images = digit_five(empty)
    let_domains(monkeypatch)
    train, test = (x.reshape(len(x), 1024) for x in images["mnist"])
    labels = {"label_train": np.eye(10)[:3], "label_test": np.eye(10)[[5, 6]]}
    savemat(empty / "mnist_data.mat", {"train_32": train, "test_32": test, **labels})
    want = np.concatenate(images["mnist"])
    assert np.array_equal(rows_of(load_dataset("digit_five"), "mnist")[:, 1], want)


def test_what_is_missing_in_digit_five(empty: Path, monkeypatch: Patch) -> None:
    images = digit_five(empty / "Digit-Five")
    with pytest.raises(
        DataError,
        match=r"Digit-Five \(Digit-Five\) has 3 training samples of mnist; expected 55000: a part",
    ):
        load_dataset("digit_five")
    train, test = (x / 255 for x in images["mnist"])
    labels = {"label_train": np.eye(10)[:3], "label_test": np.eye(10)[[5, 6]]}
    path = empty / "Digit-Five/mnist_data.mat"
    savemat(path, {"train_32": train, "test_32": test, **labels})
    with pytest.raises(DataError, match=r"mnist_data.mat holds pixels from 0 to 1; expected 0 to"):
        load_dataset("digit_five")
    path.unlink()
    with pytest.raises(DataError, match=r"Digit-Five/mnist_data.mat does not exist; expected"):
        load_dataset("digit_five")
    digit_five(empty / "Digit-Five")
    savemat(empty / "Digit-Five/usps_28x28.mat", {"dataset": np.zeros((3, 2))})
    with pytest.raises(DataError, match=r"usps_28x28.mat holds float64 of shape \[3, 2\] as data"):
        load_dataset("digit_five")


def test_a_run_on_digit_five_has_its_domains_as_clients(empty: Path, monkeypatch: Patch) -> None:
    digit_five(empty)
    let_domains(monkeypatch)
    keys = {
        "cohort": 5,
        "stop": {"rounds": 1},
        "task": {"name": "image", "data": "digit_five", "model": "logistic_regression"},
        "partition": "by_writer",
        "split": {"test": "global"},
    }
    run = motley.run(keys, out=empty / "run")
    assert run.client_names == dict(enumerate(DOMAINS))
    assert run.meta["data"] == {"digit_five": "digit_five"}


# -------------------------------------------------------------------------------------- Camelyon17

HEAD = ",patient,node,x_coord,y_coord,tumor,slide,center,split"
PATCHES = (
    # patient, node, x, y, tumor, slide, center, split
    ("004", 4, 3328, 21792, 1, 0, 0, 0),
    ("020", 2, 10, 20, 0, 10, 1, 1),
    ("042", 3, 11, 20, 1, 20, 2, 0),
    ("004", 4, 12, 20, 0, 0, 0, 1),
)


def camelyon(folder: Path) -> list[np.ndarray]:
    """Write patches in red, green, blue and an alpha channel, as OpenSlide saves them."""
    images = []
    lines = [HEAD]
    for row, (patient, node, x, y, *rest) in enumerate(PATCHES):
        stem = f"patient_{patient}_node_{node}"
        inner = folder / "patches" / stem
        inner.mkdir(parents=True, exist_ok=True)
        image = noise(96, 96, 4, seed=row)
        image[..., 3] = 255
        (inner / f"patch_{stem}_x_{x}_y_{y}.png").write_bytes(layouts.png(image))
        images.append(image[..., :3])
        lines.append(",".join(map(str, (row, patient, node, x, y, *rest))))
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return images


def test_the_hospitals_of_camelyon17_are_clients(empty: Path, monkeypatch: Patch) -> None:
    images = camelyon(empty / "camelyon17_v1.0")
    let_count(monkeypatch, "camelyon17", total=4)
    found = load_dataset("camelyon17")
    assert np.array_equal(found.x.numpy(), np.stack(images).transpose(0, 3, 1, 2))
    assert found.y.tolist() == [1, 0, 1, 0]
    assert found.groups is not None
    assert found.groups.tolist() == [0, 1, 2, 0]
    assert found.client_names == ()  # hospital k is client k
    assert found.test.tolist() == [False, True, False, True]
    assert found.names == ("normal", "tumor")
    by_path = Image(str(empty / "camelyon17_v1.0"), scale="unit").load(Key(0), 0)
    assert torch.equal(by_path.x, found.x / 255)
    assert by_path.groups is not None
    assert by_path.groups.tolist() == [0, 1, 2, 0]


def test_a_folder_of_some_hospitals_names_them(empty: Path) -> None:
    folder = empty / "mine"
    camelyon(folder)
    text = (folder / "metadata.csv").read_text()
    (folder / "metadata.csv").write_text(text.replace(",0,0,0\n", ",0,4,0\n"))
    found = Image(str(folder)).load(Key(0), 0)
    assert found.client_names == ("center=0", "center=1", "center=2", "center=4")


def test_what_is_missing_in_camelyon17(empty: Path) -> None:
    folder = empty / "camelyon17_v1.0"
    camelyon(folder)
    with pytest.raises(DataError, match=r"WILDS\) has 4 samples; expected 455954: a part is miss"):
        load_dataset("camelyon17")
    listed = folder / "metadata.csv"
    whole = listed.read_text()
    for text, message in (
        (
            whole.replace("center", "hospital"),
            "patient, .*hospital, split; expected patient, .*, split; if",
        ),
        (whole.replace(",1,1\n", ",east,1\n"), r"line 3 is not as WILDS has it \(invalid literal"),
        (
            whole.replace(",1,0,0,0\n", ",2,0,0,0\n"),
            r"labels out of range, from 0 to 2; expected 0",
        ),
        (HEAD + "\n", "lists no patches"),
        (
            whole.replace("004,4,12,20", "004,4,13,20"),
            r"patch_patient_004_node_4_x_13_y_20.png does not exist",
        ),
    ):
        listed.write_text(text)
        with pytest.raises(DataError, match=message):
            load_dataset("camelyon17")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("SVHN", "svhn"),
        ("CINIC-10", "cinic10"),
        ("Tiny-ImageNet", "tiny_imagenet"),
        ("Digit-Five", "digit_five"),
        ("Camelyon17", "camelyon17"),
    ],
)
def test_names_as_papers_write_them(written: str, name: str) -> None:
    assert known_name(written) == name
