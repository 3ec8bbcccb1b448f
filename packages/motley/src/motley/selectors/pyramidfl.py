"""PyramidFL chooses as Oort does, gives fast clients of the cohort more local steps, and less
useful ones smaller uploads.

Li, Zeng, Zhang, Cao: *PyramidFL: A Fine-grained Client Selection Framework for Efficient Federated
Learning*, MobiCom 2022.

    cohort         as Oort, score for score (:mod:`motley.selectors.oort`)
    GU_k           ||Delta_k|| |B_k| / 100, gradient utility of the last report; n_k where there is
                   none
    r_k            position of GU_k in descending order in the cohort, 0 the largest; equal values
                   share the first position
    dr_k           low + r_k (high - low) / m, share of the upload that is dropped;
                   Cohort.upload_ratio = 1 - dr_k
    tau_k = download + compute_k + (1 - dr_k) upload_k,   T_R = max tau_k over the cohort
    rho_k = 1 + min(10, beta floor((T_R - tau_k) / (compute_k / E_k)) / E_k)
    Cohort.local_steps = min(floor(E_k rho_k), max(E_k, 5 * batches per local epoch))

Symbols: ``E_k`` steps of the full local work; ``compute_k``, ``upload_k`` seconds of the full local
work and the full upload; ``|B_k| = min(n_k, steps taken * batch size)``, in Oort's utility too.

State, per client: Oort's, ``gain`` (GU), ``download``, ``compute``, ``upload`` and ``bits`` of a
full upload.
Needs: Oort's, ``update_norm`` reported, ``uplink_mbps`` once. Probe cost: none. The ratio counts
with the allocator ``from_selector``. ``Cohort.notes``: Oort's, ``round_s`` (T_R) and ``mean_rho``.

Deviations and readings
-----------------------
* INTERPRETATION-D: ``||Delta_k||`` is the norm of the update.
* E_k comes with the enrolment (``Reports.local_steps``). INTERPRETATION-D: a cohort with a client
  whose E_k is not known gets no ``local_steps``: all do their full work, and their reports hold
  E_k. A guess would make that client the slowest of the round.
* INTERPRETATION-D: a report's seconds are scaled back to the full work,
  ``compute_s E_k / steps taken`` and ``upload_s bits / bits sent`` (``bits`` from the estimate and
  the uplink), and Oort's duration is their sum: additional steps do not make a client look slow.
  The download, free in the paper, counts in tau_k.
* ``batch_size = None`` (whole epochs): batches per epoch are not known, and rho_k <= 11 is the only
  cap.
* A client whose compute time is not known sets no T_R and takes E_k steps. ``beta = 0`` and
  ``drop_low = drop_high = 0`` switch both adaptations off. Any compressor can use the share.

Worked
------
E = 10, compute (4, 2, 1), upload (6, 4, 2), GU = (5, 9, 1), m = 3: ranks (1, 0, 2), dr (.266667,
.1, .433333), tau (8.4, 5.6, 2.133333), rho (1, 2.4, 7.2), steps (10, 24, 72), finished at (8.4,
8.4, 8.333). With beta at most 1 nobody exceeds T_R, and the slowest does exactly E.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(PyramidFL(), seed=0)
>>> times = {"compute_estimate_s": [4, 2, 1], "upload_estimate_s": [6, 4, 2]}
>>> enrolled = Reports(
...     range(3), Outcome.ENROLLED, num_examples=[5, 9, 1], local_steps=[10] * 3, signals=times
... )
>>> selector.observe(0, enrolled)
>>> cohort = selector.select(1, available_ids=range(3), m=3)
>>> dict(zip(cohort.ids.tolist(), cohort.local_steps.tolist())) == {0: 10, 1: 24, 2: 72}
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import PHASES, measured_s, sizes, usable_seconds
from motley.selectors.oort import LARGEST, Oort, OortState

LARGEST_EXTRA = 10.0
EPOCHS = 5
_ROUNDING = 1e-9


@dataclass(frozen=True)
class PyramidFL(Oort):
    """Take Oort's cohort, with local steps and upload ratio fitted to each client.

    Parameters
    ----------
    beta: share of the idle time that is filled with local steps; 0 leaves the steps as they are.
    drop_low, drop_high: shares of the upload dropped by the most and (almost) by the least useful
    client.
    """

    beta: float = 1.0
    drop_low: float = 0.1
    drop_high: float = 0.6

    paper: ClassVar[Paper] = cite("li2022pyramidfl")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta <= 1:
            raise ConfigError(
                f"got beta = {self.beta}; expected a share in [0, 1]: above 1 a client outlasts "
                "the slowest"
            )
        if not 0 <= self.drop_low <= self.drop_high < 1:
            raise ConfigError(
                f"got drop_low = {self.drop_low}, drop_high = {self.drop_high}; expected 0 <= "
                "drop_low <= drop_high < 1"
            )

    @override
    def needs(self) -> SignalRequirements:
        needs = super().needs()
        enrolled = needs.enrolled | {"uplink_mbps"}
        reported = needs.reported | {"update_norm"}
        return SignalRequirements(enrolled, reported=reported, columns=needs.columns | {"bits_up"})

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"upload_ratio"})

    @override
    def init(self) -> OortState:
        state = super().init()
        own = dict.fromkeys((*PHASES, "bits", "gain"), np.nan)
        return replace(state, clients=ClientTable({**state.clients.defaults, **own}))

    # ---------------------------------------------------------------------------- inside the cohort

    def drops(self, clients: ClientTable, ids: Ids) -> Floats:
        """Return ``dr_k``, ``[m]``."""
        gain = clients.get("gain", ids)
        gain = rounded(np.where(np.isnan(gain), sizes(clients, ids), gain))
        # left: equal gains have one rank, whatever their ids
        rank = np.searchsorted(np.sort(-gain), -gain, side="left")
        return np.asarray(
            self.drop_low + rank * (self.drop_high - self.drop_low) / max(len(ids), 1)
        )

    def full_steps(self, clients: ClientTable, ids: Ids) -> Floats | None:
        """Return ``E_k``, ``[m]``; None if that of any client is not known."""
        steps = clients.get("steps", ids)
        return None if np.isnan(steps).any() else steps

    def predicted_s(self, clients: ClientTable, ids: Ids, drops: Floats) -> Floats:
        """Return ``tau_k`` with ``E_k`` steps, seconds ``[m]``; NaN where the compute time is not
        known."""
        upload = np.nan_to_num(clients.get("upload", ids)) * (1.0 - drops)
        return np.asarray(
            np.nan_to_num(clients.get("download", ids)) + clients.get("compute", ids) + upload
        )

    def steps(self, clients: ClientTable, ids: Ids, full: Floats, tau: Floats) -> Ints:
        """Return local steps that fill each client's idle time until the slowest one finishes,
        ``[m]``."""
        compute = clients.get("compute", ids)
        idle = np.max(tau, initial=0.0, where=~np.isnan(tau)) - tau
        # Hours of idle time over microseconds of work: the infinite number of steps is capped
        # below.
        with np.errstate(over="ignore"):
            fill = np.divide(idle * full, compute, out=np.full(len(ids), np.inf), where=compute > 0)
        if self.beta:
            extra = np.minimum(LARGEST_EXTRA, self.beta * np.floor(fill + _ROUNDING) / full)
        else:
            extra = np.zeros(len(ids))
        wanted = np.floor(full * (1.0 + np.where(idle > 0, extra, 0.0)) + _ROUNDING)
        if self.batch_size is not None:
            batches = np.ceil(sizes(clients, ids) / self.batch_size)
            wanted = np.minimum(wanted, np.maximum(full, EPOCHS * batches))
        return wanted.astype(np.int64)

    @override
    def select(self, state: OortState, context: SelectionContext) -> Cohort:
        cohort = super().select(state, context)
        drops = self.drops(state.clients, cohort.ids)
        full = self.full_steps(state.clients, cohort.ids)
        tau = self.predicted_s(state.clients, cohort.ids, drops)
        steps = None if full is None else self.steps(state.clients, cohort.ids, full, tau)
        notes = dict(cohort.notes)
        if not np.isnan(tau).all():
            notes["round_s"] = float(np.nanmax(tau))
        if full is not None and steps is not None:
            notes["mean_rho"] = float(np.mean(steps / full))
        return replace(cohort, local_steps=steps, upload_ratio=1.0 - drops, notes=notes)

    # ------------------------------------------------------------------------------------- reports

    @override
    def observe(self, state: OortState, draw: int, reports: Reports) -> OortState:
        accepted = reports.of(Outcome.ACCEPTED)
        unknown = np.isnan(state.clients.get("steps", accepted.ids))
        state = super().observe(state, draw, reports)
        if not len(accepted):
            return state
        samples = self.samples(state.clients, accepted.ids, accepted.local_steps)
        gain = np.clip(accepted.signal("update_norm"), 0.0, LARGEST) * samples / 100.0
        # E_k: it was given no local_steps
        steps = np.where(unknown & (accepted.local_steps > 0), accepted.local_steps, np.nan)
        return replace(
            state, clients=state.clients.put(accepted.ids, {"gain": gain, "steps": steps})
        )

    @override
    def durations(self, clients: ClientTable, reports: Reports) -> dict[str, Floats]:
        if len(reports) and reports.outcome[0] == Outcome.ENROLLED:
            phases = {
                phase: usable_seconds(reports.signal(f"{phase}_estimate_s")) for phase in PHASES
            }
            bits = phases["upload"] * np.minimum(reports.signal("uplink_mbps"), LARGEST) * 1e6
            return {
                **super().durations(clients, reports),
                **phases,
                "bits": np.where(bits > 0, bits, np.nan),
            }
        accepted = replace(
            reports,
            compute_s=usable_seconds(reports.compute_s)
            * _quotient(clients.get("steps", reports.ids), reports.local_steps),
            upload_s=usable_seconds(reports.upload_s)
            * _quotient(clients.get("bits", reports.ids), reports.bits_up),
        )
        return {
            "duration": measured_s(accepted),
            **{phase: usable_seconds(getattr(accepted, f"{phase}_s")) for phase in PHASES},
        }


def _quotient(total: Floats, part: Floats) -> Floats:
    """Return ``total / part``; 1 where either is unknown, or part is less than one step, or bit."""
    usable = (total > 0) & (part >= 1) & (part < math.inf)
    return np.asarray(np.divide(total, part, out=np.ones(len(total)), where=usable))
