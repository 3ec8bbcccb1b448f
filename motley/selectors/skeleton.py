"""Templates of the two files that ``motley new selector NAME`` writes: a selection rule and its test.

The generated rule works as it is: it draws clients with probability proportional to their last reported loss, and passes the
contract suite. Replace the formulas, the state and the choice by those of your paper.

>>> sorted(skeleton("loudest"))
['loudest.py', 'test_loudest.py']
"""

from __future__ import annotations

import keyword
import sys
from string import Template

from motley.core.errors import ConfigError
from motley.selectors import CATALOGUE

__all__ = ["skeleton"]

_RULE = Template('''"""$title: one sentence that says which clients the rule chooses and why.

Authors: *Title*, venue, year. (The same goes into ``paper`` below.)

    p_k = max(L_k, 0) / sum_j max(L_j, 0)        m successive draws without replacement

Symbols: ``L_k`` the last loss that client k reported; the mean of the known ones for a client that never reported.
State, per client: ``loss``. Needs: ``loss`` reported. Probe cost: none.

Deviations: none. (Name what the paper leaves open and how it is read here, and where code and paper disagree.)

>>> from motley.selectors import Selector
>>> selector = Selector($rule(), seed=0)
>>> cohort = selector.select(1, available_ids=range(10), m=3)
>>> len(cohort.ids)
3
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.paper import Paper
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.base import SelectionRule
from motley.selectors.common.client_signals import filled
from motley.selectors.common.sampling import successive_draws

__all__ = ["$rule"]


@dataclass(frozen=True)
class $rule(SelectionRule[ClientTable]):
    """Draw clients in proportion to their last loss.

    Parameters
    ----------
    sharpness: exponent on the loss; 0 is uniform.
    """

    sharpness: float = 1.0

    paper: ClassVar[Paper] = Paper("$name", "Title", ("First Author",), "Venue", 2026)

    def __post_init__(self) -> None:
        if not 0 <= self.sharpness < float("inf"):
            raise ConfigError(f"got sharpness = {self.sharpness}; expected a number of at least 0")

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(reported=frozenset({"loss"}))  # motley.core.records.SIGNALS lists all signals

    @override
    def init(self) -> ClientTable:
        return ClientTable({"loss": np.nan})  # NaN: no loss yet; a frozen dataclass if the rule must remember more than columns

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        loss = filled(state.get("loss", context.available))  # unknown losses: the mean of the others
        drawn = successive_draws(np.maximum(loss, 0.0) ** self.sharpness, context.m, context.rng)  # draw from context.rng only
        return Cohort(context.available[drawn])  # positions mapped to ids

    @override
    def observe(self, state: ClientTable, round: int, reports: Reports) -> ClientTable:
        accepted = reports.of(Outcome.ACCEPTED)  # absent and non-finite signals are NaN, which ``put`` leaves out
        return state.put(accepted.ids, {"loss": accepted.signal("loss")})
''')

_TEST = Template('''"""$title: the contract suite, and at least two numbers worked out by hand."""

import numpy as np
import pytest

from $name import $rule
from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import Selector
from motley.testing.selectors import check_selector


@pytest.mark.parametrize("rule", [$rule(), $rule(sharpness=2.0)], ids=str)
def test_contract(rule):
    check_selector(rule)


def test_probabilities_worked_by_hand():
    """Losses (1, 3), m = 1: p = (1/4, 3/4). 2000 draws: standard error .0097."""
    selector = Selector($rule())
    selector.observe(1, Reports([5, 8], Outcome.ACCEPTED, signals={"loss": [1.0, 3.0]}))
    share = np.mean([selector.select(t, [5, 8], 1).ids[0] == 8 for t in range(2, 2002)])
    assert abs(share - 0.75) < 0.04


def test_a_client_without_loss_is_never_drawn_first():
    selector = Selector($rule())
    selector.observe(1, Reports([5, 8], Outcome.ACCEPTED, signals={"loss": [0.0, 3.0]}))
    assert all(selector.select(t, [5, 8], 1).ids.tolist() == [8] for t in range(2, 50))


def test_bad_options_are_refused():
    with pytest.raises(ConfigError, match="got sharpness = -1; expected a number of at least 0"):
        $rule(sharpness=-1)
''')


def skeleton(name: str) -> dict[str, str]:
    """Return file name -> text of a new rule and of its test, both for one folder.

    Parameters
    ----------
    name: name of the rule and of its module, in snake_case, e.g. ``"loudest_first"``.

    Raises
    ------
    ConfigError: not a valid module name, or already the name of a rule or of a Python module.
    """
    if not (name.isascii() and name.isidentifier() and name == name.lower()) or keyword.iskeyword(name) or name[0] == "_":
        raise ConfigError(f"got {name!r}; expected a name in snake_case, such as loudest_first", "name")
    if name in CATALOGUE.targets or name in CATALOGUE.planned:
        raise ConfigError(f"got {name!r}, which is the name of a rule of Motley; choose another", "name")
    if name in sys.stdlib_module_names or name in ("motley", "numpy", "pytest"):
        raise ConfigError(f"got {name!r}, which is the name of a Python module; choose another, such as {name}_rule", "name")
    words = [word for word in name.split("_") if word]
    fill = {"name": name, "title": " ".join(words).capitalize(), "rule": "".join(word.capitalize() for word in words)}
    return {f"{name}.py": _RULE.substitute(fill), f"test_{name}.py": _TEST.substitute(fill)}
