"""Let a selector observe clients that enrol, whose reports may not fit what it knows."""

from __future__ import annotations

from typing import Any

from motley.core.errors import ConfigError
from motley.core.records import Report
from motley.selectors.selector import Selector
from motley_flower.node_registry import NodeRegistry


def observe_enrolments(selector: Selector[Any], registry: NodeRegistry, new: list[Report]) -> None:
    """Let the selector observe enrolments; a client whose report does not fit what the selector
    knows is dismissed.

    Raises
    ------
    ConfigError: the reports of most connected clients do not fit.
    """
    try:
        selector.observe(0, new)
        return
    except ValueError as problem:
        reason = str(problem)
    saved = selector.to_bytes()
    fits = [
        report
        for report in new
        if _observes(Selector.from_bytes(saved, type(selector.rule)), report)
    ]
    strange = sorted({report.id for report in new} - {report.id for report in fits})
    if len(strange) >= min(2, registry.awaited) and 2 * len(strange) > len(registry.node_of):
        raise ConfigError(
            f"the selector cannot take in what these clients report at enrolment ({reason}); it "
            "comes from another federation"
        )
    for client in strange:
        registry.dismiss(client, f"reports what the selector cannot take in: {reason}")
    if fits:
        selector.observe(0, fits)


def _observes(selector: Selector[Any], report: Report) -> bool:
    try:
        selector.observe(0, [report])
    except ValueError:
        return False
    return True
