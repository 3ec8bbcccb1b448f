"""What leaves a client under a selector or an algorithm, worked out from what its class declares.

A selector declares its signals and columns in ``needs``, and :data:`~motley.core.records.SIGNALS`
says what each of them follows; an algorithm declares its uploads, its aggregator's
``upload_visibility`` and whether its server asks clients. Nothing is listed twice.

>>> from motley.selectors.uniform import Uniform
>>> selector_disclosure(Uniform()).choice
'no'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from motley.algorithms.parts import Algorithm
from motley.core.components import declares
from motley.core.records import HISTOGRAM, SIGNALS, SignalRequirements, When
from motley.selectors.selector import SelectionRule

Follows = Literal["data", "size", "public"]
# the size of a packet depends on no value (rounds/upload_pipeline.py)
_COLUMNS: Mapping[str, Follows] = {
    "download_s": "public",
    "compute_s": "size",
    "upload_s": "public",
    "local_steps": "size",
    "bits_up": "public",
    "num_examples": "size",
}


@dataclass(frozen=True)
class Disclosure:
    """What clients send under a component, and who must see it.

    Parameters
    ----------
    enrolled, probed, reported: what is sent before round 1, before a choice, and with or after an
    update: name -> what it follows: the client's ``data``, their number (``size``), or nothing
    (``public``).
    choice: whether the choice depends on data: ``no``, or on what.
    visibility: whether single clients' updates, gradients or numbers made of them are used
    (``each``) or only the sum of updates (``sum``).
    private: what differential privacy takes, or why it cannot be had.
    """

    enrolled: dict[str, Follows] = field(default_factory=dict)
    probed: dict[str, Follows] = field(default_factory=dict)
    reported: dict[str, Follows] = field(default_factory=dict)
    choice: str = "no"
    visibility: Literal["sum", "each"] = "sum"
    private: str = ""


def follows(name: str, when: When) -> Follows:
    """Return what a signal or a column of reports follows at an occasion."""
    if name not in SIGNALS:
        return _COLUMNS.get(name, "data")
    public = name == "last_layer" and when == "enrolled"  # the initial model's, the same for all
    return "public" if public else SIGNALS[name].follows


def selector_disclosure(rule: SelectionRule[Any]) -> Disclosure:
    """Return what leaves a client under a rule with its options, beside the algorithm's uploads."""
    needs = rule.needs()
    sent = {
        "enrolled": _sorted(needs.enrolled, "enrolled"),
        "probed": _sorted(needs.probed, "probed"),
        "reported": _sorted((*needs.reported, *needs.columns), "reported"),
    }
    return Disclosure(
        **sent,
        choice=_choice(sent),
        visibility="each" if rule.single_signals else "sum",
        private=_selector_private(rule, needs),
    )


def _sorted(names: Iterable[str], when: When) -> dict[str, Follows]:
    return {name: follows(name, when) for name in sorted(names)}


def _choice(sent: dict[str, dict[str, Follows]]) -> str:
    """Return what the choice depends on, given what is sent."""
    every = {name: kind for part in sent.values() for name, kind in part.items()}
    if any(kind == "data" and name != HISTOGRAM for name, kind in every.items()):
        return "yes"
    if HISTOGRAM in every:
        return "on labels"
    sizes = {name for name, kind in every.items() if kind == "size"}
    if "num_examples" in sizes:
        return "on sizes"
    return "on sizes, through seconds" if sizes else "no"


def _selector_private(rule: SelectionRule[Any], needs: SignalRequirements) -> str:
    """Return what differential privacy takes for a rule, in a few words."""
    reason = unbounded(needs)
    if reason:
        return f"no: {reason}" + (f", unless {rule.private_with()}" if rule.private_with() else "")
    noisy = noised(needs)
    words = [f"noise on {', '.join(noisy)}"] if noisy else []
    words += ["or Gumbel noise"] if rule.known_top_m() else []
    words += ["fixed local.steps"] if sized_seconds(needs) else []
    return ", ".join(words) or "as it is"


def noised(needs: SignalRequirements, sizes: Literal["private", "public"] = "private") -> list[str]:
    """Return the signals that must be clipped and noised at the client before a rule may use them,
    sorted.

    ``sizes``: whether each client's number of samples is a secret."""
    sent: dict[When, Iterable[str]] = {
        "enrolled": needs.enrolled,
        "probed": needs.probed,
        "reported": needs.reported,
    }
    free = ("public",) if sizes == "private" else ("public", "size")
    secret = {
        name for when, names in sent.items() for name in names if follows(name, when) not in free
    }
    return sorted(name for name in secret if SIGNALS[name].kind != "system")


def unbounded(needs: SignalRequirements) -> str:
    """Return why the signals of a rule cannot be bounded by noise on scalars and shares of labels;
    empty if they can."""
    vectors = [name for name in noised(needs) if not SIGNALS[name].scalar and name != HISTOGRAM]
    server_made = [
        name for name in noised(needs) if SIGNALS[name].kind == "channel" and SIGNALS[name].scalar
    ]
    if vectors:
        return f"it needs {vectors[0]!r}, a whole vector of every client"
    if server_made:
        return f"it needs {server_made[0]!r}, which the server makes of a clear upload"
    return ""


def sized_seconds(needs: SignalRequirements) -> bool:
    """Return whether a rule uses seconds or steps that tell a client's number of samples where work
    is counted in epochs."""
    return "compute_estimate_s" in needs.enrolled | set(needs.probed) or any(
        _COLUMNS.get(n) == "size" for n in needs.columns
    )


def algorithm_refuses(algorithm: Algorithm) -> str | None:
    """Return why clipping each upload does not bound what one client changes under an algorithm;
    None if it does."""
    rule = algorithm.local
    server = algorithm.server
    aggregator = algorithm.aggregator
    if not (aggregator.plain_sum and declares(aggregator, "plain_sum", "init", "add", "finish")):
        name = type(algorithm.aggregator).__name__
        return f"how far one client moves what {name} makes of the uploads is not known"
    if rule.prototypes is not None:
        return "clients send the mean features of their classes, which tell what classes they have"
    if rule.slicing is not None:
        return "each coordinate is divided by how many clients hold it"
    if rule.choice is not None:
        return "an upload names the model that its client chose"
    if server.asks_clients:
        return "its server asks clients for more than their uploads"
    return rule.refuses_privacy() or server.refuses_privacy()


def algorithm_disclosure(algorithm: Algorithm) -> Disclosure:
    """Return what leaves a client under an algorithm's parts, whatever the selector needs."""
    uploads: dict[str, Follows] = dict.fromkeys(sorted(algorithm.local.uploads), "data")
    answers: dict[str, Follows] = (
        {"answers to the server": "data"} if algorithm.server.asks_clients else {}
    )
    refused = algorithm_refuses(algorithm)
    private = f"no: {refused}" if refused else "clipped and noised"
    return Disclosure(
        reported={**uploads, **answers},
        visibility="each" if algorithm.aggregator.sees_single_uploads else "sum",
        private=private,
    )
