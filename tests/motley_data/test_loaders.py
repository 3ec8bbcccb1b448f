"""Data sets and loaders of torch as clients: the samples are those that plain torch sees."""

import io
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import motley
from motley.core.errors import DataError, ModelError
from motley.tasks import from_clients, own_task
from motley.tasks.fields import Field
from motley.tasks.preparation import FieldsPreparation, restore_preparation
from motley.tasks.task import Federation

DRAWS = torch.Generator().manual_seed(0)
X = torch.randn(30, 4, generator=DRAWS)
Y = (X.sum(1) > 0).long()
POOL = TensorDataset(X, Y)


class Rows(Dataset[Any]):
    """Samples by a function of their number."""

    def __init__(self, count: int, sample: Callable[[int], Any]) -> None:
        self.count = count
        self.sample = sample

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> Any:
        return self.sample(row)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(X, Y, strict=True)


def of_client(federation: Federation, k: int = 0) -> tuple[Tensor, Tensor]:
    """All samples of a client in the order in which it had them."""
    rows = np.sort(np.concatenate([federation.train[k], federation.test[k]]))
    return federation.x[rows], federation.y[rows]


SOME = [7, 3, 29, 11, 0, 5]


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (POOL, range(30)),
        (Subset(POOL, SOME), SOME),
        (Subset(Subset(POOL, range(10, 20)), [4, 1, 9, 0]), [14, 11, 19, 10]),
        (Rows(30, lambda row: (X[row], int(Y[row]))), range(30)),
        (Rows(30, lambda row: [X[row].numpy(), Y[row].numpy()]), range(30)),
        (Rows(30, lambda row: {"pixels": X[row], "label": Y[row]}), range(30)),
        (Subset(Rows(30, lambda row: (X[row].tolist(), Y[row])), SOME), SOME),
        ([(X[row], Y[row]) for row in range(30)], range(30)),
        ([(X[row].numpy(), int(Y[row])) for row in SOME], SOME),
        ([{"pixels": X[row], "label": Y[row]} for row in SOME], SOME),
        (Stream(), range(30)),
        (DataLoader(POOL, batch_size=7), range(30)),
        (DataLoader(POOL, batch_size=7, shuffle=True, drop_last=True), range(30)),
        (DataLoader(Rows(30, lambda row: (X[row], Y[row])), 4, shuffle=True), range(30)),
        (DataLoader(POOL, sampler=SubsetRandomSampler(SOME)), sorted(SOME)),
        (DataLoader(POOL, batch_sampler=BatchSampler(RandomSampler(POOL), 4, False)), range(30)),
        (DataLoader(Stream(), batch_size=7), range(30)),
    ],
)
def test_samples_are_those_of_the_data_set_in_its_order(given: Any, rows: Any) -> None:
    x, y = of_client(from_clients([given, POOL]))
    assert torch.equal(x, X[list(rows)])
    assert torch.equal(y, Y[list(rows)])


def test_the_order_of_a_loader_and_the_process_wide_generators_do_not_matter() -> None:
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state())  # type: ignore[index]  # noqa: NPY002
    given = [from_clients([DataLoader(POOL, shuffle=True, batch_size=b)]) for b in (2, 9)]
    assert torch.equal(given[0].x[given[0].train[0]], given[1].x[given[1].train[0]])
    after = (random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state())  # type: ignore[index]  # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def zeros(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module


def linear() -> nn.Module:
    return zeros(nn.Linear(4, 2))


def trained(task: Any, rows: int, tmp_path: Path) -> dict[str, Tensor]:
    """The weights after two rounds of three steps over all rows of one client, by Motley."""
    keys = {
        "name": "one",
        "cohort": 1,
        "stop": {"rounds": 2},
        "local": {"epochs": 3, "batch_size": rows, "optimizer": {"name": "sgd", "lr": 0.5}},
    }
    run = motley.run(keys, task=task, out=tmp_path / "run")
    return dict(run.module().state_dict())


def plain(module: nn.Module, forward: Callable[[Any], Tensor], loader: Any) -> dict[str, Tensor]:
    """The same six steps in plain torch; the loader gives all samples in a batch."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(6):
        for *inputs, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(forward(*inputs), y).backward()
            optimizer.step()
    return dict(module.state_dict())


def test_training_equals_plain_torch_on_the_same_samples(tmp_path: Path) -> None:
    mine = from_clients([DataLoader(POOL, batch_size=5, shuffle=True)], test=[POOL])
    found = trained(own_task(mine, linear), 30, tmp_path)
    module = linear()
    expected = plain(module, module, DataLoader(POOL, batch_size=30))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


class Both(nn.Module):
    """Pictures and a column of whole numbers, each with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.picture = nn.Linear(4, 2)
        self.number = nn.Embedding(3, 2)

    def forward(self, image: Tensor, table: Tensor) -> Tensor:
        scores: Tensor = self.picture(image.flatten(1)) + self.number(table)
        return scores


