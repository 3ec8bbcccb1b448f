"""The clock: forward only, one number of state."""

import pytest

from motley.core.errors import ConfigError, ContractError
from motley.timing.clock import Clock


def test_it_goes_on_where_another_was():
    clock = Clock()
    clock.advance(2.5)
    clock.advance(2.5)
    again = Clock(clock.now_s)
    again.advance(3)
    assert (clock.now_s, again.now_s) == (2.5, 3.0)


def test_it_never_goes_back():
    clock = Clock(2.0)
    with pytest.raises(ContractError, match=r"clock at 2.0 s was asked to go back to 1.5 s"):
        clock.advance(1.5)
    assert clock.now_s == 2.0


@pytest.mark.parametrize("moment", [float("nan"), float("inf")])
def test_it_wants_a_moment(moment):
    with pytest.raises(ConfigError, match="expected a finite moment"):
        Clock().advance(moment)
