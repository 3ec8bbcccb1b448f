"""The privacy of a run, made of the experiment's table ``[privacy]`` and refused where no bound is
known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from motley.core.client_names import client_in_words
from motley.core.errors import ConfigError, suggest
from motley.core.keys import Key, Streams
from motley.core.records import HISTOGRAM
from motley.engines.engine import Setting
from motley.experiments.config import Experiment
from motley.experiments.disclosure import algorithm_refuses, noised, unbounded
from motley.rounds.run_config import RunConfig
from motley.selectors.selector import SelectionRule, Selector
from motley.tasks.task import Task
from motley.transport.allocators.uniform_ratio import UniformAllocator
from motley.transport.upload_config import UploadConfig
from motley_privacy.accounting import Kind, Release, bound, calibrated
from motley_privacy.client_noise import check_client_noise, client_noise
from motley_privacy.correlated import coefficients, inflation
from motley_privacy.noise import SecretRandomness, Source
from motley_privacy.options import Privacy
from motley_privacy.privacy_plan import PrivacyPlan
from motley_privacy.private_rounds import PrivateRounds
from motley_privacy.private_time import check_time
from motley_privacy.run_secret import new_secret
from motley_privacy.sums import MOST_COUNT_NOISE, MOST_UPLOADS, update_multiplier


def with_privacy(
    experiment: Experiment, config: RunConfig, selector: Selector[Any], source: Source | Key
) -> RunConfig:
    """Return the configuration of a private run with its plan.

    ``source``: what a simulation draws its noise from.

    Raises
    ------
    ConfigError: parts for which no bound is known, in one sentence, or numbers with which there is
    none.
    """
    options: Privacy = experiment.privacy
    _check(experiment, options, config, selector.rule)
    by_clients = options.noise_by == "clients"
    population = config.setting.task.federation.pool
    rounds = config.stop.rounds
    max_rounds = sum_cap(options, rounds)
    max_signals = cap("max_signals", options.max_signals, rounds) if options.signal_noise else 1
    law: Kind = "discrete" if by_clients else "gaussian"
    updates = Release(law, options.noise_multiplier or 1.0, max_rounds)
    if options.cohorts == "hidden":
        updates = _hidden(experiment, options, selector.rule, updates, config=config)
    needs = selector.rule.needs()
    caps = {
        name: max_signals if name in {*needs.probed, *needs.reported} else 1
        for name in options.signal_noise
    }
    signals = tuple(_release(options, name, caps[name], config.cohort) for name in sorted(caps))
    z = options.noise_multiplier
    claim = (options.delta, options.adjacency, options.accountant)
    if z is None:
        z = calibrated(updates, signals, options.epsilon or 0.0, *claim)
    added = client_noise(options, config, z) if by_clients else None
    releases = (replace(updates, multiplier=z if added is None else added.multiplier), *signals)
    total = bound(releases, *claim)
    draw = selector.rule.known_draw(config.cohort, population)
    coins = draw is not None and draw.scheme == "poisson"
    if draw and coins:
        divisor = draw.rate * population
    else:
        divisor = float(config.synchrony.max_uploads(config.cohort))
    count, update = _adaptive(options, z, divisor)
    update *= _correlation(options, z, config)
    _check_exact(max(population, config.synchrony.max_uploads(config.cohort)), update)
    shares = {name: c / options.clip for name, c in _part_clips(options, config).items()}
    plan = PrivacyPlan(
        options=options,
        needs=needs,
        noise_multiplier=z,
        update_multiplier=update,
        divisor=divisor,
        count_noise=count,
        max_rounds=max_rounds,
        max_signals=max_signals,
        releases=releases,
        bound=total,
        make_stage=PrivateRounds,
        shares=shares,
        client_noise=added,
        source=source,
    )
    return replace(config, privacy=plan)


def noise_source(options: Privacy, secret: bytes | None) -> Source | Key:
    """Return what a simulation draws its noise from: the secret, a new one for None, or the seed
    that is given for tests."""
    if options.noise_seed is not None:
        return Streams(options.noise_seed).key("privacy")
    return SecretRandomness(new_secret() if secret is None else secret)


def selection_seed(options: Privacy, streams: Streams, source: Source | Key) -> int:
    """Return the seed of the selector: of the run's seed, which a file of keys shows; of the
    secret where cohorts are hidden."""
    if options.cohorts != "hidden" or not isinstance(source, SecretRandomness):
        return streams.key("select").words()[0] >> 1
    return int.from_bytes(source.fold("select").secret[:8], "little") >> 1


def _check(
    experiment: Experiment, options: Privacy, config: RunConfig, rule: SelectionRule[Any]
) -> None:
    """Refuse data, parts and options for which no bound is known."""
    _check_trackers(experiment)
    if config.stage is not None:
        raise ConfigError(
            "a stage may look at every upload, and nothing bounds what it keeps; leave it out",
            "stage",
        )
    _check_data(config.setting.task)
    _check_looks(experiment, config)
    _check_algorithm(config.setting, config.upload_config)
    _check_weights(options, config)
    _check_signals(experiment, options, rule)
    check_time(experiment, config, rule)
    if options.noise_by == "clients":
        check_client_noise(options, config, rule)
    _check_separation(options, config)
    if config.synchrony.asks_again:
        message = (
            "a client may be in one sum twice, which doubles what it adds; write synchrony = "
            '{ name = "buffered", refill = "idle" }'
        )
        raise ConfigError(message, "synchrony")


def _check_exact(uploads: int, multiplier: float) -> None:
    """Refuse so many uploads with so little noise that their sum in steps of the grid is not
    exact."""
    if uploads > MOST_UPLOADS * multiplier:
        message = f"a sum of {uploads} updates with so little noise is not exact in float64"
        raise ConfigError(
            f"{message}; write at least {uploads / MOST_UPLOADS:.2g}", "privacy.noise_multiplier"
        )


def cap(name: str, value: int | None, rounds: int | None) -> int:
    """Return a cap: ``value``, at most the rounds of the run.

    Raises
    ------
    ConfigError: there is neither.
    """
    if value is None and rounds is None:
        raise ConfigError(
            f"a run without stop.rounds needs a cap; write e.g. {name} = 20", f"privacy.{name}"
        )
    return min(n for n in (value, rounds) if n is not None)


def sum_cap(options: Privacy, rounds: int | None) -> int:
    """Return how many sums a client's updates may enter, with the rounds of a run.

    Raises
    ------
    ConfigError: there is no cap.
    """
    apart = None if rounds is None else math.ceil(rounds / options.min_separation)
    return cap("max_rounds", options.max_rounds, apart)


def _check_separation(options: Privacy, config: RunConfig) -> None:
    """Refuse correlated noise where its account does not hold, or where cohorts would lack
    clients."""
    bands = options.min_separation
    population = config.setting.task.federation.pool
    reason = None
    if bands == 1:
        return
    if options.cohorts == "hidden":
        reason = 'the account of hidden cohorts is one of independent noise; write cohorts = "seen"'
    elif options.adaptive is not None:
        reason = (
            "noise of sums with other clips cannot be taken back; write a fixed clip, e.g. "
            "clip = 0.5"
        )
    elif bands * config.cohort > population:
        largest = population // config.cohort
        reason = (
            f"{bands} cohorts of {config.cohort} without a common client need "
            f"{bands * config.cohort} clients, and there are {population}; write at most "
            f"min_separation = {largest}"
        )
    if reason is not None:
        raise ConfigError(reason, "privacy.min_separation")


def _correlation(options: Privacy, z: float, config: RunConfig) -> float:
    """Return the factor on the noise of each sum where it is correlated; 1 where it is not."""
    bands = options.min_separation
    setting = config.setting
    size = setting.task.layout.size * len(setting.algorithm.local.uploads)
    factor = inflation(z, size, bands)
    if factor > 1.1:
        message = (
            f"got {z:.4g}; noise that large is too coarse to be correlated over {bands} sums "
            f"of {size} numbers"
        )
        raise ConfigError(f"{message}; write min_separation = 1", "privacy.noise_multiplier")
    return factor / float(coefficients(bands)[0])


def _check_data(task: Task) -> None:
    """Refuse data of which something was measured over all clients: it is released exactly, and
    changes every client's inputs, so that the sum would move by more than the clip where one
    client's data change."""
    data = task.federation
    for measurement, (key, line) in data.measured.items():
        message = (
            f"{measurement} over all clients' samples, which shows and changes more than one "
            "clipped upload"
        )
        raise ConfigError(f"{message}; write {line}", key)
    if task.heads:
        message = (
            "a client's messages are as long as its classes are many, and heads are divided by "
            "who holds them"
        )
        raise ConfigError(f"{message}; leave heads out", "task.heads")
    empty = np.setdiff1d(np.flatnonzero(data.train.sizes == 0), data.new_clients)
    if 0 < len(empty) < data.pool:  # a server whose clients have the data knows of none
        client = client_in_words(int(empty[0]), data.client_names)
        message = (
            f"{client} has no training samples and would never be asked, which tells that it "
            "has none"
        )
        raise ConfigError(f"{message}; give it one, or leave it out", "task")


