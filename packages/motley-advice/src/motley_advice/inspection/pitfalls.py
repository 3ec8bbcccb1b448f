"""Pitfalls of one experiment: a function each, which returns a sentence with the key to change, or
None.

What they look at is what the parts declare of themselves, the keys, and what was measured of the
clients; a pitfall that depends on a measurement that is not there is not found. Those that are left
to the reader stand in docs/inspect.md#pitfalls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch.nn.modules.batchnorm import _BatchNorm

from motley.algorithms.fednova import NormalisedUpdate
from motley.algorithms.parts import JobContext
from motley.experiments.build import Ready
from motley.experiments.config import Experiment
from motley.rounds.planning import WorkPlanner
from motley.tasks.flat import construct
from motley.timing.synchrony import Synchronous
from motley_advice.heterogeneity.findings import Inspection, OutlyingClient

DIFFERENT = 0.2
"""Label divergence, feature shift or concept shift from which clients count as different in this
respect."""
WRONG = 0.05
"""Share of wrong labels that is worth a warning."""
ABSENT = 0.05
"""Share of labels that absence moves to other classes that is worth a warning."""
COPIED = 0.01
"""Share of samples that are copies of another client's that is worth a warning."""
IDLE = 0.5
"""Share of a round spent waiting that is worth a warning."""
SELDOM = 10.0
"""Rounds between two visits to a client from which its state is old."""
MANY_EPOCHS = 5


@dataclass(frozen=True)
class Examined:
    """An experiment as pitfalls look at it: its keys, its parts, and what was measured of its
    clients."""

    experiment: Experiment
    ready: Ready
    inspection: Inspection

    def value(self, name: str) -> float:
        """Return a measured number; NaN where it was not measured."""
        finding = self.inspection.findings.get(name)
        return float("nan") if finding is None else finding.value

    def least(self, name: str) -> float:
        """Return the lower end of a measured number's interval, the number itself without one; NaN
        where it was not measured."""
        finding = self.inspection.findings.get(name)
        if finding is None:
            return float("nan")
        return finding.value if np.isnan(finding.low) else finding.low

    @property
    def wrong_labels(self) -> float:
        """The mean share of wrong training labels: as the world makes them, else the least that was
        estimated."""
        noise = self.ready.config.setting.task.federation.noise
        estimated = self.least("label_noise")
        if self.makes_noise:
            return float(noise.mean())
        return 0.0 if np.isnan(estimated) else estimated

    @property
    def makes_noise(self) -> bool:
        """Whether the world makes labels wrong, so that their share is known."""
        return bool(self.ready.config.setting.task.federation.noise.any())

    @property
    def wrong(self) -> str:
        """What labels are that count for :attr:`wrong_labels`."""
        return "wrong" if self.makes_noise else "hard to predict or wrong"

    @property
    def labels_differ(self) -> bool:
        """Whether clients differ much in their classes."""
        return self.least("label_divergence") > DIFFERENT

    @property
    def features_differ(self) -> bool:
        """Whether clients differ in what inputs look like."""
        domains = self.ready.config.setting.task.federation.domain
        return bool(len(domains) and domains.any()) or self.least("feature_shift") > DIFFERENT

    @property
    def concepts_differ(self) -> bool:
        """Whether labels mean something else at some clients. Where features differ, too, no
        measurement tells: rules then fail on other clients because these look different."""
        clusters = self.ready.config.setting.task.federation.cluster
        return bool(len(clusters) and clusters.any()) or (
            self.least("concept_shift") > DIFFERENT and not self.features_differ
        )


def pitfalls(examined: Examined) -> list[str]:
    """Return a sentence for each pitfall that an experiment commits, in the order of
    :data:`PITFALLS`."""
    return [sentence for look in PITFALLS for sentence in [look(examined)] if sentence is not None]


def averaged_batch_norm(examined: Examined) -> str | None:
    """BatchNorm statistics are averaged although the clients' features differ."""
    config = examined.ready.config
    rule = config.setting.algorithm.local
    task = config.setting.task
    normalised = any(
        isinstance(module, _BatchNorm) for module in construct(task.model, 0).modules()
    )
    static = rule.slicing is not None and rule.slicing.static_norm
    apart = not rule.sends_whole or not rule.shared or static
    if not normalised or not examined.features_differ or apart or config.recalibrate is not None:
        return None
    return (
        "BatchNorm statistics are averaged over clients whose inputs look different, which fit "
        "none of them; "
        'set algorithm = "fedbn", recalibrate = { batches = 20 }, or a model without BatchNorm '
        "(task.model)"
    )


