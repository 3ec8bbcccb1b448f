"""Samples as research code has them: a ``Dataset`` or ``DataLoader`` of torch, or a ``Dataset`` of
Hugging Face's ``datasets``, for each client.

Samples are read once, in the order of the data set: batches are drawn by ``local.batch_size`` and
the run's seed, whatever a loader's own size and order. What a transform draws at random (by torch,
numpy or random) follows the federation's seed and the client, and is kept; a warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from random import Random, getstate, setstate
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import data as torch_data

from motley.core.errors import DataError, suggest
from motley.core.keys import Key
from motley.tasks.fields import Field, fields_of, packed
from motley_data.class_names import ClassNames, class_names
from motley_data.client_parts import GrowingArray, NewRows, StoredArray
from motley_data.formats.sample_checks import refuse_deep_colour

_LABELS = ("label", "labels", "target", "y")
_ROWS = 1000
"""Rows of a ``Dataset`` of Hugging Face's that are read at a time where they are stored."""
_TRIED = 8
"""Samples that are read twice, to see whether a transform draws random numbers."""

Collate = Callable[[list[Any]], Any]
"""Function of a list of samples: a batch."""


class Read(NamedTuple):
    """The samples of one client: an array ``[n, ...]``, vectors ``[n, W]`` of several inputs, or an
    Arrow table; and their targets ``[n, ...]``."""

    x: Any
    y: NDArray[Any]


def is_samples(data: Any) -> bool:
    """Return whether an object is a data set or a loader, and no pair of arrays."""
    if isinstance(data, tuple | list | Mapping | str | np.ndarray | Tensor):
        return False
    loads = isinstance(data, torch_data.DataLoader | torch_data.IterableDataset)
    return loads or _is_hub(data) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))


def is_sample_list(data: Any) -> bool:
    """Return whether an object is a list of samples, as a ``DataLoader`` takes it: dictionaries, or
    tuples that begin with an array and end with a label. Pairs of arrays may be many samples
    each."""
    if not isinstance(data, list) or not data:
        return False
    return all(
        isinstance(sample, Mapping)
        or (
            isinstance(sample, tuple)
            and len(sample) > 1
            and _is_array(sample[0])
            and not _is_array(sample[-1])
        )
        for sample in data
    )


def _is_array(value: Any) -> bool:
    """Return whether a value is an array, a tensor or a picture, and no single number."""
    arrays = hasattr(value, "__array__") or hasattr(value, "__array_interface__")
    return arrays and getattr(value, "ndim", 1) > 0


def is_loader(data: Any) -> bool:
    """Return whether an object is a ``Dataset`` or ``DataLoader`` of torch, or a ``Dataset`` of
    Hugging Face's ``datasets``."""
    return isinstance(data, torch_data.Dataset | torch_data.DataLoader) or _is_hub(data)


def _is_hub(data: Any) -> bool:
    """Return whether an object is a ``Dataset`` of Hugging Face's ``datasets``."""
    return all(hasattr(data, name) for name in ("column_names", "features", "with_format"))


def splits_of(data: Any, who: str) -> tuple[Any, Any]:
    """Return the training samples of a client, and those for testing where the client carries them
    (``{"train": ..., "test": ...}``, a ``DatasetDict``); else None.

    Raises
    ------
    DataError: splits without one for training.
    """
    if not isinstance(data, Mapping):
        return data, None
    splits = ", ".join(map(str, data))
    if "train" not in data:
        raise DataError(f"{who} has {splits or 'no splits'}; expected train, and perhaps test")
    unread = [str(name) for name in data if name not in ("train", "test")]
    if unread:
        warnings.warn(
            f"{who}: not read: {', '.join(unread)}; validation=0.1 sets a share of the training "
            "samples aside",
            stacklevel=3,
        )
    return data["train"], data.get("test")