@pytest.mark.parametrize("named", [True, False])
def test_training_on_several_inputs_equals_plain_torch(tmp_path: Path, named: bool) -> None:
    def sample(row: int) -> Any:
        inputs = {"image": X[row].view(1, 2, 2), "table": row % 3}
        return ({**inputs, "label": Y[row]}) if named else (tuple(inputs.values()), Y[row])

    mine = from_clients([Rows(30, sample)], test=[Rows(30, sample)])
    task = own_task(mine, lambda: zeros(Both()))
    found = trained(task, 30, tmp_path)
    module = zeros(Both())
    expected = plain(module, module, [(X, torch.arange(30) % 3, Y)])
    for name, value in expected.items():
        torch.testing.assert_close(found[f"model.{name}"], value, rtol=1e-5, atol=1e-6)
    inputs = {"image": X.view(30, 1, 2, 2), "table": torch.arange(30) % 3}
    predicted = motley.load(tmp_path / "run", task=task).predict(
        inputs if named else tuple(inputs.values())
    )
    assert predicted.tolist() == module(**inputs).argmax(1).tolist()


def test_a_collate_of_ones_own_pads_tokens_and_makes_their_mask() -> None:
    texts = [[5, 6], [7], [1, 2, 3], [9, 9]]

    def collate(samples: list[Any]) -> dict[str, Tensor]:
        ids = [torch.tensor(tokens) for tokens, _ in samples]
        padded = torch.stack([F.pad(one, (0, 3 - len(one))) for one in ids])
        return {
            "ids": padded,
            "mask": padded > 0,
            "label": torch.tensor([label for _, label in samples]),
        }

    rows = Rows(4, lambda row: (texts[row], row % 2))
    for given in (
        from_clients([rows], collate=collate),
        from_clients([DataLoader(rows, batch_size=2, collate_fn=collate)]),
    ):
        x, y = of_client(given)
        assert x.dtype == torch.int64
        assert x.tolist() == [
            [5, 6, 0, 1, 1, 0],
            [7, 0, 0, 1, 0, 0],
            [1, 2, 3, 1, 1, 1],
            [9, 9, 0, 1, 1, 0],
        ]
        assert y.tolist() == [0, 1, 0, 1]
        assert given.preparation == FieldsPreparation(
            (Field("ids", (3,), "whole"), Field("mask", (3,), "boolean"))
        )
        assert restore_preparation(given.preparation.save()) == given.preparation


def test_what_a_module_gets_of_several_inputs() -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 2))

        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            assert batch["ids"].dtype == torch.int64
            assert batch["mask"].dtype == torch.bool
            assert batch["wide"].dtype == torch.float32
            assert batch["wide"].shape[1:] == (1, 3)
            return (batch["ids"] * batch["mask"] + batch["wide"][:, 0]) @ self.weight

    def sample(row: int) -> dict[str, Any]:
        ids = torch.tensor([row, 2, 3])
        return {"ids": ids, "mask": ids > 1, "wide": np.ones((1, 3)), "label": row % 2}

    own_task(from_clients([Rows(8, sample)]), Looks)


def test_pictures_of_pillow_have_their_channels_first() -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    x, _ = of_client(from_clients([Rows(4, lambda row: (Image.fromarray(pixels + row), row % 2))]))
    assert x.dtype == torch.uint8
    assert np.array_equal(x[1].numpy(), pixels.transpose(2, 0, 1) + 1)
    flags = Image.new("RGBA", (2, 2))
    with pytest.raises(DataError, match="picture of mode RGBA; expected grey or RGB: convert it"):
        from_clients([Rows(4, lambda row: (flags, row % 2))])


