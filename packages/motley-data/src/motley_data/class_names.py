"""Names of classes that data sets carry: numbers of different lists are brought to one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils import data as torch_data

from motley.core.errors import DataError
from motley.core.untrusted import shortened

_CAST = 'dataset.cast_column("label", ClassLabel(names=[...]))'


def class_names(data: Any, label: Any = None) -> tuple[str, ...]:
    """Return the names of the classes of a data set or loader in the order of their numbers: of a
    ``ClassLabel`` of Hugging Face's, of ``class_to_idx`` or ``classes`` of torch's; empty where it
    has none, or a ``target_transform`` that numbers its classes anew.

    Parameters
    ----------
    label: the column of targets; None: the only one of classes.

    Raises
    ------
    DataError: data sets put behind one another have different ones.
    """
    while isinstance(data, torch_data.DataLoader | torch_data.Subset):
        data = data.dataset
    if isinstance(data, torch_data.ConcatDataset):
        lists = list(dict.fromkeys(class_names(part, label) for part in data.datasets))
        if len([names for names in lists if names]) > 1:
            raise DataError(
                f"a ConcatDataset has data sets with the classes {_listed(lists[0])} and "
                f"{_listed(lists[1])}; expected one list for all"
            )
        return lists[0] if len(lists) == 1 else ()
    if isinstance(features := getattr(data, "features", None), Mapping):
        single = [name for name, feature in features.items() if hasattr(feature, "names")]
        column = single[0] if label is None and len(single) == 1 else label
        return _of_feature(features.get(column))
    if getattr(data, "target_transform", None) is not None:
        return ()
    numbers = getattr(data, "class_to_idx", None)
    if isinstance(numbers, Mapping) and sorted(numbers.values()) == list(range(len(numbers))):
        return tuple(sorted(map(str, numbers), key=lambda name: int(numbers[name])))
    classes = getattr(data, "classes", None)
    listed = isinstance(classes, list | tuple) and all(isinstance(name, str) for name in classes)
    return tuple(classes or ()) if listed else ()


def _of_feature(feature: Any) -> tuple[str, ...]:
    """Return the names of a ``ClassLabel``, or of a list of them."""
    return tuple(getattr(getattr(feature, "feature", feature), "names", None) or ())


@dataclass
class ClassNames:
    """The names of the classes of client after client."""

    joined: tuple[str, ...] = ()
    """In the order of the numbers that targets have in all clients."""
    differ: bool = False
    """Whether clients have different lists."""
    words: bool = False
    """Whether the first targets were words, as all are then."""
    _unnamed: str = ""

    def targets(self, names: tuple[str, ...], y: NDArray[Any], who: str) -> NDArray[Any]:
        """Return the targets ``[n, ...]`` of a part as those of the same class in all others.

        Parameters
        ----------
        names: of its classes, in the order of its numbers; empty: it has none.
        who: the part.

        Raises
        ------
        DataError: lists differ, and not all parts have one.
        """
        if y.dtype.kind in "USO":
            self.words |= not self.joined
            if self.words or not all(isinstance(word, str) for word in y.ravel()):
                return y
            return self._numbers(tuple(map(str, np.unique(y.astype(str)))), y.astype(str))
        if not names:
            self._unnamed = self._unnamed or who
            if self.differ:
                raise self._different(who, names)
            return y
        if self.words:
            self._check(names, y, who)
            return np.asarray(names).take(y)
        if names[: len(self.joined)] == self.joined[: len(names)]:
            self.joined = max(self.joined, names, key=len)
            return y
        self.differ = True
        self._check(names, y, who)
        places = np.asarray(self._places(names))
        return np.where(y >= 0, places[y], y)

    def _places(self, names: Sequence[str]) -> list[int]:
        """Return the place of each name among all names, after adding those that are new."""
        self.joined += tuple(name for name in names if name not in self.joined)
        return [self.joined.index(name) for name in names]

    def _numbers(self, names: tuple[str, ...], y: NDArray[Any]) -> NDArray[Any]:
        """Return words as the numbers of their classes."""
        places = np.asarray(self._places(names))
        return np.asarray(places[np.searchsorted(names, y)])

    def _check(self, names: tuple[str, ...], y: NDArray[Any], who: str) -> None:
        """Refuse targets that cannot be brought to another list."""
        if self._unnamed or y.ndim != 1 or y.dtype.kind not in "iu" or (y >= len(names)).any():
            raise self._different(who, names)

    def _different(self, who: str, names: tuple[str, ...]) -> DataError:
        has = f"the classes {_listed(names)}" if names else "numbers without names of classes"
        expects = "words" if self.words else _listed(self.joined)
        also = f", and {self._unnamed} has numbers without names" if self._unnamed and names else ""
        return DataError(
            f"{who} has {has}, others {expects}{also}; which number is which class is not certain: "
            f"give all of them one list, e.g. {_CAST}"
        )


def _listed(names: Sequence[str]) -> str:
    return shortened(f"[{', '.join(names)}]", 200)