@dataclass
class SampleReader:
    """A reader of the samples of client after client, all of which have the same inputs.

    Parameters
    ----------
    inputs: keys or places of a sample's inputs; None: all but the label.
    label: key or place of its target; None: a column of classes, ``label``, ``labels``, ``target``
    or ``y``, the second of a pair.
    collate: makes a batch of a list of samples, in place of a loader's own.
    key: of what is drawn while samples are read.
    """

    inputs: str | int | Sequence[str | int] | None = None
    label: str | int | None = None
    collate: Collate | None = None
    key: Key = field(default_factory=lambda: Key(0))
    fields: tuple[Field, ...] = ()
    """The inputs of each sample, where there are several; known when the first client was read."""
    classes: ClassNames = field(default_factory=ClassNames)
    """The names of the clients' classes."""
    input_classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the classes of each input that is a ``ClassLabel``."""
    named: bool = False
    """Whether a label is a ``ClassLabel``, whose names are the federation's."""
    random: bool = False
    """Whether samples were seen to differ each time that they are read."""
    new_rows: NewRows | None = None
    """Makes the array that a client's samples are put into; None: in memory."""

    @property
    def names(self) -> tuple[str, ...]:
        """Class names that the data has."""
        used = self.named or self.classes.differ
        return self.classes.joined if used and not self.classes.words else ()

    @property
    def class_count(self) -> int | None:
        """How many classes the data has by name; None where it has no names."""
        return len(self.classes.joined) or None

    def by_name(self, data: Any, y: NDArray[Any], who: str) -> NDArray[Any]:
        """Return the targets of a part as those of classes of the same name in all others.

        Raises
        ------
        DataError: names differ, and not all parts have some.
        """
        names = class_names(data, self.label) if is_samples(data) else ()
        return self.classes.targets(names, y, who)

    def read(self, data: Any, who: str, *place: int | str) -> Read:
        """Return all samples of one client; ``who``: the client, ``place``: folded into the key.

        Raises
        ------
        DataError: samples that are not understood, or a loader that draws some of them several
        times.
        """
        key = self.key.fold("samples", *place)
        if isinstance(data, torch_data.DataLoader):
            with _drawing(key):
                return self._of_loader(data, who, key)
        if _is_hub(data) and hasattr(data, "__len__"):
            return self._of_hub(data, who, key)
        tensors = None if self.collate else _tensors(data)
        if tensors is not None:
            return self._parted(tensors, who)
        return self._each(data, who, key)

    # ------------------------------------------------------------------------ kinds of sources

    def _of_loader(self, loader: Any, who: str, key: Key) -> Read:
        if isinstance(loader.dataset, torch_data.IterableDataset):
            _check_iterable(loader, who)
            return self._joined((self._parted(batch, who) for batch in loader), who)
        rows = _rows_of(loader, who)
        tensors = _tensors(loader.dataset)
        plain = loader.collate_fn is torch_data.default_collate and self.collate is None
        if plain and tensors is not None:
            all_rows = len(rows) == len(loader.dataset)
            return self._parted(tensors if all_rows else [tensor[rows] for tensor in tensors], who)
        collate = self.collate or loader.collate_fn
        return self._collated(
            data=loader.dataset,
            rows=rows,
            size=loader.batch_size or 32,
            collate=collate,
            who=who,
            key=key,
        )

    def _each(self, data: Any, who: str, key: Key) -> Read:
        """Return the samples of a data set, which are read one by one."""
        if isinstance(data, torch_data.IterableDataset) or not hasattr(data, "__len__"):
            samples: Iterable[Any] = iter(data)
            if self.collate:
                collate = self.collate
                batches = iter(lambda: list(islice(samples, 32)), [])
                return self._joined((self._parted(collate(batch), who) for batch in batches), who)
            return self._joined((self._parted(_one(sample), who) for sample in samples), who)
        return self._collated(
            data=data, rows=list(range(len(data))), size=32, collate=self.collate, who=who, key=key
        )

    def _collated(
        self,
        data: Any,
        rows: list[int],
        size: int,
        collate: Collate | None,
        who: str,
        key: Key,
    ) -> Read:
        """Return samples ``data[row]``, as batches of a function or one by one."""

        def batches(rows: list[int]) -> Iterator[Read]:
            if collate is None:
                yield from (self._parted(_one(data[row]), who) for row in rows)
                return
            for first in range(0, len(rows), size):
                yield self._parted(collate([data[row] for row in rows[first : first + size]]), who)

        if not self.random:
            self._try_twice(batches, rows[:_TRIED], who, key)
        with _drawing(key):
            return self._joined(batches(rows), who)

    def _try_twice(
        self, batches: Callable[[list[int]], Iterator[Read]], rows: list[int], who: str, key: Key
    ) -> None:
        """Warn where the same samples differ when they are read again."""
        seen = []
        for attempt in range(2):
            with _drawing(key.fold("tried", attempt)):
                seen.append(list(batches(rows)))
        same = all(
            np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
            for pair in zip(*seen, strict=True)
            for first, second in zip(*pair, strict=True)
        )
        if not same:
            self.random = True
            warnings.warn(
                f"the samples of {who} differ each time that they are read (a transform draws "
                "random numbers): each is read once and keeps what was drawn; to draw anew in "
                "every round, give samples without it, and write own_task(..., transform=lambda "
                "x, key: ...)",
                stacklevel=6,
            )

    def _of_hub(self, data: Any, who: str, key: Key) -> Read:
        """Return the samples of a ``Dataset`` of Hugging Face's: columns as a whole where they are
        numbers, else row by row."""
        own_form = (data.format or {}).get("type") == "custom"
        if self.collate or own_form:
            return self._each(data, who, key)
        columns = list(data.column_names)
        label = self._label_of(columns, data.features, who)
        inputs = self._inputs_of(columns, label, who)
        self.named |= bool(getattr(data.features[label], "names", None))
        self._check_input_classes({name: data.features[name] for name in inputs}, who)
        kinds = {type(data.features[name]).__name__ for name in inputs}
        rows = data.select_columns([*inputs, label])
        if kinds & {"Image", "Audio", "Video", "Pdf"}:
            plain = rows.with_format(None)
            key_of = inputs if len(inputs) > 1 else inputs[0]
            chosen = SampleReader(
                key_of,
                label,
                key=self.key,
                fields=self.fields,
                random=self.random,
                new_rows=self.new_rows,
            )
            samples = chosen._each(plain, who, key)
            self.fields, self.random = chosen.fields, chosen.random
            return samples
        if kinds <= {"Value", "ClassLabel"}:
            table = rows.with_format("arrow")[:]
            target = table.column(label).to_numpy()
            words = target.dtype.kind == "O"
            return Read(
                table.drop_columns([label]), np.asarray(target.tolist()) if words else target
            )
        block_rows = max(len(rows), 1) if self.new_rows is None else _ROWS
        arrays = rows.with_format("numpy")
        parts = (arrays[first : first + block_rows] for first in range(0, len(rows), block_rows))
        if len(inputs) == 1:
            return self._joined(
                (self._as_read(part[inputs[0]], part[label], who) for part in parts), who
            )
        return self._joined((self._parted(part, who, label, inputs) for part in parts), who)

    def _check_input_classes(self, features: Mapping[str, Any], who: str) -> None:
        """Refuse inputs whose numbers are other classes than in the clients before."""
        for name, feature in features.items():
            names = tuple(getattr(feature, "names", None) or ())
            before = self.input_classes.setdefault(name, names)
            if names != before:
                raise DataError(
                    f"{who} has the classes {list(names)} as input {name!r}, others "
                    f"{list(before)}; give all clients one list: dataset.cast_column({name!r}, "
                    f"ClassLabel(names={list(before or names)}))"
                )

    def _label_of(self, columns: list[str], features: Any, who: str) -> str:
        if self.label is not None:
            if self.label not in columns:
                raise DataError(
                    f"{who} has no column {self.label!r}{suggest(str(self.label), columns)}; its "
                    f"columns: {', '.join(columns)}"
                )
            return str(self.label)
        classes = [name for name in columns if type(features[name]).__name__ == "ClassLabel"]
        likely = classes or [name for name in columns if name in _LABELS]
        if len(likely) != 1:
            raise DataError(
                f"{who} has the columns {', '.join(columns)}; say which is to be predicted: "
                f"label={(likely or columns)[-1]!r}"
            )
        return likely[0]

    def _inputs_of(self, columns: list[str], label: str, who: str) -> list[str]:
        if self.inputs is None:
            return [name for name in columns if name != label]
        chosen = [self.inputs] if isinstance(self.inputs, str | int) else list(self.inputs)
        for name in chosen:
            if name not in columns:
                raise DataError(
                    f"{who} has no column {name!r}{suggest(str(name), columns)}; its columns: "
                    f"{', '.join(columns)}"
                )
        return [str(name) for name in chosen]

    # -------------------------------------------------------------------------------- samples

    def _joined(self, parts: Iterator[Read], who: str) -> Read:
        """Return parts put behind one another."""
        x: GrowingArray | StoredArray | None = None
        for part in parts:
            if x is None:
                x, y = (self.new_rows or GrowingArray)(part.x), GrowingArray(part.y)
            for rows, added, kind in ((x, part.x, "samples"), (y, part.y, "targets")):
                if added.shape[1:] != rows.shape:
                    raise DataError(
                        f"{who} has {kind} of shape {list(rows.shape)} and of "
                        f"{list(added.shape[1:])}; bring all to one shape, e.g. pad them to a "
                        "fixed length in collate"
                    )
                rows.add(added)
        if x is None:
            raise DataError(f"{who} has no samples")
        return Read(x.array(), y.array())

    def _parted(
        self, batch: Any, who: str, label: Any = None, inputs: Sequence[Any] | None = None
    ) -> Read:
        """Return inputs and targets of a batch: a dictionary, or a tuple."""
        label = self.label if label is None else label
        if isinstance(batch, Mapping) or hasattr(batch, "keys"):
            batch = {str(name): batch[name] for name in batch.keys()}  # noqa: SIM118 - BatchEncoding
            likely = [name for name in batch if name in _LABELS]
            if label is None and len(likely) == 1:
                label = likely[0]
        elif isinstance(batch, tuple | list):
            batch = dict(enumerate(batch))
            label = 1 if label is None and len(batch) == 2 else label
        else:
            raise DataError(
                f"{who}: a sample is of type {type(batch).__name__}; expected a pair (x, y), or a "
                "dictionary with a label"
            )
        keys = list(batch)
        if label not in batch:
            label_option = f"label={keys[-1]!r}" if keys else "label"
            if len(keys) < 2:
                raise DataError(
                    f"{who}: a sample has {keys[0] if keys else 'nothing'} alone, and no target; "
                    "expected a pair (x, y), e.g. TensorDataset(x, y)"
                )
            if isinstance(keys[0], int):
                line = f"inputs={keys[:-1]!r}, {label_option}"
            else:
                line = label_option
            raise DataError(
                f"{who}: a sample has {', '.join(map(str, keys))}; say which is to be predicted "
                f"(and which are inputs): {line}"
            )
        names = self.inputs if inputs is None else inputs
        if names is None and len(keys) == 2:
            return self._as_read(batch[next(k for k in keys if k != label)], batch[label], who)
        if isinstance(names, str | int):
            return self._as_read(_at(batch, names, who), batch[label], who)
        chosen = [key for key in keys if key != label] if names is None else list(names)
        values = {key: _at(batch, key, who) for key in chosen}
        several = values if isinstance(keys[0], str) else tuple(values.values())
        return self._as_read(several, batch[label], who)

    def _as_read(self, inputs: Any, target: Any, who: str) -> Read:
        """Return inputs, one array or several, and targets as arrays."""
        y = _array(target, who, "the target")
        if hasattr(inputs, "keys"):
            inputs = {str(name): inputs[name] for name in inputs.keys()}  # noqa: SIM118
            several: Any = {
                name: _array(value, who, f"the input {name!r}") for name, value in inputs.items()
            }
        elif isinstance(inputs, tuple) or (
            isinstance(inputs, list)
            and any(isinstance(value, Tensor | np.ndarray) for value in inputs)
        ):
            several = [_array(value, who, f"input {k}") for k, value in enumerate(inputs)]
        else:
            return Read(_array(inputs, who, "the input"), y)
        self.fields = self.fields or fields_of(several)
        return Read(packed(several, self.fields, who), y)