def test_a_picture_of_pillow_with_16_bits_in_colour_is_refused() -> None:
    deep = io.BytesIO(b"P6 2 1 65535\n" + np.arange(6, dtype=">u2").tobytes())
    with pytest.raises(DataError, match="a picture has 16 bits for each channel, of which 8 would"):
        from_clients([Rows(4, lambda row: (Image.open(deep), row % 2))])


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + torch.randn(4),
        lambda x: x + torch.from_numpy(np.random.normal(size=4)).float(),  # noqa: NPY002
        lambda x: x * random.random(),
    ],
)
def test_a_transform_that_draws_is_kept_told_and_follows_the_seed(
    draw: Callable[[Tensor], Tensor],
) -> None:
    rows = Rows(30, lambda row: (draw(X[row]), Y[row]))
    made = []
    for seed in (0, 0, 1):
        with pytest.warns(UserWarning, match="the samples of client 0 differ each time") as told:
            made.append(from_clients([rows, rows], seed=seed))
        assert len(told) == 1
    first, again, other = (of_client(one)[0] for one in made)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, of_client(made[0], 1)[0])  # each client draws its own


def test_splits_that_clients_carry_and_common_test_sets() -> None:
    halves = [
        {"train": Subset(POOL, range(20)), "test": Subset(POOL, range(20 + k, 30))} for k in (0, 5)
    ]
    for given in (halves, {"ann": halves[0], "bob": halves[1]}):
        federation = from_clients(given)
        assert federation.train.sizes.tolist() == [20, 20]
        assert federation.test.sizes.tolist() == [10, 5]
        assert torch.equal(federation.x[federation.test[1]], X[25:])
    apart = from_clients([one["train"] for one in halves], test=[one["test"] for one in halves])
    assert torch.equal(apart.x, federation.x)
    some = DataLoader(Subset(POOL, SOME), shuffle=True)
    assert from_clients({"ann": POOL}, test=some).client_names == ("ann",)
    common = from_clients([POOL, POOL], test=some)
    assert common.train.sizes.tolist() == [30, 30]
    assert common.global_test is not None
    assert torch.equal(common.x[common.global_test], X[SOME])
    with pytest.warns(UserWarning, match="client 0: not read: validation; validation=0.1 sets"):
        from_clients([{**halves[0], "validation": POOL}])


class Twice(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield from (0, 1, 1, 2)

    def __len__(self) -> int:
        return 4


BAD: list[tuple[Any, dict[str, Any], str]] = [
    (
        DataLoader(POOL, sampler=WeightedRandomSampler([1.0] * 30, 30)),
        {},
        r"client 0: the loader's WeightedRandomSampler draws some samples several times or not at "
        r"all, .*; give its data set, loader.dataset",
    ),
    (DataLoader(POOL, sampler=RandomSampler(POOL, num_samples=9)), {}, "loader's RandomSampler"),
    (DataLoader(POOL, sampler=Twice()), {}, "the loader's Twice draws some samples several"),
    (DataLoader(POOL, batch_size=None), {}, r"makes no batches \(batch_size=None\); give its data"),
    (
        TensorDataset(X, X, Y),
        {},
        r"a sample has 0, 1, 2; say which is to be predicted \(and which are inputs\): "
        r"inputs=\[0, 1\], label=2",
    ),
    (TensorDataset(X), {}, r"a sample has 0 alone, and no target; expected a pair \(x, y\)"),
    (Rows(4, lambda row: {"a": 1.0}), {}, "a sample has a alone, and no target"),
    (
        DataLoader(Stream(), batch_size=8, drop_last=True),
        {},
        r"client 0: .* drop_last=True, and leaves out .*; write DataLoader\(..., drop_last=False\)",
    ),
    (
        DataLoader(Stream(), batch_size=8, num_workers=2),
        {},
        r"client 0: .* num_workers=2, each of which may read all samples; write DataLoader\(...,",
    ),
    (TensorDataset(X, Y), {"inputs": 3}, "client 0: a sample has no input 3; it has 0, 1"),
    (
        Rows(4, lambda row: {"a": 1.0, "b": 2.0}),
        {},
        r"a sample has a, b; say which is to be predicted \(and which are inputs\): label='b'",
    ),
    (Rows(4, lambda row: X[row]), {}, r"a sample is of type Tensor; expected a pair \(x, y\)"),
    (Rows(4, lambda row: ("to be", 1)), {}, r"the input is text \('to be'\); turn it into tokens"),
    (
        Rows(4, lambda row: (X[row, : 1 + row], 1)),
        {},
        r"client 0 has samples of shape \[1\] and of \[2\]; bring all to one shape, e.g. pad",
    ),
    (Rows(4, lambda row: ([[1, 2], [3]], 1)), {}, "the input is no array of numbers"),
    (Rows(0, lambda row: row), {}, "client 0 has no samples"),
]


@pytest.mark.parametrize(("given", "options", "words"), BAD)
def test_samples_that_are_not_understood(given: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_clients([given], **options)


def test_splits_that_are_not_understood() -> None:
    with pytest.raises(DataError, match=r"got the splits train, test of one data set"):
        from_clients({"train": POOL, "test": POOL})
    with pytest.raises(DataError, match="client 0 has test; expected train, and perhaps test"):
        from_clients([{"test": POOL}])
    with pytest.raises(DataError, match="1 of 2 clients have a split test; give one for each"):
        from_clients([{"train": POOL, "test": POOL}, POOL])
    for test in ([POOL], POOL, {"last": 0.2, "by": "order"}):
        with pytest.raises(DataError, match="have a split test, and test is given, too"):
            from_clients([{"train": POOL, "test": POOL}], test=test)


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        (DataLoader(POOL, batch_size=4), "got a single DataLoader, and expected a list .*first"),
        (POOL, "got a single TensorDataset, and expected a list with the samples of each client"),
        (pa.table({"a": [1.0], "y": [0]}), r"got a single Table.* from_arrays\(frame, \"label\","),
        (
            [(DataLoader(POOL), DataLoader(POOL))],
            r"a tuple of DataLoader, DataLoader; .*\"train\":",
        ),
        ([[POOL, POOL, POOL]], "client 0 is a list of TensorDataset, TensorDataset, Tensor"),
        (
            [[(X, Y), (X, Y), (X, Y)]],  # pairs of arrays: each may be one sample or many
            r"client 0 is a list; expected a pair \(x, y\) of arrays, a Dataset or DataLoader of "
            r"torch, or a list of samples \(x, label\)",
        ),
        (
            {"ann": pa.table({"a": [1.0], "y": [0]})},
            r"client ann is a Table; expected the inputs and the labels, .* frame\[\"y\"\]\)",
        ),
    ],
)
def test_what_is_no_list_of_clients_or_no_client(clients: Any, words: str) -> None:
    """A loader's batches were clients, silently."""
    with pytest.raises(DataError, match=words):
        from_clients(clients, label="y")


