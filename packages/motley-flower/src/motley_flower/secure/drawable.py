"""Rules whose draws clients can recompute, and the public numbers by which they draw.

    uniform   m of the roster, each set as likely as every other
              numbers: none
    weighted  m successive draws without replacement, by samples
              numbers: the samples of every client
    tiers     a tier, each as likely, then m of its clients uniformly
              numbers: the tier of every client, 0 the fastest

The draws are those of the selectors ``uniform``, ``uniform`` with ``variant = "weighted_wor"``, and
``tifl`` as long as it neither looks at losses nor groups anew nor spends all credits of a tier.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from motley.core.errors import ConfigError, SecureAggregationError
from motley.selectors.common.client_signals import SIZE
from motley.selectors.selector import Selector
from motley.selectors.tifl import TiFL
from motley.selectors.uniform import Uniform

DrawRule = Literal["uniform", "weighted", "tiers"]
_HEAD = struct.Struct("<BI")
_MOST_TIERS = 10_000


@dataclass(frozen=True)
class DrawTable:
    """What draws depend on beside chance: published before the first, the same for all rounds.

    Parameters
    ----------
    rule: of the draws.
    numbers: client -> its number of samples or its tier; empty under ``uniform``.
    tiers: how many there are.
    """

    rule: DrawRule = "uniform"
    numbers: Mapping[int, float] = field(default_factory=dict)
    tiers: int = 0

    def body(self, roster: Sequence[int]) -> bytes:
        """Return the table as bytes, a number for every client of the roster."""
        values = [self.numbers[client] for client in roster] if self.rule != "uniform" else []
        return _HEAD.pack(get_args(DrawRule).index(self.rule), self.tiers) + struct.pack(
            f"<{len(values)}d", *values
        )

    @classmethod
    def read(cls, body: bytes, roster: Sequence[int]) -> DrawTable:
        """Return the table in these bytes.

        Raises
        ------
        SecureAggregationError: bytes that are no table for this roster.
        """
        kind, tiers = _HEAD.unpack(body[: _HEAD.size].ljust(_HEAD.size, b"\xff"))
        n = len(roster) if kind else 0
        if (
            kind >= len(get_args(DrawRule))
            or tiers > _MOST_TIERS
            or len(body) != _HEAD.size + 8 * n
        ):
            raise SecureAggregationError(
                "got no table of a rule and its numbers that draws are made by"
            )
        values = struct.unpack(f"<{n}d", body[_HEAD.size :])
        table = cls(
            get_args(DrawRule)[kind], dict(zip(roster, values, strict=True)) if n else {}, tiers
        )
        if not all(0 <= value < 2**53 and value == int(value) for value in values) or (
            kind == 2
        ) != (tiers > 0):
            raise SecureAggregationError(
                "got numbers of samples, or tiers, that are not whole or below 0"
            )
        if kind == 2 and max(values) >= tiers:
            raise SecureAggregationError(f"got a client in tier {max(values):.0f} of {tiers}")
        return table

    def selector(self, seed: int, clients: Sequence[int]) -> Selector[Any]:
        """Return the selector whose choice among these clients is the draw."""
        if self.rule == "uniform":
            return Selector(Uniform(), seed)
        values = [self.numbers[client] for client in clients]
        rule: Any = (
            Uniform("weighted_wor") if self.rule == "weighted" else TiFL(self.tiers, credits=1)
        )
        selector = Selector(rule, seed)
        if self.rule == "weighted":
            selector.state = selector.state.put(clients, {SIZE: values})
        else:
            selector.state = replace(
                selector.state, clients=selector.state.clients.put(clients, {"tier": values})
            )
        return selector

    @classmethod
    def of(cls, rule: DrawRule, selector: Any, roster: Sequence[int]) -> DrawTable:
        """Return the table that the state of a :class:`~motley.selectors.selector.Selector` gives.

        A client that never enrolled has 0 samples, or is in the slowest tier.

        Raises
        ------
        ConfigError: no client's duration is known, so that there are no tiers.
        """
        if rule == "uniform":
            return cls()
        ids = np.array(roster, np.int64)
        if rule == "weighted":
            values = np.nan_to_num(selector.state.get(SIZE, ids))
            return cls(rule, dict(zip(roster, values.tolist(), strict=True)))
        if np.isnan(selector.state.clients.get("duration", ids)).all():
            raise ConfigError(
                "tifl knows no client's duration, so that there are no tiers to commit to; take a "
                "selector that has learned them, or "
                "tell it: selector.observe(0, Reports(ids, Outcome.ENROLLED, "
                'signals={"compute_estimate_s": seconds}))',
                "draws",
            )
        tiers = selector.state.clients.get("tier", ids)
        return cls(rule, dict(zip(roster, tiers.tolist(), strict=True)), selector.rule.tiers)


def check_drawable(rule: object, wanted: DrawRule, rounds: int) -> None:
    """Refuse a selector whose draw the clients could not recompute, or that is not the rule that
    they expect.

    Raises
    ------
    ConfigError: one of these.
    """
    kinds: tuple[tuple[object, DrawRule], ...] = (
        (Uniform(), "uniform"),
        (Uniform("weighted_wor"), "weighted"),
    )
    kind = next((kind for candidate, kind in kinds if rule == candidate), None)
    if type(rule) is TiFL:
        kind = "tiers"
    if kind is None:
        raise ConfigError(
            f"{type(rule).__name__} draws from what clients report in rounds, or with "
            "coefficients, so that clients cannot recompute "
            'its cohorts; take the selector uniform (by samples with variant = "weighted_wor") or '
            "tifl, or leave draws out",
            "draws",
        )
    if isinstance(rule, TiFL) and min(rule.interval, rule.retier, rule.credits or 0) < rounds:
        options = f'"credits": {rounds}, "interval": {rounds}, "retier": {rounds}'
        raise ConfigError(
            f"TiFL looks at losses, groups anew or runs out of credits within {rounds} rounds, so "
            "that clients cannot recompute its "
            f'cohorts; write build({{"name": "tifl", {options}}})',
            "draws",
        )
    if kind != wanted:
        raise ConfigError(
            f'the selector draws by "{kind}" and the options say "{wanted}"; write '
            f'SecureOptions(..., draw_rule="{kind}") at both '
            "ends",
            "draw_rule",
        )
