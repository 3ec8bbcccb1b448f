"""What is known of each public data set: its layouts on disk, its variants and their digests, its
archives and their checksums.

Addresses and md5 sums of archives are those that torchvision 0.29 uses. Digests of decoded arrays
were computed from the packs. Sets that users unpack themselves have the counts that their authors
publish:

- CINIC-10: Darlow et al., arXiv 1810.03505; BayesWatch/cinic-10, README.md
- Tiny-ImageNet: as its archive has it
- Digit-Five: Peng et al., arXiv 1812.01754 (M3SDA); shapes as KaiyangZhou/Dassl.pytorch reads them
- Camelyon17: Koh et al., arXiv 2012.07421 (WILDS); p-lambda/wilds,
  wilds/datasets/camelyon17_dataset.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from motley.core.errors import ConfigError, suggest

Kind = Literal[
    "pack",
    "keras",
    "idx",
    "cifar",
    "parquet",
    "leaf",
    "leaf text",
    "csv text",
    "svhn",
    "pictures",
    "digit five",
    "patches",
]

PACKS = {
    "cifar100.jpegs.npz": "f7b8c92de8f9cdda6e6eab20a6f415d9494c961a3603bacaf046b5063b9328ca",
    "cifar10_test.webp.npz": "03b59314f69e83d60c8a4afc4dbb59b21ca57c519f36636d6f8b988d49e8bdc3",
    "cifar10_train.webp.npz": "9349861ddf17f0173e6666e0d99ba708f3b97aade19fce6b85d8cd52afb4966c",
    "fashion_mnist.npz": "005934f15d3585f483fead37b8fcf3fdee0dc3b0052f1e47d91bd1430f2c677b",
    "femnist.npz": "2c465ab8c8c14e915f9abd3aa4081515845b9d235d788feece4e3b429f683a98",
    "mnist.npz": "c4279d56952e956ff348ed405874cf14a4c1b975e1dc35e53328505158906d3c",
    "shakespeare.npz": "089a8512af6482c3c1f9eba8c3f0a083119ba8f3f04e7a953f4e98f6d1ed767e",
}
"""The sha256 of every pack's file."""


@dataclass(frozen=True)
class DiskLayout:
    """One form in which a data set lies on disk.

    Parameters
    ----------
    kind: of the reader.
    path: below a place that is searched; below the Hugging Face cache for ``parquet`` and ``csv
    text``.
    files: patterns below ``path`` of which at least one must match.
    variant: name of the variant that this layout holds.
    """

    kind: Kind
    path: str
    files: tuple[str, ...] = ()
    variant: str = ""

    @property
    def on_hub(self) -> bool:
        """Whether the layout is one of the Hugging Face cache."""
        return self.path.startswith("datasets--")


@dataclass(frozen=True)
class Variant:
    """The same data set with other samples or pixels.

    Parameters
    ----------
    about: a remark for readers of results.
    digest: sha256 of the decoded arrays in canonical order, None where it is not known.
    ordered: sha256 of the decoded arrays in the order in which they are used, None where it is not
    known.
    train, test: number of samples, 0 where it may be any.
    unknown: rows (of both halves) whose pixels are not in either digest.
    means: published channel means of the training half, in [0, 1], exact to eight digits.
    total: number of samples of both halves, 0 where it may be any or both halves are known.
    clients: number of training and of test samples of natural clients, by their name.
    by_files: whether the files to download are checked by their checksums whenever they are read.
    """

    about: str
    digest: str | None = None
    ordered: str | None = None
    train: int = 0
    test: int = 0
    unknown: tuple[int, ...] = ()
    means: tuple[float, ...] = ()
    total: int = 0
    clients: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    by_files: bool = False


@dataclass(frozen=True)
class RemoteFile:
    """One file to download.

    Parameters
    ----------
    name: at a mirror.
    urls: public addresses, tried in order.
    mb: size in units of 10^6 bytes, for readers.
    checksum: hex digits of md5 or sha256, empty where none is published.
    folder: below the folder of the data.
    unpack: what the archive's members must be named like to be kept; None for a file that is no
    archive.
    """

    name: str
    urls: tuple[str, ...]
    mb: float
    checksum: str = ""
    folder: str = ""
    unpack: str | None = None