def test_several_inputs_that_do_not_fit() -> None:
    def rows(**inputs: Any) -> Rows:
        return Rows(6, lambda row: {**inputs, "label": row % 2})

    with pytest.raises(
        DataError,
        match=re.escape(
            "client 1: got the inputs a [2] of floats, b [] of floats; expected a [2] of floats, b "
            "[] of whole numbers"
        ),
    ):
        from_clients([rows(a=np.ones(2), b=1), rows(a=np.ones(2), b=1.0)])
    with pytest.raises(
        DataError, match=r"the input b has numbers up to 16,777,217, .* up to 16,777,216"
    ):
        from_clients([rows(a=np.ones(2), b=2**24 + 1)])

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, a: Tensor, c: Tensor) -> Tensor:
            return self.layer(a)  # type: ignore[no-any-return]

    class Takes(Other):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return super().forward(a, b)

    with pytest.raises(
        ModelError, match="the forward of the Other takes a, c, and a sample has the inputs a, b"
    ):
        own_task(from_clients([rows(a=np.ones(2), b=1)]), Other)
    several = from_clients([rows(a=np.ones(2), b=1)])
    with pytest.raises(
        ModelError,
        match=r"the Linear cannot take a dictionary of the inputs a \[2\] of floats, b \[\] of "
        r"whole numbers of 2 samples: .*not dict",
    ):
        own_task(several, lambda: nn.Linear(2, 2))

    class Draws(Takes):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return super().forward(F.dropout(a, 0.5), b)

    with pytest.raises(ModelError, match="the Draws draws from torch's process-wide generator"):
        own_task(several, Draws)
    assert several.preparation is not None
    with pytest.raises(DataError, match=r"samples given have no b; expected a \[2\] of floats, b"):
        several.preparation({"a": np.ones((1, 2))})


# ---------------------------------------------------------------------- samples stored in a file


def halves(rows: NDArray[Any]) -> list[Rows]:
    return [Rows(10, lambda row, k=k: (rows[10 * k + row], row % 2)) for k in range(2)]


NUMBERS = np.random.default_rng(0).normal(size=(20, 2, 3)) * 50


