"""Secure aggregation in Motley's own loop on Flower: the server's half of a round, and a client's.

The keys and shares are exchanged when a cohort is dispatched; the order to train carries the peers'
envelopes, and the upload is the masked update. At the server's step the sum is unmasked, and every
client in it is given the weighted mean as its upload, so that a weighted mean of them is that mean.
A client that is late, lost or rejected has dropped out of the sum.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from motley.algorithms.parts import Part
from motley.core.arrays import Floats
from motley.core.errors import ConfigError, RoundAbandonedError
from motley.core.records import Outcome
from motley.experiments.build import Ready
from motley.rounds.channel import Channel
from motley.rounds.run_config import RunConfig
from motley.rounds.state import Moment
from motley.selectors.selector import Selector
from motley.timing.deadline import Deadline
from motley.timing.synchrony import Synchronous
from motley_flower.deployed.client_registry import ClientRegistry
from motley_flower.deployed.client_sums import NoisySums
from motley_flower.deployed.dispatches import DeployedDispatch
from motley_flower.deployed.private_plan import plan_of
from motley_flower.deployed.request_codec import RequestCodec
from motley_flower.secure_exchange import Register, SecureExchange
from motley_flower.secure_messages import missing_extra

if TYPE_CHECKING:
    from motley_privacy.distributed_noise import ClientNoise
    from motley_privacy.privacy_plan import PrivacyPlan

try:
    from motley_flower.secure.drawable import check_drawable
    from motley_flower.secure.endpoint import AGREEMENTS, SecureEndpoint
    from motley_flower.secure.keyfiles import as_register, read_identity
    from motley_flower.secure.secure_round import CohortHistory, SecureRound
    from motley_flower.secure.terms import SecureOptions, Step
    from motley_flower.secure.verifiable_draws import DrawServer
except ModuleNotFoundError as missing:
    raise missing_extra(missing) from None

_LOG = logging.getLogger("motley.flower")


def secure_refusal(ready: Ready, options: SecureOptions, rounds_done: int = 0) -> str | None:
    """Return why an experiment cannot be run under secure aggregation, in a sentence; None: it can.

    ``rounds_done``: rounds that the selector has behind it."""
    config = ready.config
    rule = ready.selector.rule
    algorithm = config.setting.algorithm
    name = type(ready.selector.rule).__name__
    if seen := rule.single_signals:
        return (
            f"{name} needs numbers of single updates ({', '.join(seen)}), and secure aggregation "
            "shows none; take another selector"
        )
    if algorithm.aggregator.sees_single_uploads or algorithm.local.uploads != {"delta"}:
        reason = "the algorithm needs single updates, or clients send more than an update"
        return f"{reason}; take one whose server averages, such as fedavg, fedprox or feddyn"
    if config.privacy is not None and not config.privacy.noised_by_clients:
        return (
            "the server of a private run clips single uploads and adds the noise itself, and under "
            "masks it sees no upload; let "
            'clients do both, privacy.noise_by = "clients", or leave privacy or secure_aggregation '
            "out"
        )
    layout = config.setting.task.layout
    if layout.buffers or layout.counters:
        return (
            "masks cover the update alone, and the statistics of BatchNorm would stay those of the "
            "first model; use a model without BatchNorm"
        )
    if algorithm.local.slicing is not None:
        return (
            "clients may hold different ranks, and masks hide who holds which; take ffa_lora, "
            "under which all hold all"
        )
    if not config.upload_config.plain:
        return "compressed updates cannot be masked; leave compressor and feedback out"
    if type(config.synchrony) not in (Synchronous, Deadline):
        return (
            f"{type(config.synchrony).__name__} has no cohort that is summed as a whole; take "
            "synchronous or deadline"
        )
    if config.weights not in ("uniform", "examples") or (config.weights == "uniform") != (
        options.max_weight == 1
    ):
        return (
            f'weights = "{config.weights}" and max_weight = {options.max_weight} do not go '
            'together; take weights = "uniform" with max_weight = 1, or weights = "examples" with '
            "the largest number of samples of a client"
        )
    invited = config.synchrony.asked(config.cohort)
    try:
        options.check_cohort(invited)
        if options.needed(invited) > config.cohort:
            return (
                f"over_select asks {invited} clients, of which {options.needed(invited)} must "
                f"remain, and the server steps when {config.cohort} have delivered; lower "
                "over_select"
            )
        if options.draws:
            check_drawable(rule, options.draw_rule, options.draws)
    except ConfigError as error:
        return str(error)
    unlike = _unlike(plan_of(ready.config), options, invited)
    return unlike or (_undrawable(ready, options, rounds_done) if options.draws else None)


def _unlike(plan: PrivacyPlan | None, options: SecureOptions, invited: int) -> str | None:
    """Return why the options of the masks are not those of the noise under them, in a sentence."""
    noise = None if plan is None else plan.client_noise
    if noise is None:
        return None
    if options.clip != noise.clip:
        return (
            f"its clip is {options.clip:g} and that of [privacy], which clients use, "
            f"{noise.clip:g}; write SecureOptions(clip={noise.clip:g}) at both ends"
        )
    if options.modulus_bits != noise.modulus_bits:
        return (
            f"sums with this noise take {noise.modulus_bits} bits, and modulus_bits is "
            f"{options.modulus_bits}; write SecureOptions(..., modulus_bits={noise.modulus_bits})"
        )
    reason = noise.refuses(options.needed(invited), invited)
    share = (noise.survivors - 0.5) / invited
    mend = f"write SecureOptions(..., threshold={share:.4g}) at both ends"
    return f"{reason}; {mend}" if reason else None


def secure_claim(config: RunConfig, options: SecureOptions) -> dict[str, Any]:
    """Return what ``run.json`` says of secure aggregation: its options, and against whom it hides
    updates; it is logged, too."""
    _LOG.info("secure aggregation: %s", options.claim(config.synchrony.asked(config.cohort)))
    return options.record(config.synchrony.asked(config.cohort))


def _undrawable(ready: Ready, options: SecureOptions, rounds_done: int) -> str | None:
    """Return why the cohorts of an experiment whose rule can be recomputed cannot be drawn, in a
    sentence; None: they can."""
    if ready.selector.defence is not None:
        return (
            "a defence holds clients back, so that they cannot recompute the cohorts; leave "
            "defence or draws out"
        )
    rounds = ready.config.stop.rounds
    if rounds is None:
        return (
            f"got draws = {options.draws} and an end that no number of rounds sets; write stop "
            f"= {{ rounds = {options.draws} }}"
        )
    if rounds_done + rounds > options.draws:
        return (
            f"draws = {options.draws} are too few for round {rounds_done + rounds}, the last; "
            f"write SecureOptions(..., draws={rounds_done + rounds}) at both ends"
        )
    return None


class DeployedSums(SecureExchange):
    """The server's side of secure aggregation for one run.

    Parameters
    ----------
    options: of the protocol.
    register: client -> public key, or the file.
    clients: those of the deployment.
    codec: writes requests.
    channel: of the run, whose plain uploads are the update alone.
    noise: that clients add before they mask; None: they add none.
    """

    def __init__(
        self,
        options: SecureOptions,
        register: Register,
        clients: ClientRegistry,
        codec: RequestCodec,
        channel: Channel,
        noise: ClientNoise | None = None,
    ) -> None:
        super().__init__(options, register)
        self.noise = noise
        self.clients = clients
        self.codec = codec
        parts = channel.parts
        extra = sorted(name for name, part in parts.items() if part.value.numel())
        if extra != ["delta"]:
            raise ConfigError(
                f"clients would send {', '.join(extra)}, and secure aggregation sums the update "
                "alone; use an algorithm that sends nothing else",
                "secure_aggregation",
            )
        self.ledger = channel.ledger
        self.delta: Part = parts["delta"]
        self._drawn: tuple[tuple[int, ...], bytes] | None = None

    def draw(
        self, now: Moment, selector: Selector[Any], saved: bytes, count: int
    ) -> tuple[tuple[int, ...], bytes]:
        """Return the cohort of the round that clients can recompute, and the draws' state with it.

        Parameters
        ----------
        now: the server's side.
        selector: of the run.
        saved: the draws' state; empty before the first round, in which the clients agree on them.
        count: clients a round.

        Raises
        ------
        ConfigError: too few clients agree, or they agreed on other draws.
        """
        if self.draws is None:
            self.draws = (
                DrawServer.restored(saved, self.register)
                if saved
                else self._agreed(now, selector, count)
            )
        self._drawn = self.draws.draw(now.draw_index)
        return self._drawn[0], self.draws.save()

    def transcript(self, saved: bytes) -> str:
        """Return all that was published of draws with this state, as
        :meth:`~motley_flower.secure.verifiable_draws.DrawServer.transcript`."""
        return DrawServer.restored(saved, self.register).transcript()

    def _agreed(self, now: Moment, selector: Selector[Any], count: int) -> DrawServer:
        """Let the clients agree on the draws; raises ConfigError where too few do, or the register
        names clients that there are not."""
        strange = [client for client in sorted(self.register) if client >= len(self.clients.met)]
        if strange:
            raise ConfigError(
                f"the register, from which cohorts are drawn, names client {strange[0]}, and the "
                f"experiment has clients 0 to {len(self.clients.met) - 1}; give one that names "
                "these alone",
                "register",
            )
        return self.agree(selector, count, lambda requests: self._ask(now, requests))

    def open(self, now: Moment, cohort: Collection[int]) -> dict[int, bytes]:
        """Exchange keys and shares; return the message that each client must have to mask its
        update. Clients without one take no part; none has one where the round is abandoned. Of a
        drawn cohort only these clients are asked; the others have dropped out."""
        self._round = None
        run = hashlib.blake2b(self.clients.run.encode(), digest_size=16).digest()
        invited_ids = tuple(sorted(set(cohort) & self.register.keys()))
        members, link = self._drawn or (invited_ids, b"")
        try:
            terms = self.terms(run, now.draw_index, self.delta.value.numel(), members)
            unsafe = self.noise and self.noise.refuses(terms.threshold, len(members))
            if unsafe:
                raise RoundAbandonedError(unsafe)
            return self.begin(
                terms,
                lambda requests: self._ask(
                    now, {k: requests[k] for k in invited_ids if k in requests}
                ),
                link,
            )
        except (ConfigError, RoundAbandonedError) as problem:
            _LOG.warning("round %d: no secure sum: %s", now.version + 1, problem)
            return {}

    def close(
        self,
        now: Moment,
        dispatches: Collection[DeployedDispatch],
        summed: list[tuple[int, ...]],
    ) -> None:
        """Unmask the sum of the accepted updates: their dispatches get the mean, or are rejected.
        The cohort of the sum is added to those that were summed before."""
        accepted = [dispatch for dispatch in dispatches if dispatch.outcome == Outcome.ACCEPTED]
        begun = self._round
        self._round = None
        if not accepted:
            return
        survivors: tuple[int, ...] = ()
        try:
            if begun is None:
                raise RoundAbandonedError(
                    "the server was started again in mid-round; nothing is unmasked"
                )
            mean = self._mean(begun, {dispatch.client: dispatch.masked for dispatch in accepted})
            survivors = begun.server.survivors
            value = torch.from_numpy(mean).to(self.delta.value.dtype)
            why = begun.server.problems
        except RoundAbandonedError as problem:
            why = {dispatch.client: str(problem) for dispatch in accepted}
            _LOG.warning("round %d: no secure sum: %s", now.version + 1, problem)
        for dispatch in accepted:
            if dispatch.client in survivors and dispatch.result is not None:
                parts = {"delta": self.delta._replace(value=value.reshape(self.delta.value.shape))}
                dispatch.result = dataclasses.replace(dispatch.result, parts=parts)
            else:
                dispatch.outcome = Outcome.REJECTED
                reason = why.get(dispatch.client, "its masked update cannot be used")
                self.clients.incidents.note(dispatch.client, "rejected", reason, dispatch.dispatch)
        if survivors:
            self.history = self.history if self.history.sums else CohortHistory(summed)
            self.count_sum(now.version + 1, survivors)
            summed[:] = self.history.sums

    def _mean(self, begun: SecureRound, masked: Mapping[int, bytes]) -> Floats:
        """Return the mean of the masked updates, weighted, or with the noise that clients have
        added."""
        if self.noise is None:
            return begun.close(masked)[0]
        total = self.noise.opened(begun.opened(masked)[:-1])
        return total / len(begun.server.survivors)

    def _ask(self, now: Moment, requests: Mapping[int, bytes]) -> Mapping[int, object]:
        """Send one step's messages and return the answers by client; they are billed as uploads."""
        orders = {
            k: self.codec.secure(self.clients.run, k, now.draw_index, data)
            for k, data in requests.items()
        }
        return self.clients.ask(
            ledger=self.ledger,
            orders=orders,
            read=self.codec.read_secure,
            kind="upload",
            step=now.version + 1,
        )


