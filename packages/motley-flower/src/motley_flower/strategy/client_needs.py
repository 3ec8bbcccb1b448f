"""Compare what a selector needs from clients with what a client app declares, before the first
round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motley.core.records import SIGNALS, SignalRequirements
from motley_flower.checked_numbers import only_metrics
from motley_flower.node_registry import RECORD

PAGE = "docs/deploy/which-rule.md"
_OCCASIONS = {
    "enrolled": "at enrolment",
    "probed": "before a choice",
    "reported": "with every reply",
}


@dataclass(frozen=True)
class ClientNeeds:
    """What a selection rule needs from clients beyond what every reply has.

    Parameters
    ----------
    rule: its class's name.
    enrolled, probed, reported: signals that only a client can tell.
    """

    rule: str
    enrolled: frozenset[str]
    probed: frozenset[str]
    reported: frozenset[str]

    @classmethod
    def of(cls, rule: str, needs: SignalRequirements, reported: frozenset[str]) -> ClientNeeds:
        """Return the needs of a rule; ``reported``: those with a reply that the server does not
        compute itself."""
        enrolled = frozenset(
            name
            for name in needs.enrolled
            if SIGNALS[name].kind == "enrolment" and name != "num_examples"
        )
        probed = frozenset(
            name for name in needs.probed if SIGNALS[name].kind not in ("system", "channel")
        )
        return cls(rule, enrolled, probed, reported)

    def lacks(self, content: Any) -> str:
        """Return in a sentence what an app does not report, and the line that adds it; empty if
        nothing is missing.

        Parameters
        ----------
        content: the records of its answer to the enrolment query; None: it does not answer.
        """
        declared: Mapping[str, Any] = {} if content is None else content.config_records[RECORD]
        metrics = set() if content is None else set(only_metrics(content)[1])
        missing = {
            "enrolled": self.enrolled - metrics,
            "probed": self.probed - _names(declared, "probed"),
            "reported": self.reported - _names(declared, "reported"),
        }
        parts = [
            f"{', '.join(sorted(names))} {_OCCASIONS[when]}"
            for when, names in missing.items()
            if names
        ]
        if not parts:
            return ""
        return (
            f"{self.rule} needs {' and '.join(parts)}, which the client app does not report; "
            f"{self._remedy(missing, content)}"
        )

    def _remedy(self, missing: Mapping[str, frozenset[str]], content: Any) -> str:
        from motley_flower.strategy.reporting import MEASURED_BEFORE, MEASURED_IN_TRAINING

        own = sorted(
            (missing["probed"] - MEASURED_BEFORE) | (missing["reported"] - MEASURED_IN_TRAINING)
        )
        if own:
            return (
                f"with_reports cannot measure {', '.join(own)}: see {PAGE} for the lines of "
                "your own, or take another selector"
            )
        options = ", labels=my_labels, classes=10" if missing["enrolled"] else ""
        hint = (
            "  # my_labels(context): the labels of the node's training samples" if options else ""
        )
        if content is None or options:
            return (
                'one line below "app = ClientApp()" adds it: app = '
                f"with_reports(app{options}){hint}"
                "  # from motley_flower import with_reports"
            )
        if missing["probed"]:
            return (
                "it is measured where an app without client_fn imports torch at its top; see "
                f"{PAGE} for the lines of your own"
            )
        names = ", ".join(f'"{name}"' for name in sorted(missing["reported"]))
        return (
            "it is measured where the app imports torch at the top of its file; otherwise put it "
            f"into the reply's MetricRecord, with_reports(app, reports=[{names}])"
        )


def _names(declared: Mapping[str, Any], when: str) -> set[str]:
    return set(str(declared.get(when, "")).split(","))