_GREY = (1, 28, 28)
_COLOUR = (3, 32, 32)


@dataclass(frozen=True)
class PublicDataset:
    """What is known of one public data set.

    Parameters
    ----------
    title: its full name.
    layouts: in the order of preference within a place.
    variants: by name, the original first.
    downloads: files of the original.
    pack: files of the pack.
    licence: as far as known.
    names: of the classes.
    prefix: of its IDX files.
    by_class: whether samples are sorted by class.
    shape: of an image ``(C, H, W)``; None for text.
    by_hand: what users get and unpack themselves, in words; empty where ``downloads`` are all.
    halves: names of the folders of its pictures; those of the last one are the test half.
    """

    title: str
    layouts: tuple[DiskLayout, ...]
    variants: Mapping[str, Variant]
    downloads: tuple[RemoteFile, ...]
    pack: tuple[str, ...]
    licence: str
    names: tuple[str, ...] = ()
    prefix: str = ""
    by_class: bool = True
    shape: tuple[int, int, int] | None = _GREY
    by_hand: str = ""
    halves: tuple[str, ...] = ()

    @property
    def mb(self) -> float:
        """Size of the download in units of 10^6 bytes."""
        return sum(file.mb for file in self.downloads)


_FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_CIFAR10 = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_DIGITS = tuple("0123456789")
_LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_CHARACTERS = (*_DIGITS, *_LETTERS, *(letter.lower() for letter in _LETTERS))
# EMNIST's merged classes: other small letters look like their capitals
_MERGED = (*_DIGITS, *_LETTERS, *"abdefghnqrt")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


_JPEG_TRAIN = _numbers(
    "20124 37168 37905 38437 38761 39016 40154 40213 40398 40406 40436 40613 40720 40738 "
    "40739 40780 40810 40904 40920 40964 41143 41303 41311 41378 42580 42611 42695 42750 "
    "42827 42846 42931 42939 43077 43116 43130 43150 43156 43291 43357 43372 43375 43423 "
    "43437 43445 43480 43507 43563 43656 43717 43741 43782 43817 43882 43895 43931 43937 "
    "43964 43982 43993 44179 44182 44203 44241 44262 44334 44374 44417 44459 44485 44487 "
    "44586 44608 44623 44633 44708 44723 44788 44791 44816 44868 44869 44921 44934 44954 "
    "44976 44980"
)
_JPEG_TEST = _numbers(
    "7917 8135 8151 8155 8170 8239 8293 8308 8371 8377 8380 8417 8463 8563 8571 8606 8740 "
    "8755 8756 8764 8786 8845 8847"
)


def _idx(
    folder: str, hosts: tuple[str, ...], files: Mapping[str, tuple[str, float]]
) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(
            f"{name}.gz",
            urls=tuple(f"{host}/{name}.gz" for host in hosts),
            mb=mb,
            checksum=md5,
            folder=folder,
        )
        for name, (md5, mb) in files.items()
    )


def _cifar(classes: int, md5: str, mb: float) -> tuple[RemoteFile, ...]:
    name = f"cifar-{classes}-binary.tar.gz"
    folder = "cifar-10-batches-bin" if classes == 10 else "cifar-100-binary"
    return (
        RemoteFile(
            name,
            urls=(f"https://www.cs.toronto.edu/~kriz/{name}",),
            mb=mb,
            checksum=md5,
            folder=folder,
            unpack="*.bin *.txt",
        ),
    )