def _check_trackers(experiment: Experiment) -> None:
    """Refuse a tracker that sends a run's figures to its server."""
    online = [tracker["name"] for tracker in experiment.log if isinstance(tracker, dict)]
    if online:
        raise ConfigError(
            f"figures of a private run may not leave this machine as it goes, and {online[0]} "
            f'would send them; write log = ["{online[0]}"], which writes files, and send what '
            "may be published when the run is finished",
            "log",
        )


def _check_looks(experiment: Experiment, config: RunConfig) -> None:
    """Refuse what looks at clear data of one client and changes what all do, without an entry in
    the account."""
    if config.stop.target is not None:
        message = (
            "to end when an evaluation is good enough is a look at clients' clear data that no "
            "account counts"
        )
        raise ConfigError(f"{message}; write stop = {{ rounds = 50 }}", "stop.target")
    if config.stop.patience is not None:
        message = (
            "to end when validation samples are served no better is a look at clients' clear data "
            "that no account counts"
        )
        raise ConfigError(f"{message}; write stop = {{ rounds = 50 }}", "stop.patience")
    if config.evaluate.diagnostics:
        message = (
            "diagnostics write exact figures of all clients' gradients into the table of rounds"
        )
        raise ConfigError(f"{message}; leave it out", "evaluate.diagnostics")
    if config.world.dishonest.hears_others:
        message = (
            f"liars of the kind {experiment.dishonest['name']!r} repeat honest clients' clear "
            "numbers as their own"
        )
        raise ConfigError(
            f'{message}, so that one client\'s data are in many; write dishonest = "scaled"',
            "dishonest",
        )
    if config.weights == "examples" and experiment.defence is not None:
        message = (
            "a defence judges a client's number of samples by all others', so that one client "
            "changes the weights of many"
        )
        raise ConfigError(f'{message}; write weights = "uniform"', "defence")


