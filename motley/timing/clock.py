"""The virtual clock: a number of seconds that only grows."""

from __future__ import annotations

import math

from motley.core.errors import ConfigError, ContractError

__all__ = ["Clock"]


class Clock:
    """Virtual seconds since the start of the run. Its state is one number: ``Clock(old.now_s)`` goes on where ``old`` was.

    Example
    -------
    >>> clock = Clock()
    >>> clock.advance(2.5)
    >>> clock.now_s
    2.5
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = 0.0
        self.advance(now_s)

    @property
    def now_s(self) -> float:
        """The moment."""
        return self._now_s

    def advance(self, to_s: float) -> None:
        """Move to a later moment, or stay.

        Raises
        ------
        ContractError: a moment before now. ConfigError: no finite one: a device or a link of the experiment never gets done.
        """
        if not math.isfinite(to_s):
            said = f"at {self._now_s} s of virtual time the next thing would happen at {to_s} s; expected a finite moment"
            raise ConfigError(f"{said}: look at the options of device and network")
        if to_s < self._now_s:
            raise ContractError(f"the clock at {self._now_s} s was asked to go back to {to_s} s")
        self._now_s = float(to_s)