_MNIST = PublicDataset(
    title="MNIST",
    layouts=(
        DiskLayout("pack", ".", ("mnist.npz",), "mnist"),
        DiskLayout("idx", "MNIST/raw", ("train-images-idx3-ubyte*",), "mnist"),
        DiskLayout("parquet", "datasets--ylecun--mnist", ("**/train-*.parquet",), "mnist"),
        DiskLayout("parquet", "datasets--mnist", ("**/train-*.parquet",), "mnist"),
    ),
    variants={
        "mnist": Variant(
            "MNIST",
            "b583d73650a7007d928c633683a70f7efeea6f720d3292669df75adda7b5b7b2",
            "9e3bdc7603adfcdeb766bf1b05e4249344ae5adbc37231d38024fdb308c4ae83",
            train=60_000,
            test=10_000,
        )
    },
    downloads=_idx(
        "MNIST/raw",
        ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
        {
            "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9.9),
            "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", 0.03),
            "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", 1.6),
            "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", 0.005),
        },
    ),
    pack=("mnist.npz",),
    licence="CC BY-SA 3.0 is usually stated; the writers of the pack: BSD (QMNIST)",
    names=_DIGITS,
)

_FASHION_MNIST = PublicDataset(
    title="Fashion-MNIST",
    layouts=(
        DiskLayout("pack", ".", ("fashion_mnist.npz",), "fashion_mnist"),
        DiskLayout("idx", "FashionMNIST/raw", ("train-images-idx3-ubyte*",), "fashion_mnist"),
        DiskLayout("idx", "fashion-mnist", ("train-images-idx3-ubyte*",), "fashion_mnist"),  # Keras
        DiskLayout(
            "parquet",
            "datasets--zalando-datasets--fashion_mnist",
            ("**/train-*.parquet",),
            "fashion_mnist",
        ),
        DiskLayout("parquet", "datasets--fashion_mnist", ("**/train-*.parquet",), "fashion_mnist"),
    ),
    variants={
        "fashion_mnist": Variant(
            "Fashion-MNIST",
            "e7e67cd6cbf1a4f98e6d87070c2d3aade3b78949cdcf25a923b95d9e57b121f1",
            "683671886fab005fe7a947f1ab258c26e4dc85a6da6d7f25554ff10a6c03b4f5",
            train=60_000,
            test=10_000,
        )
    },
    downloads=_idx(
        "FashionMNIST/raw",
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
        {
            "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26.4),
            "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", 0.03),
            "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", 4.4),
            "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", 0.005),
        },
    ),
    pack=("fashion_mnist.npz",),
    licence="MIT",
    names=_FASHION,
)

_CIFAR_10 = PublicDataset(
    title="CIFAR-10",
    layouts=(
        DiskLayout(
            "pack", ".", ("cifar10_train.webp.npz", "cifar10_test.webp.npz"), "cifar10_jpeg109"
        ),
        DiskLayout("cifar", "cifar-10-batches-bin", ("test_batch.bin",), "cifar10"),
        DiskLayout("cifar", "cifar-10-batches-py", ("test_batch",), "cifar10"),
        DiskLayout("parquet", "datasets--uoft-cs--cifar10", ("**/train-*.parquet",), "cifar10"),
        DiskLayout("parquet", "datasets--cifar10", ("**/train-*.parquet",), "cifar10"),
    ),
    variants={
        "cifar10": Variant(
            "CIFAR-10",
            "473cc9207836ac7d5b11ade3412abb8a25c4233422b04d64aca0e557ed640b86",
            "b54c10309af502e380996ed0a761a1d71bca8ef7962db7aa20423d0556da88d5",
            train=50_000,
            test=10_000,
            unknown=(*_JPEG_TRAIN, *(50_000 + row for row in _JPEG_TEST)),
        ),
        "cifar10_jpeg109": Variant(
            "CIFAR-10 (109 of 60,000 images from JPEG)",
            "6b7e12ba794c4c92e19064d2f16f8a8b9574b83bf9d68c3bf95c47779e1c5466",
            "5f3217dab215aa21fabe5982e04161c43676018719e3a0479e2fe0529e72d63b",
            train=50_000,
            test=10_000,
        ),
    },
    downloads=_cifar(10, "c32a1d4ab5d03f1284b67883e8d87530", 170.1),
    pack=("cifar10_train.webp.npz", "cifar10_test.webp.npz"),
    licence="none stated; free for research with citation",
    names=_CIFAR10,
    shape=_COLOUR,
)