def _check_algorithm(setting: Setting, upload_config: UploadConfig) -> None:
    """Refuse algorithms and uploads for which clipping does not bound what one client changes."""
    reason = algorithm_refuses(setting.algorithm)
    if reason:
        raise ConfigError(
            f"{reason}; use e.g. fedavg with the mean, or leave privacy out", "privacy"
        )
    layout = setting.task.layout
    if layout.buffers or layout.counters:
        message = "the statistics of BatchNorm are averaged without noise"
        raise ConfigError(
            f"{message}; use a model without BatchNorm, or leave privacy out", "privacy"
        )
    if upload_config.feedback.incremental:
        message = "the server keeps a mean of clients' vectors that no clip bounds"
        raise ConfigError(f'{message}; use feedback = "fixed", or leave privacy out', "feedback")
    if upload_config.allocator.init():
        message = "the allocator learns from clear norms of updates"
        raise ConfigError(f'{message}; use allocator = "uniform"', "allocator")


def _check_weights(options: Privacy, config: RunConfig) -> None:
    """Refuse weights by clear numbers of samples without a cap, or where the server needs the sum
    of everybody's, and all other weights of clients' data."""
    weights = config.weights
    server = config.setting.algorithm.server
    if weights == "examples" and server.weighs_all:
        message = (
            f"{type(server).__name__} divides by the samples of all clients, of which no noise "
            "hides one client's"
        )
        raise ConfigError(f'{message}; write weights = "uniform"', "weights")
    if config.setting.algorithm.local.compares_sizes:
        message = "each client's work depends on the samples of all, of which no noise hides one's"
        raise ConfigError(f"{message}; leave alphas out", "algorithm")
    if weights == "examples" and options.max_examples is None:
        message = "weights by the number of samples are not bounded"
        raise ConfigError(
            f'{message}; write weights = "uniform", or privacy.max_examples = 100', "weights"
        )
    if weights not in ("uniform", "examples"):
        raise ConfigError(
            f'got {weights!r}; expected "uniform", or "examples" with privacy.max_examples',
            "weights",
        )
    if options.max_examples is not None and weights != "examples":
        raise ConfigError(
            f'weights are {weights!r}; leave it out, or write weights = "examples"',
            "privacy.max_examples",
        )


