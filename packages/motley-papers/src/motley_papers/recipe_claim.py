"""A claim of a recipe: a sentence, where the paper says it, and the comparison that tests it, with
how much of its protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Values = Annotated[
    list[str], BeforeValidator(lambda value: value if isinstance(value, list) else [value])
]
Place = dict[str, Values]
"""Axis -> the values meant; the key ``measure`` names a measure."""
CHOSEN_BY = "validation"
"""The measure by which the value of a tuned axis is chosen."""
Kind = Literal["whole", "theory", "reduced", "other data"]
KINDS: tuple[Kind, ...] = ("whole", "theory", "reduced", "other data")
KIND_WORDS: dict[Kind, str] = {"whole": "whole protocol", "theory": "theory on data of ours"}
"""How a kind is named where it is not by itself."""


class Protocol(NamedTuple):
    """How much of a paper's protocol something is: ``detail`` says what is smaller than in the
    paper, or which data stand for the paper's. A ``theory`` (a lemma, a bound) is about any data:
    it is tested on ours, and no experiment of the paper is repeated."""

    kind: Kind
    detail: str = ""

    @classmethod
    def read(cls, text: str) -> Protocol:
        """Return the protocol of a text; :meth:`problem` says whether it is one."""
        kind, _, detail = text.partition(":")
        return cls(cast(Kind, kind), detail.strip())

    @property
    def problem(self) -> bool:
        """Whether the kind is unknown, or nothing says what is reduced, which data these are, or
        what the theory is about."""
        return self.kind not in KINDS or (self.kind != "whole" and not self.detail)

    @classmethod
    def kind_of(cls, words: str) -> Kind:
        """Return the kind that :attr:`words` begins with."""
        return next(kind for kind in KINDS if words.startswith(KIND_WORDS.get(kind, kind)))

    @property
    def words(self) -> str:
        """``whole protocol``, ``theory on data of ours: WHAT``, ``reduced: WHAT`` or
        ``other data: WHAT``."""
        kind = KIND_WORDS.get(self.kind, self.kind)
        return f"{kind}: {self.detail}" if self.detail else kind


WHOLE = Protocol("whole")


class RecipeTable(BaseModel):
    """A table of ``recipe.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Claim(RecipeTable):
    """A sentence and what would show it.

    ``higher = A, than = B``: the measure is higher in the cells A than in the cells B (in each of
    them, where there are several tables), averaged over the axes that neither names, paired by
    seed. ``below`` and ``above`` hold a mean against a number.
    """

    text: str
    """The claim."""
    source: str = ""
    """Where the paper says it: section, table, sentence; empty for a claim of our own."""
    protocol: str = ""
    """How much of the paper's protocol tests it, where that differs from the exhibit's;
    ``theory: WHAT`` of a lemma or bound."""
    untested: str = ""
    """Why nothing that was measured tests it."""
    counterexample: str = ""
    """What the claim allows and what then breaks it, worked out: it is false as stated, and no runs
    test it."""
    published: str = ""
    """The paper's own figures."""
    exhibit: str
    """The exhibit whose runs test it."""
    measure: str | None = None
    """The measure compared; the exhibit's first by default."""
    where: Place = Field(default_factory=dict)
    """Cells that the claim is about."""
    higher: Place | None = None
    """These cells are above ``than``."""
    lower: Place | None = None
    """These cells are below ``than``."""
    than: Annotated[
        list[Place], BeforeValidator(lambda value: value if isinstance(value, list) else [value])
    ] = Field(default_factory=list)
    """Cells that they are compared with."""
    of: Literal["mean", "spread"] = "mean"
    """What is compared over seeds: the means, or the mean absolute deviations from each side's
    median, as the test of Brown and Forsythe compares spreads, here paired by seed."""
    margin: float = 0.0
    """Difference in the wrong direction that still counts as no worse; below 0: how much more than
    none the claim asks for."""
    below: float | None = None
    """The mean lies below this number."""
    above: float | None = None
    """The mean lies above this number."""
    tuned: str | None = None
    """An axis that is tuned by ``validation``, and then has the values ``own`` and ``elsewhere``
    (`motley_papers.tuning`)."""
    pair: Literal["seed", "cell"] = "seed"
    """Whether the interval is over seeds (cells averaged first), or over cells and seeds
    together."""

    def measures(self, shown: Sequence[str]) -> list[str]:
        """Return the measures that the comparisons of the claim look at; ``shown``: the measures of
        its exhibit, the first of which a claim means that names none."""
        places = [self.where, self.higher or {}, self.lower or {}, *self.than]
        named = [name for place in places for name in place.get("measure", [])]
        return list(
            dict.fromkeys([self.measure or shown[0], *named, *([CHOSEN_BY] if self.tuned else [])])
        )
