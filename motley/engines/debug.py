"""The reference engine with its eyes open: the first number that is not finite stops the run and says where it was met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from motley.core.errors import EngineError
from motley.engines.base import Setting
from motley.engines.sequential import Sequential

__all__ = ["Debug"]


class Debug(Sequential):
    """One client after the other, every step checked.

    Unlike the other engines it raises where a client's numbers are not finite: an :class:`EngineError` whose ``context`` holds
    client, dispatch, step, inputs, per-sample losses and the flat gradient.
    """

    name: ClassVar[str] = "debug"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, _check)


def _check(doing: Mapping[str, object], loss: Tensor, gradient: Tensor) -> None:
    """Inputs first, then what became of them."""
    inputs = doing["inputs"]
    found: dict[str, object] = {"inputs": inputs, "loss": loss, "gradient": gradient}
    for what, value in found.items():
        if isinstance(value, Tensor) and not bool(value.isfinite().all()):
            where = f"step {doing['step']} of client {doing['client']}"
            copies = {name: t.clone() for name, t in found.items() if isinstance(t, Tensor)}
            raise EngineError(f"the {what} of {where} is not finite", {**doing, **copies})