def fair_to_wrong_labels(examined: Examined) -> str | None:
    """An objective that lifts clients of high loss, where wrong labels or broken updates make
    losses high."""
    config = examined.ready.config
    algorithm = config.setting.algorithm
    parts = (algorithm.local, algorithm.loss, algorithm.aggregator, algorithm.server)
    corrupted = config.world.failures.corrupts_updates or examined.wrong_labels > WRONG
    if not corrupted or not any(part.warns() for part in parts):
        return None
    if config.world.failures.corrupts_updates:
        cause = "updates are corrupted"
    else:
        cause = f"{examined.wrong_labels:.0%} of labels are {examined.wrong}"
    return (
        f"the algorithm gives more weight to clients of high loss, and {cause}, which makes losses "
        "high, too; set "
        'aggregator = "median" or a robust loss, or compare with algorithm = "fedavg" before '
        "calling it fair"
    )


def chosen_for_wrong_labels(examined: Examined) -> str | None:
    """A selector that chooses by the loss on training labels, of which many are wrong."""
    needs = examined.ready.selector.rule.needs()
    heard = {*needs.probed, *needs.reported} & {"loss", "arrival_loss", "loss_rms"}
    if not heard or not examined.wrong_labels > WRONG:
        return None
    signal = sorted(heard)[0]
    return (
        f"the selector hears {signal} on training labels, of which {examined.wrong_labels:.0%} are "
        f"{examined.wrong}, so that it may prefer clients that hold these; look at participation "
        "against noise, or set selector to a rule that hears robust_loss"
    )


def outlying_clients(examined: Examined) -> str | None:
    """Single clients differ from all others, by a fault or for a reason."""
    return of_outlying(examined.inspection.outlying)


def copied_samples(examined: Examined) -> str | None:
    """The same samples lie at many clients, none of which stands out by it."""
    return of_copies(examined.inspection)


def of_data(inspection: Inspection) -> list[str]:
    """Return the pitfalls of clients' data, whatever is trained on it."""
    return [text for text in (of_outlying(inspection.outlying), of_copies(inspection)) if text]


def of_copies(inspection: Inspection) -> str | None:
    """Return the pitfall of copied samples; None where there are few, or clients are named for
    them."""
    share = inspection.findings["copied"].value if "copied" in inspection.findings else 0.0
    if not share >= COPIED or any(each.kind == "copied data" for each in inspection.outlying):
        return None
    return (
        f"{share:.0%} of the samples also lie at another client, byte for byte, and chance did not "
        "make them equal; keep one of each before rows are split: a copy counts twice, and is no "
        "test"
    )


def of_outlying(odd: Sequence[OutlyingClient]) -> str | None:
    """Return the pitfall of outlying clients; None where there are none."""
    if not odd:
        return None
    names = list(dict.fromkeys(each.shown for each in odd))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    whose = f"{', '.join(names[:3])}{more}"
    kinds = list(dict.fromkeys(each.kind for each in odd))
    if kinds == ["copied data"]:
        hold = "holds" if len(names) == 1 else "hold"
        return f"{whose} {hold} copies; {odd[0].remedy} (see the list of outlying clients)"
    differ = "differs" if len(names) == 1 else "differ"
    remedies = {each.remedy for each in odd}
    if len(remedies) == 1:
        remedy = f"{odd[0].remedy} (see the list of outlying clients)"
    else:
        remedy = "do what the list of outlying clients says of each"
    return (
        f"{whose} {differ} from all others ({', '.join(kinds)}), by a fault or for a "
        f"reason; look there first, and if it is a fault, {remedy}"
    )


def hidden_clients(examined: Examined) -> str | None:
    """Only a global figure is measured, although the clients differ."""
    if not (examined.labels_differ or examined.features_differ or examined.concepts_differ):
        return None
    if examined.experiment.split.test == "global":
        return (
            "clients differ, and only one common test set is measured, so that nobody sees who is "
            "served badly; set "
            'split.test = "client"'
        )
    if not examined.experiment.evaluate.per_client:
        return (
            "clients differ, and no figure of single clients is kept; set evaluate.per_client "
            "= true"
        )
    return None


def looked_at_in_clear(examined: Examined) -> str | None:
    """What is shown of a private experiment's clients is of their clear data."""
    if examined.experiment.privacy is None:
        return None
    return (
        "what stands here is measured on the clients' clear data, and no claim of [privacy] covers "
        "it, nor a setting chosen by it; keep this page with the data"
    )