def _at(batch: Mapping[Any, Any], key: Any, who: str) -> Any:
    if key not in batch:
        raise DataError(
            f"{who}: a sample has no input {key!r}; it has {', '.join(map(str, batch))}"
        )
    return batch[key]


def _one(sample: Any) -> Any:
    """Return a sample as a batch of one."""
    if hasattr(sample, "keys"):
        return {str(name): _one_leaf(sample[name]) for name in sample.keys()}  # noqa: SIM118
    if isinstance(sample, tuple | list):
        return tuple(_one_leaf(value) for value in sample)
    return sample


def _one_leaf(leaf: Any) -> Any:
    if hasattr(leaf, "keys"):
        return {str(name): _one_leaf(leaf[name]) for name in leaf.keys()}  # noqa: SIM118
    if isinstance(leaf, tuple):
        return tuple(_one_leaf(part) for part in leaf)
    if isinstance(leaf, list) and any(isinstance(part, Tensor | np.ndarray) for part in leaf):
        return [_one_leaf(part) for part in leaf]
    return _picture(leaf)[None]


def _picture(value: Any) -> Any:
    """Return an array of a number, a tensor, or a picture of Pillow's as ``[C, H, W]``."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if not hasattr(value, "getbands"):
        try:
            return np.asarray(value)
        except ValueError:  # rows of different lengths, which the batch's check refuses
            return np.asarray(None)
    if len(value.getbands()) not in (1, 3) or value.mode in ("P", "HSV", "YCbCr", "LAB"):
        raise DataError(
            f"got a picture of mode {value.mode}; expected grey or RGB: convert it, "
            'e.g. picture.convert("RGB")'
        )
    refuse_deep_colour(value, f"a picture {getattr(value, 'filename', '')}".rstrip())
    pixels = np.asarray(value)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _array(value: Any, who: str, name: str) -> NDArray[Any]:
    """Return a batch of values as an array of numbers or words.

    Raises
    ------
    DataError: rows of different lengths, or anything else.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        converted: NDArray[Any] = (
            value.float() if value.dtype == torch.bfloat16 else value
        ).numpy()
        return converted
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind == "O" or not array.ndim:
        raise DataError(
            f"{who}: {name} is no array of numbers with a row for each sample, or its rows have "
            "different lengths; bring all to one shape, e.g. pad them to a fixed length in collate"
        )
    if array.dtype.kind in "US" and name != "the target":
        raise DataError(
            f"{who}: {name} is text ({str(array.ravel()[0])[:40]!r}); turn it into tokens, or name "
            'the other inputs: inputs=["input_ids"]'
        )
    return array