def _check_signals(experiment: Experiment, options: Privacy, rule: SelectionRule[Any]) -> None:
    """Refuse rules that need what cannot be bounded, signals without noise, and noise on what is
    not sent."""
    needs = rule.needs()
    name = experiment.selector["name"]
    reason = unbounded(needs)
    wanted = noised(needs, options.sizes)
    possible = noised(needs)
    if "num_examples" in needs.columns and options.sizes == "private":
        message = f"{name!r} hears the clear number of samples with every update"
        raise ConfigError(
            f'{message}; write privacy.sizes = "public" where it is no secret', "selector"
        )
    if reason:
        fix = f"write {rule.private_with()}, or use" if rule.private_with() else "use"
        raise ConfigError(
            f"{name!r} cannot be private: {reason}; {fix} e.g. poisson or power_of_choice",
            "selector",
        )
    for signal in wanted:
        if signal not in options.signal_noise:
            interval = "" if signal == HISTOGRAM else "low = 0.0, high = 5.0, "
            line = f"privacy.signal_noise.{signal} = {{ {interval}multiplier = 5.0 }}"
            raise ConfigError(
                f"{name!r} needs {signal!r} of clients, which is not bounded; write e.g. {line}",
                "privacy.signal_noise",
            )
    for signal, noise in options.signal_noise.items():
        if signal not in possible:
            message = (
                f"{name!r} does not need it{suggest(signal, possible)}; expected "
                f"{', '.join(possible) or 'nothing here'}"
            )
            raise ConfigError(message, f"privacy.signal_noise.{signal}")
        if noise.noise == "gumbel" and rule.known_top_m() != signal:
            message = (
                f"Gumbel noise is for rules that take the m largest values, and {name!r} uses "
                f"{signal!r} otherwise"
            )
            raise ConfigError(
                f'{message}; write noise = "laplace"', f"privacy.signal_noise.{signal}"
            )


def _release(options: Privacy, name: str, count: int, m: int) -> Release:
    """Return the releases of one signal; under zero-out adjacency it moves by half of the interval.

    The same number serves shares of labels: two histograms differ by 2 in sum, each differs by 1
    from the zeros of no data, and Laplace noise on all classes costs at most what it costs on one
    that moves by that sum (docs/privacy.md#histogram).
    """
    noise = options.signal_noise[name]
    return Release(
        noise.noise, 2.0 * noise.multiplier, count, m=m if noise.noise == "gumbel" else 1
    )


def _hidden(
    experiment: Experiment,
    options: Privacy,
    rule: SelectionRule[Any],
    updates: Release,
    config: RunConfig,
) -> Release:
    """Return the amplified release of the updates; refuse cohorts that are not drawn at random from
    all clients."""
    population = config.setting.task.federation.pool
    draw = rule.known_draw(config.cohort, population)
    reason = None
    if draw is None:
        reason = (
            f"{experiment.selector['name']!r} does not draw cohorts without a look at data, "
            "and only such draws amplify"
        )
    elif experiment.availability["name"] != "always":
        reason = "clients that are not always available are not drawn from all clients"
    elif experiment.synchrony["name"] != "synchronous":
        reason = (
            "which uploads a server waits for depends on clients, and only a draw of all of "
            "them amplifies"
        )
    elif options.max_rounds is not None:
        reason = "a cap on rounds takes clients out of the draw; leave max_rounds out"
    elif experiment.defence is not None:
        reason = "a defence holds clients back, which changes the draw"
    elif experiment.local.stragglers is not None:
        reason = "stragglers are a share of each cohort, so that who is asked changes others' work"
    elif type(config.upload_config.allocator) is not UniformAllocator:
        reason = (
            f"{experiment.allocator['name']!r} divides a budget among a cohort, so that who is "
            "asked changes others' uploads"
        )
    if reason or draw is None:
        raise ConfigError(f'{reason}; write cohorts = "seen"', "privacy.cohorts")
    kind: Any = draw.scheme
    return replace(updates, kind=kind, population=population, rate=draw.rate, largest=draw.largest)


def _adaptive(options: Privacy, z: float, divisor: float) -> tuple[float, float]:
    """Return the noise on the count of unclipped updates and the multiplier of the updates, which
    together make z."""
    if options.adaptive is None:
        return 0.0, z
    count = options.adaptive.noise or divisor / 20.0
    if 2.0 * count <= z:
        message = (
            f"got {count:g}; expected more than half of the noise multiplier {z:.4g}, which "
            "both share"
        )
        raise ConfigError(message, "privacy.adaptive.noise")
    if count > MOST_COUNT_NOISE:
        raise ConfigError(
            f"got {count:g}; expected at most {MOST_COUNT_NOISE:.3g}", "privacy.adaptive.noise"
        )
    return count, update_multiplier(z, count)


def _part_clips(options: Privacy, config: RunConfig) -> dict[str, float]:
    """Return the clips of single parts; refuse parts that are not uploaded."""
    uploads = config.setting.algorithm.local.uploads
    for name in options.part_clips:
        if name not in uploads:
            names = ", ".join(sorted(uploads))
            raise ConfigError(
                f"there is no such part{suggest(name, uploads)}; uploaded are: {names}",
                f"privacy.part_clips.{name}",
            )
    return dict(options.part_clips)