def stopped_by_test(examined: Examined) -> str | None:
    """The run ends as soon as a test figure is good enough, which makes that figure too good."""
    if examined.experiment.stop.target is None:
        return None
    return (
        "the run ends at the first evaluation whose test figure is on target, so that its final "
        "figure is chosen by test samples; set stop.rounds, stop.virtual_hours or stop.patience "
        "instead: the report has the cost to a target (--target) of runs that go on"
    )


def absence_moves_labels(examined: Examined) -> str | None:
    """Absence moves the labels that rounds meet."""
    moved = examined.value("availability_bias")
    if not moved > ABSENT:
        return None
    return (
        f"clients that are often away hold other labels than the others: {moved:.0%} of the labels "
        "that rounds meet are of other "
        "classes than in the whole federation; report clients by their share online, and run once "
        'with availability = "always"'
    )


def old_client_state(examined: Examined) -> str | None:
    """Corrections that clients keep between rounds are old when they are used again."""
    config = examined.ready.config
    rule = config.setting.algorithm.local
    pool = config.setting.task.federation.pool
    gap = pool / config.cohort
    keeps = rule.initial_state(examined.ready.model) is not None
    if not keeps or config.setting.algorithm.personal or gap <= SELDOM:
        return None
    share = np.ceil(pool / SELDOM)
    return (
        f"the algorithm corrects by what a client kept from its last visit, about {gap:.0f} rounds "
        f"ago at {config.cohort} of {pool} clients a round; ask more of them (cohort = {share:.0f} "
        f"makes it {SELDOM:.0f}), or use a method without client state"
    )


def many_epochs(examined: Examined) -> str | None:
    """Many local epochs under label skew."""
    epochs = examined.experiment.local.work().epochs or 0
    if epochs < MANY_EPOCHS or not examined.labels_differ:
        return None
    return (
        f"{epochs:g} local epochs under label skew (divergence "
        f"{examined.value('label_divergence'):.2f}) pull clients apart; compare at equal gradient "
        "steps before taking them for efficient: motley compare --over local.epochs=1,2,5"
    )


def pulled_is_not_personal(examined: Examined) -> str | None:
    """One model for clients whose labels mean different things."""
    setting = examined.ready.config.setting
    algorithm = setting.algorithm
    if not examined.concepts_differ or algorithm.personal or not algorithm.local.shared:
        return None
    context = JobContext(
        x=examined.ready.model.x,
        download={},
        client_state=None,
        steps=1,
        lr=1.0,
        num_examples=1,
        solver_norm=1.0,
        layout=setting.task.layout,
    )
    proximal = (
        algorithm.local.initial_state(examined.ready.model) is None
        and float(algorithm.local.correction(context).proximal) > 0
    )
    pull = "; the algorithm's pull towards it makes it nobody's own" if proximal else ""
    return (
        "labels mean different things at different clients, and one model cannot be right for "
        f"all{pull}; set "
        'algorithm = "ifca", "ditto" or another of personal models'
    )


def nothing_to_normalise(examined: Examined) -> str | None:
    """FedNova where all clients take the same number of steps."""
    config = examined.ready.config
    if (
        not isinstance(config.setting.algorithm.local, NormalisedUpdate)
        or config.stragglers is not None
    ):
        return None
    steps = WorkPlanner(config, frozenset()).full_steps
    if len(np.unique(steps[steps > 0])) > 1:
        return None
    return (
        "the algorithm mends unequal numbers of local steps, and here all clients take as many: "
        "whatever else makes clients differ stays as it is; set local.epochs instead of "
        "local.steps, or choose an algorithm for what does differ"
    )


def idle_rounds(examined: Examined) -> str | None:
    """Synchronous rounds that are mostly waiting."""
    waiting = examined.value("waiting")
    if not waiting > IDLE or not isinstance(examined.ready.config.synchrony, Synchronous):
        return None
    return (
        f"clients spend {waiting:.0%} of a round waiting for the slowest, however alike their "
        "data; set synchrony = "
        '{ name = "deadline", seconds = ... } or "buffered", and compare by virtual time'
    )


PITFALLS: tuple[Callable[[Examined], str | None], ...] = (
    averaged_batch_norm,
    fair_to_wrong_labels,
    chosen_for_wrong_labels,
    outlying_clients,
    copied_samples,
    hidden_clients,
    looked_at_in_clear,
    stopped_by_test,
    absence_moves_labels,
    old_client_state,
    many_epochs,
    pulled_is_not_personal,
    nothing_to_normalise,
    idle_rounds,
)
"""The pitfalls of one experiment, in the order in which they are told."""