_CIFAR_100 = PublicDataset(
    title="CIFAR-100",
    layouts=(
        DiskLayout("pack", ".", ("cifar100.jpegs.npz",), "cifar100_jpeg91"),
        DiskLayout("cifar", "cifar-100-binary", ("train.bin",), "cifar100"),
        DiskLayout("cifar", "cifar-100-python", ("train",), "cifar100"),
        DiskLayout("parquet", "datasets--uoft-cs--cifar100", ("**/train-*.parquet",), "cifar100"),
        DiskLayout("parquet", "datasets--cifar100", ("**/train-*.parquet",), "cifar100"),
    ),
    variants={
        "cifar100": Variant(
            "CIFAR-100", train=50_000, test=10_000, means=(0.50707516, 0.48654887, 0.44091784)
        ),
        "cifar100_jpeg91": Variant(
            "CIFAR-100 after JPEG coding (quality 91, RMS error 3.8 of 255)",
            "31021e0db0190bf530122fbc7941ca5979ec6ac1e4162bc885891a234123a9a6",
            "9616afbdd3cf3d25bf45aa6e5147ead9a36b7efd38712509ddd28c0ce9448b1b",
            train=50_000,
            test=10_000,
        ),
    },
    downloads=_cifar(100, "03b5dce01913d631647c71ecec9e9cb8", 168.5),
    pack=("cifar100.jpegs.npz",),
    licence="none stated; free for research with citation",
    shape=_COLOUR,
)

