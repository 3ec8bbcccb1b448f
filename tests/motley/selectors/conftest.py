"""For tests of selectors: the same clients are grouped once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from motley.selectors import fedcvr_bolt, fedstas


@pytest.fixture(scope="module")
def clustered_once() -> Iterator[None]:
    """Group the same vectors once in a file: many tests play the same rounds again and again. That
    groups are a function of the arguments is held in test_clustering."""

    def once(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        groups: dict[Any, np.ndarray] = {}

        def grouped(*args: Any, **options: Any) -> np.ndarray:
            parts = [*args, *(options[name] for name in sorted(options))]
            asked = tuple(
                (part.dtype.str, part.shape, part.tobytes())
                if isinstance(part, np.ndarray)
                else part
                for part in parts
            )
            if asked not in groups:
                groups[asked] = function(*args, **options)
            return groups[asked].copy()

        return grouped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedcvr_bolt, "coalitions", once(fedcvr_bolt.coalitions))
        patch.setattr(fedcvr_bolt, "scikit_coalitions", once(fedcvr_bolt.scikit_coalitions))
        patch.setattr(fedstas, "k_means", once(fedstas.k_means))
        yield