class ClientSecrets:
    """A client's side of secure aggregation.

    Parameters
    ----------
    options: as the server's.
    identity: file of the client's private key; ``{client}`` in it stands for the client's number.
    register: all clients' public keys, or the file.
    cap: rounds that the client takes part in at most, in all runs with this register; None: all.
    agreements: on draws that it takes part in at most, likewise.
    """

    def __init__(
        self,
        options: SecureOptions,
        identity: str | os.PathLike[str],
        register: Register,
        cap: int | None = None,
        agreements: int = AGREEMENTS,
    ) -> None:
        self.options = options
        self.identity = str(identity)
        self.register = as_register(register)
        self.cap = cap
        self.agreements = agreements

    def endpoint(self, folder: Path, run: str, client: int) -> SecureEndpoint:
        """Return the client's endpoint in one run, whose state lies in its folder."""
        own = read_identity(self.identity.format(client=client))
        return SecureEndpoint(
            folder=folder,
            run=run,
            client=client,
            identity=own,
            register=self.register,
            options=self.options,
            cap=self.cap,
            agreements=self.agreements,
        )

    def answer(
        self, folder: Path, run: str, client: int, message: bytes, sums: NoisySums | None
    ) -> bytes:
        """Return the answer to a step of a round, or of draws.

        Raises
        ------
        SecureAggregationError: the message is refused; with ``sums`` also a round that these
        refuse, at its first step.
        """
        endpoint = self.endpoint(folder, run, client)
        answer = endpoint.answer(message)
        if sums is not None and message[0] == Step.KEYS:
            sums.check(client, endpoint.terms)
        return answer

    def masked(
        self,
        folder: Path,
        run: str,
        client: int,
        message: bytes,
        update: Tensor,
        examples: int,
        sums: NoisySums | None = None,
    ) -> bytes:
        """Return a client's update under its masks; with ``sums`` clipped and noised as these say.

        Raises
        ------
        SecureAggregationError: the message is refused, or there is none: the server asks for the
        update in the clear.
        """
        if sums is not None:
            endpoint = self.endpoint(folder, run, client)
            return endpoint.masked_words(message, lambda terms: sums.words(client, terms, update))
        values: Any = update.detach().cpu().double().reshape(-1).numpy()
        return self.endpoint(folder, run, client).masked(message, values, examples)