_EMNIST_ZIP = RemoteFile(
    name="gzip.zip",
    urls=("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
    mb=561.8,
    checksum="58c8d27c78d21e728a6bc7b3cc06412e",
    folder="EMNIST/raw",
    unpack="emnist-*-ubyte.gz",
)


def _emnist(split: str, train: int, test: int, names: tuple[str, ...]) -> PublicDataset:
    name = f"emnist_{split}"
    prefix = f"emnist-{split}-"
    layout = DiskLayout("idx", "EMNIST/raw", (f"{prefix}train-images-idx3-ubyte*",), name)
    about = Variant(f"EMNIST, {split} (images turned upright)", train=train, test=test)
    return PublicDataset(
        f"EMNIST, {split}",
        layouts=(layout,),
        variants={name: about},
        downloads=(_EMNIST_ZIP,),
        pack=(),
        licence="none stated; NIST SD 19: US public domain",
        names=names,
        prefix=prefix,
    )


_FEMNIST = PublicDataset(
    title="FEMNIST",
    layouts=(
        DiskLayout("pack", ".", ("femnist.npz",), "femnist_291"),
        DiskLayout("leaf", "femnist/data", ("train/*.json", "all_data/*.json"), "femnist"),
        DiskLayout("leaf", "femnist", ("train/*.json", "all_data/*.json", "*.json"), "femnist"),
        DiskLayout("parquet", "femnist", ("train-*.parquet",), "femnist"),
        DiskLayout("parquet", "datasets--flwrlabs--femnist", ("**/train-*.parquet",), "femnist"),
    ),
    variants={
        "femnist": Variant("FEMNIST"),
        "femnist_291": Variant(
            "FEMNIST, the 291 writers of the pack (a sample of LEAF's 3,597); black ink on white",
            "67eeb7676add957b111bc3df61c27159123fd3b9920f74644158aa199895f05d",
            "f27a3ca0fdca93734a412cdc4f0da2647936e3f2998d697419c729ecf6553758",
            train=41_178,
            test=4_692,
        ),
    },
    downloads=(
        RemoteFile(
            "train-00000-of-00001.parquet",
            (
                "https://huggingface.co/datasets/flwrlabs/femnist/resolve/main/data/train-00000-of-00001.parquet",
            ),
            200.7,
            folder="femnist",
        ),
    ),
    pack=("femnist.npz",),
    licence="NIST SD 19: US public domain; LEAF: BSD 2-clause",
    names=_CHARACTERS,
    by_class=False,
)

_SHAKESPEARE = PublicDataset(
    title="Shakespeare's plays by role",
    layouts=(
        DiskLayout("pack", ".", ("shakespeare.npz",), "shakespeare_1229"),
        DiskLayout(
            "leaf text", "shakespeare/data", ("train/*.json", "all_data/*.json"), "shakespeare"
        ),
        DiskLayout(
            "leaf text", "shakespeare", ("train/*.json", "all_data/*.json", "*.json"), "shakespeare"
        ),
        DiskLayout("csv text", "shakespeare", ("shakespeare.csv",), "shakespeare"),
        DiskLayout(
            "csv text", "datasets--flwrlabs--shakespeare", ("**/shakespeare.csv",), "shakespeare"
        ),
    ),
    variants={
        "shakespeare": Variant("Shakespeare, LEAF's roles and windows"),
        "shakespeare_1229": Variant(
            "Shakespeare, the 1,229 roles of the pack (another edition and count than LEAF's 1,129)"
        ),
    },
    downloads=(
        RemoteFile(
            "shakespeare.csv",
            ("https://huggingface.co/datasets/flwrlabs/shakespeare/resolve/main/shakespeare.csv",),
            500.0,
            folder="shakespeare",
        ),
    ),
    pack=("shakespeare.npz",),
    licence="public domain; LEAF: BSD 2-clause",
    shape=None,
)

_SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")
_SVHN = PublicDataset(
    title="SVHN, cropped digits",
    layouts=tuple(DiskLayout("svhn", path, _SVHN_FILES, "svhn") for path in ("svhn", "SVHN", ".")),
    variants={"svhn": Variant("SVHN, cropped digits", train=73_257, test=26_032, by_files=True)},
    downloads=tuple(
        RemoteFile(
            name,
            urls=(f"http://ufldl.stanford.edu/housenumbers/{name}",),
            mb=mb,
            checksum=md5,
            folder="svhn",
        )
        for name, md5, mb in (
            (_SVHN_FILES[0], "e26dedcc434d2e4c54c9b2d4a06d8373", 182.0),
            (_SVHN_FILES[1], "eb5a983be6a315427106f1b164d9cef3", 64.3),
        )
    ),
    pack=(),
    licence="for non-commercial use only",
    names=_DIGITS,
    shape=_COLOUR,
)


def _cinic(enlarged: bool) -> PublicDataset:
    name = "cinic10_enlarged" if enlarged else "cinic10"
    about = "in the training half" if enlarged else "left out"
    return PublicDataset(
        title="CINIC-10, enlarged" if enlarged else "CINIC-10",
        layouts=tuple(
            DiskLayout("pictures", path, ("train/*",), name)
            for path in ("CINIC-10", "cinic-10", "cinic10")
        ),
        variants={
            name: Variant(
                f"CINIC-10, its validation images {about}",
                train=180_000 if enlarged else 90_000,
                test=90_000,
            )
        },
        downloads=(),
        pack=(),
        licence="CC BY 4.0",
        names=_CIFAR10,
        shape=_COLOUR,
        by_hand="CINIC-10.tar.gz (688 MB, md5 6ee4d0c996905fe93221de577967a372) of doi "
        "10.7488/ds/2448, unpacked into a folder CINIC-10 with train/, valid/ and test/",
        halves=("train", "valid", "test") if enlarged else ("train", "test"),
    )


_TINY_IMAGENET = PublicDataset(
    title="Tiny-ImageNet",
    layouts=(DiskLayout("pictures", "tiny-imagenet-200", ("train/*",), "tiny_imagenet"),),
    variants={
        "tiny_imagenet": Variant(
            "Tiny-ImageNet, its validation images as the test half (of test/ nobody has the "
            "classes)",
            train=100_000,
            test=10_000,
        )
    },
    downloads=(),
    pack=(),
    licence="none stated; ImageNet: for non-commercial research",
    shape=(3, 64, 64),
    by_hand="tiny-imagenet-200.zip (248 MB, md5 90528d7ca1a48142e341f4ef8d21d0de) of "
    "cs231n.stanford.edu, unpacked into a folder tiny-imagenet-200 with train/ and val/",
    halves=("train", "val"),
)

_DIGIT_FIVE_FILES = (
    "mnist_data.mat",
    "mnistm_with_label.mat",
    "svhn_train_32x32.mat",
    "svhn_test_32x32.mat",
    "syn_number.mat",
    "usps_28x28.mat",
)
_DIGIT_FIVE = PublicDataset(
    title="Digit-Five",
    layouts=tuple(
        DiskLayout("digit five", path, _DIGIT_FIVE_FILES, "digit_five")
        for path in ("Digit-Five", "DigitFive", "digit_five", "digit-five", ".")
    ),
    variants={
        "digit_five": Variant(
            "Digit-Five: all images of MNIST, MNIST-M, SVHN, synthetic digits and USPS, in colour "
            "and of 32 x 32 pixels; natural clients are the five domains",
            clients={
                "mnist": (55_000, 10_000),
                "mnist_m": (55_000, 10_000),
                "svhn": (73_257, 26_032),
                "syn": (25_000, 9_000),
                "usps": (7_438, 1_860),
            },
        )
    },
    downloads=(),
    pack=(),
    licence="none stated; SVHN: for non-commercial use only",
    names=_DIGITS,
    shape=_COLOUR,
    by_hand="the archive Digit-Five that the authors of M3SDA (arXiv 1812.01754) share, unpacked "
    f"into a folder Digit-Five with {', '.join(_DIGIT_FIVE_FILES)}",
)

_CAMELYON17 = PublicDataset(
    title="Camelyon17, patches of WILDS",
    layouts=tuple(
        DiskLayout("patches", path, ("metadata.csv",), "camelyon17")
        for path in ("camelyon17_v1.0", "camelyon17")
    ),
    variants={
        "camelyon17": Variant(
            "Camelyon17, patches of WILDS; natural clients are the five hospitals, and the test "
            "half is what metadata.csv holds out of each",
            total=455_954,
        )
    },
    downloads=(),
    pack=(),
    licence="CC0",
    names=("normal", "tumor"),
    by_class=False,
    shape=(3, 96, 96),
    by_hand="camelyon17_v1.0 (10,659 MB) of WILDS, unpacked into a folder "
    "camelyon17_v1.0 with metadata.csv and patches/",
)

PUBLIC: dict[str, PublicDataset] = {
    "mnist": _MNIST,
    "fashion_mnist": _FASHION_MNIST,
    "cifar10": _CIFAR_10,
    "cifar100": _CIFAR_100,
    "emnist_balanced": _emnist("balanced", 112_800, 18_800, _MERGED),
    "emnist_byclass": _emnist("byclass", 697_932, 116_323, _CHARACTERS),
    "emnist_bymerge": _emnist("bymerge", 697_932, 116_323, _MERGED),
    "emnist_digits": _emnist("digits", 240_000, 40_000, _DIGITS),
    "emnist_letters": _emnist("letters", 124_800, 20_800, _LETTERS),
    "femnist": _FEMNIST,
    "shakespeare": _SHAKESPEARE,
    "svhn": _SVHN,
    "cinic10": _cinic(enlarged=False),
    "cinic10_enlarged": _cinic(enlarged=True),
    "tiny_imagenet": _TINY_IMAGENET,
    "digit_five": _DIGIT_FIVE,
    "camelyon17": _CAMELYON17,
}
"""Name -> what is known of the data set."""

IMAGES = tuple(name for name in PUBLIC if name != "shakespeare")
"""Names that the task ``image`` reads."""


def known_name(name: str) -> str:
    """Return a data set's name as experiments write it: ``Fashion-MNIST`` is ``fashion_mnist``,
    ``emnist`` is ``emnist_balanced``.

    Raises
    ------
    ConfigError: there is no such set.
    """
    match = spelled(name)
    if match is None:
        raise ConfigError(
            f"got {name!r}{suggest(name.lower(), PUBLIC)}; expected one of: {', '.join(PUBLIC)}",
            "NAME",
        )
    return match


def spelled(name: str) -> str | None:
    """Return the data set that a name means but for capitals, dashes and the split of EMNIST; None
    if there is none."""
    plain = re.sub(r"[\W_]+", "", name).lower()
    return next(
        (
            public_name
            for public_name in PUBLIC
            if public_name.replace("_", "") in (plain, f"{plain}balanced")
        ),
        None,
    )
