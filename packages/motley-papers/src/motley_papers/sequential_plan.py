"""The record of a sequential test: which claims are tested so, with how many seeds at most, and the
seeds that were added.

It lies beside the runs, and with the recipe's numbers once they are kept, so that every later
verdict allows for the looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from motley.core.errors import DataError
from motley.core.files import no_file
from motley.experiments import document
from motley_papers.sequential import SpendingPlan
from motley_report.page import replace_files

SEQUENTIAL = "sequential.json"


class SequentialPlan(BaseModel):
    """Which claims of a recipe are tested after every seed, and the seeds that were added for
    them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most: Annotated[int, Field(ge=2, le=1000)] = 2
    """The most seeds of a comparison."""
    lengthened: list[Annotated[int, Field(ge=2, le=1000)]] = Field(default_factory=list)
    """The most seeds that were planned before, rising: results had been seen when there came to be
    more."""
    claims: list[str] = Field(default_factory=list)
    """The claims' texts."""
    seeds: Mapping[str, list[Annotated[int, Field(ge=-(2**63), lt=2**63)]]] = Field(
        default_factory=dict
    )
    """Exhibit -> seeds added."""

    def looks_of(self, claim: str) -> SpendingPlan | None:
        """Return the looks at a claim, in seeds; None where it is tested once."""
        return SpendingPlan((*self.lengthened, self.most)) if claim in self.claims else None

    def with_seed(self, exhibit: str, seed: int) -> SequentialPlan:
        """Return the plan with one more seed of an exhibit."""
        return self.model_copy(
            update={"seeds": {**self.seeds, exhibit: sorted({*self.seeds.get(exhibit, []), seed})}}
        )

    def joined(self, second: SequentialPlan) -> SequentialPlan:
        """Return both plans together: the claims and seeds of both, and the larger number of seeds,
        which lengthens the smaller."""
        names = dict.fromkeys([*self.seeds, *second.seeds])
        seeds = {
            name: sorted({*self.seeds.get(name, []), *second.seeds.get(name, [])}) for name in names
        }
        claims = list(dict.fromkeys([*self.claims, *second.claims]))
        *before, most = sorted(
            {end for plan in (self, second) if plan.claims for end in (*plan.lengthened, plan.most)}
            or {2}
        )
        return SequentialPlan(most=most, lengthened=before, claims=claims, seeds=seeds)

    def write(self, folder: Path) -> None:
        """Write the plan into a folder.

        Raises
        ------
        StoreError: it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        replace_files({folder / SEQUENTIAL: self.text()}, folder / SEQUENTIAL)

    def text(self) -> str:
        """Return the plan as the text of its file."""
        return self.model_dump_json(indent=2) + "\n"


def read_plan(folders: Iterable[Path]) -> SequentialPlan:
    """Return the plans in some folders, joined; an empty one where there is none.

    Raises
    ------
    DataError: a file is damaged.
    """
    plan = SequentialPlan()
    for folder in folders:
        path = folder / SEQUENTIAL
        if no_file(path) == "does not exist":
            continue
        try:
            plan = plan.joined(
                SequentialPlan.model_validate_json(
                    document.read_text(path, "the record of a sequential test")
                )
            )
        except ValidationError as error:
            raise DataError(
                f"{path} is damaged ({error.errors()[0]['msg']}); restore it, or remove it to test "
                "each claim once"
            ) from None
    return plan
