"""The state of a selector that an older Motley wrote goes on."""

from pathlib import Path

import numpy as np

from motley.selectors.selector import Selector

OLDER = Path(__file__).parent / "older"


def test_the_state_of_a_selector_goes_on_where_the_older_version_would():
    selector = Selector.from_bytes((OLDER / "selector.bin").read_bytes())
    # the older version, which had observed clients 3 and 2 in round 1, chose these with the same
    # bytes
    assert selector.select(2, np.arange(6), m=2).ids.tolist() == [3, 1]