@pytest.mark.parametrize(
    "clients",
    [
        lambda: halves(NUMBERS),
        lambda: halves(NUMBERS.astype(np.uint8)),
        lambda: halves(NUMBERS.astype(np.int16)),
        lambda: halves(NUMBERS > 0),
        lambda: halves(NUMBERS.astype(np.float16)),
        lambda: [(X[:20], Y[:20]), (X[20:], Y[20:])],
        lambda: {name: {"train": POOL, "test": Subset(POOL, SOME)} for name in ("ann", "bob")},
        lambda: [DataLoader(Subset(POOL, range(k, k + 9)), batch_size=4) for k in (0, 9)],
        lambda: [Stream(), Stream()],
        lambda: [
            Rows(9, lambda row: {"ids": np.arange(3) * row, "flag": row > 4, "label": row % 2})
            for _ in range(2)
        ],
    ],
)
@pytest.mark.parametrize("collate", [False, True])
def test_stored_samples_are_those_in_memory(
    clients: Callable[[], Any], collate: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"validation": 0.2, "seed": 3}
    if collate and isinstance(clients(), list) and isinstance(clients()[0], Rows):
        options["collate"] = torch.utils.data.default_collate
    held = from_clients(clients(), **options)
    stored = from_clients(clients(), **options, store=tmp_path / "new" / "folder")
    assert stored.x.dtype == held.x.dtype
    for name in ("x", "y", "labels"):
        assert torch.equal(getattr(stored, name), getattr(held, name))
    for name in ("train", "validation", "test"):
        assert np.array_equal(getattr(stored, name).values, getattr(held, name).values)
    assert stored.client_names == held.client_names
    assert not any((tmp_path / "new" / "folder").iterdir())  # the file has no name


def test_a_run_of_stored_samples_has_the_same_bits(tmp_path: Path) -> None:
    ends = []
    for store in (None, tmp_path):
        federation = from_clients(halves(NUMBERS / 50), store=store)
        task = own_task(federation, lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 2)))
        run = motley.run(
            {"cohort": 2, "stop": {"rounds": 2}}, task=task, out=tmp_path / f"run{len(ends)}"
        )
        ends.append(run.module().state_dict())
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


def test_memory_does_not_grow_with_stored_samples(tmp_path: Path) -> None:
    """Samples of 20 kB each: 400 more of them are 8 MB, of which memory gets less than a tenth;
    in memory, all of them are held."""

    def peak(count: int, store: Path | None) -> int:
        tracemalloc.start()
        try:
            sample = lambda row: (np.full(5000, row, np.float32), row % 2)  # noqa: E731
            kept = from_clients([Rows(count, sample) for _ in range(2)], store=store)
            assert float(kept.x[-1, 0]) == count - 1
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    more = 400 * 20_000
    assert peak(300, tmp_path) - peak(100, tmp_path) < more / 10
    assert peak(300, None) > more


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (
            lambda: [(X.numpy(), Y), (X.numpy().astype(np.int64), Y)],
            "store: got samples of int64 after samples that are kept as float32; give all of one",
        ),
        (lambda: [({"a": X[:, 0].numpy()}, Y)], "store: client 0 is a table, which is prepared in"),
        (lambda: [(X.numpy().astype(str), Y)], "store: got samples of object; expected numbers"),
    ],
)
def test_what_cannot_be_stored_is_refused(
    clients: Callable[[], Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        from_clients(clients(), store=tmp_path)


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"store: .*file cannot be written to \(.*\); give another"):
        from_clients([POOL], store=tmp_path / "file")


class Named(Rows):
    """Samples of classes that ``class_to_idx`` or ``classes`` name, as a torchvision folder has
    them."""

    def __init__(self, *names: str, listed: bool = False) -> None:
        super().__init__(4, lambda row: (X[row], row % 2))
        if listed:
            self.classes = list(names)
        else:
            self.class_to_idx = {name: k for k, name in enumerate(names)}


def test_classes_of_torch_of_other_numbers_are_joined_by_name() -> None:
    same = from_clients([Named("cat", "dog"), Named("cat", "dog", listed=True)])
    assert same.names == ()
    mixed = [Subset(Named("cat", "dog"), [0, 1, 3]), DataLoader(Named("dog", "cat", listed=True))]
    federation = from_clients(mixed)
    assert federation.names == ("cat", "dog")
    assert of_client(federation, 0)[1].tolist() == [0, 1, 1]
    assert of_client(federation, 1)[1].tolist() == [1, 0, 1, 0]
    with pytest.raises(DataError, match=r"with the classes \[cat, dog\] and \[dog, cat\]"):
        from_clients([Named("cat", "dog") + Named("dog", "cat")])