def _tensors(data: Any) -> Sequence[Tensor] | None:
    """Return the tensors of a ``TensorDataset``, or of subsets of one; None for other data sets,
    whose samples may be anything."""
    if type(data) is torch_data.TensorDataset:
        return data.tensors
    if type(data) is torch_data.Subset:
        tensors = _tensors(data.dataset)
        return None if tensors is None else [tensor[list(data.indices)] for tensor in tensors]
    return None


def _check_iterable(loader: Any, who: str) -> None:
    """Refuse a loader of an ``IterableDataset`` that leaves samples out, or may read each as often
    as it has workers.

    Raises
    ------
    DataError: ``drop_last``, or ``num_workers`` above 0.
    """
    if loader.drop_last:
        raise DataError(
            f"{who}: the loader of an IterableDataset has drop_last=True, and leaves out the "
            "samples of its last batch; write DataLoader(..., drop_last=False), or give its data "
            "set, loader.dataset"
        )
    if loader.num_workers:
        raise DataError(
            f"{who}: the loader of an IterableDataset has num_workers={loader.num_workers}, each "
            "of which may read all samples; write DataLoader(..., num_workers=0), or give its "
            "data set, loader.dataset"
        )


def _rows_of(loader: Any, who: str) -> list[int]:
    """Return the rows that a loader gives, ascending.

    Raises
    ------
    DataError: it draws rows by weights, some several times, or not all of those that it may.
    """
    sampler = loader.sampler
    batches = loader.batch_sampler
    if batches is None:
        raise DataError(
            f"{who}: the loader makes no batches (batch_size=None); give its data set, "
            "loader.dataset"
        )
    if isinstance(sampler, torch_data.RandomSampler):
        drawn = sampler.replacement or sampler.num_samples != len(loader.dataset)
    else:
        drawn = isinstance(sampler, torch_data.WeightedRandomSampler)
    if not drawn and type(batches) is torch_data.BatchSampler:
        if isinstance(sampler, torch_data.RandomSampler | torch_data.SequentialSampler):
            return list(range(len(loader.dataset)))
        rows = list(sampler)
    else:
        rows = [] if drawn else [row for batch in batches for row in batch]
    if drawn or len(set(rows)) < len(rows):
        raise DataError(
            f"{who}: the loader's {type(sampler).__name__} draws some samples several times or not "
            "at all, and batches are drawn by the run; give its data set, loader.dataset"
        )
    return sorted(int(row) for row in rows)


@contextmanager
def _drawing(key: Key) -> Iterator[None]:
    """Inside the block the process-wide generators of torch, numpy and Python draw what the key
    says; afterwards they go on as before."""
    seed = key.words()[0]
    states = (getstate(), np.random.get_state())  # noqa: NPY002 - a user's transform draws
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed >> 1)
        setstate(Random(seed).getstate())
        np.random.set_state(np.random.RandomState(seed % 2**32).get_state())  # noqa: NPY002
        try:
            yield
        finally:
            setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
