"""The upload configuration of a run, made of the experiment's five keys about compression and
checked against the other parts."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, ContractError
from motley.engines.engine import Setting
from motley.experiments.config import Experiment
from motley.rounds.run_config import Recalibrate
from motley.selectors.selector import Selector
from motley.transport.compressors.chain import Chain
from motley.transport.upload_config import UploadConfig


def upload_config_of(
    experiment: Experiment, setting: Setting, selector: Selector[Any], weights: str
) -> UploadConfig:
    """Return compressor, feedback, allocator and budget of a run.

    Raises
    ------
    ConfigError: parts that do not fit together, in one sentence.
    """
    compressor = experiment.part("compressor")
    if experiment.quantizer is not None:
        chosen: Any = compressor  # the chain itself refuses what is no sparsifier or quantizer
        quantizer: Any = experiment.part("quantizer")
        try:
            compressor = Chain(chosen, quantizer)
        except ConfigError as error:
            raise ConfigError(str(error), "quantizer") from None
    feedback = experiment.part("feedback")
    allocator = experiment.part("allocator")
    budget = experiment.part("budget")
    upload_config = UploadConfig(compressor, feedback, allocator, budget)
    size = setting.task.layout.size
    for key, reason in (
        ("feedback", upload_config.refuses_feedback(size)),
        ("budget", allocator.refuses(budget)),
        ("compressor", upload_config.refuses(size)),
    ):
        if reason:
            raise ConfigError(reason, key)
    _check_algorithm(upload_config, setting)
    _check_changes(experiment, upload_config, setting, weights)
    _check_wants(experiment, upload_config, setting, selector)
    # a warm-up would not ask for the last round
    budget.ratio(budget.warm_up + 1, experiment.stop.rounds)
    if (
        compressor.budgeted
        and "upload_ratio" not in allocator.requires
        and "budget" not in experiment.model_fields_set
    ):
        name = experiment.compressor["name"]
        message = (
            f"{name!r} without a budget sends everything; write e.g. budget = {{ name = "
            f'"constant", average = 0.2 }}'
        )
        warnings.warn(message, stacklevel=2)
    if allocator.requires & {"scores", "uplink_mbps"} and experiment.part("synchrony").overlaps:
        name, synchrony = experiment.allocator["name"], experiment.synchrony["name"]
        message = (
            f"{name!r} divides the budget among clients that are sent out together, and under "
            f"{synchrony!r} most are sent out alone, each with the whole budget, as under "
            '"uniform"; use a synchrony that waits, "synchronous" or "deadline"'
        )
        warnings.warn(message, stacklevel=2)
    return upload_config


def _check_algorithm(upload_config: UploadConfig, setting: Setting) -> None:
    """Refuse compression where the algorithm does not upload one update of the whole model."""
    rule = setting.algorithm.local
    if not upload_config.plain and rule.slicing is not None:
        message = (
            "uploads cover part of the model, and a compressor works on updates of the whole model"
        )
        raise ConfigError(
            f"{type(rule).__name__}: {message}; leave the compressor out", "compressor"
        )
    if not upload_config.plain and rule.lengths_follow_values:
        raise ConfigError(
            f"{type(rule).__name__} decides itself what of an update is sent; leave the compressor "
            "out",
            "compressor",
        )
    if rule.choice is not None and upload_config.feedback.state_name is not None:
        message = (
            "a client's error memory belongs to one model, and here a client may take another "
            "one in every round"
        )
        raise ConfigError(f'{type(rule).__name__}: {message}; write feedback = "none"', "feedback")
    whole_update = "delta" in rule.uploads and rule.sends_whole
    if not upload_config.plain and not whole_update:
        name = type(rule).__name__
        raise ConfigError(
            f"{name} does not upload an update of the whole model, and that is what is compressed",
            "compressor",
        )
    try:
        upload_config.compressor.initial_state(setting.task.layout)
    except ContractError as error:
        raise ConfigError(str(error), "compressor") from None


def _check_changes(
    experiment: Experiment, upload_config: UploadConfig, setting: Setting, weights: str
) -> None:
    """Refuse algorithms, weights and synchronies that do not go with a feedback that uploads
    changes of a mean kept at the server."""
    if not upload_config.feedback.incremental:
        return
    name = experiment.feedback["name"]
    algorithm = setting.algorithm
    # FedDyn's server counts who took part
    keeps = algorithm.local.initial_state(setting.zeros()) is not None
    if keeps or algorithm.aggregator.sees_single_uploads or algorithm.local.uploads != {"delta"}:
        raise ConfigError(
            f"{name!r} has the server average all clients' vectors; it goes with plain averaging "
            "only",
            "feedback",
        )
    if weights != "uniform":
        raise ConfigError(
            f'{name!r} counts every client alike; write weights = "uniform"', "weights"
        )
    if experiment.part("synchrony").overlaps:
        raise ConfigError(
            f"{name!r} wants rounds in which everybody has the newest model; use synchronous or "
            "deadline",
            "feedback",
        )


def _check_wants(
    experiment: Experiment, upload_config: UploadConfig, setting: Setting, selector: Selector[Any]
) -> None:
    """Refuse an allocator that needs what the selector or the network does not provide."""
    wants = upload_config.allocator.requires
    name = experiment.allocator["name"]
    for column in sorted(wants - {"uplink_mbps"}):
        if column not in selector.rule.provides():
            chosen = experiment.selector["name"]
            raise ConfigError(
                f"{name!r} needs the selector's {column}, and {chosen!r} gives none", "allocator"
            )
    if "uplink_mbps" in wants:
        if experiment.probe.speeds == "measured":
            raise ConfigError(
                f'{name!r} divides by how fast clients send, and under probe.speeds = "measured" '
                'the server is not told; use "uniform" or "by_score", or leave speeds out',
                "allocator",
            )
        key = setting.streams.key("network")
        network = experiment.part("network")
        if not np.isfinite(network.uplink_mbps(key, np.arange(1), 1)).all():
            message = f"{name!r} divides by how fast clients send, and here uploads take no time"
            raise ConfigError(
                f"{message}; give a network, e.g. network = "
                '{ name = "uniform", up_mbps = [1, 5] }',
                "network",
            )


def recalibration_of(experiment: Experiment, setting: Setting) -> Recalibrate | None:
    """Return how BatchNorm statistics are estimated; None: clients' own are averaged.

    Raises
    ------
    ConfigError: the model has no such statistics, or not all clients share them at a server step.
    """
    if experiment.recalibrate is None:
        return None
    algorithm = setting.algorithm
    name = experiment.algorithm["name"]
    key = "recalibrate"
    if algorithm.local.choice is not None:
        raise ConfigError(
            f"{name!r} has several models, and statistics are estimated of one; leave the key out",
            key,
        )
    if not any(entry.batch_norm for entry in setting.task.layout.buffers):
        raise ConfigError("this model has no BatchNorm statistics; leave the key out", key)
    own = not algorithm.local.sends_whole or algorithm.local.trains_common
    if own or algorithm.server.asks_clients:
        raise ConfigError(
            f"{name!r} works with models that clients hold themselves; leave the key out", key
        )
    slicing = algorithm.local.slicing
    if slicing is not None and slicing.static_norm:
        if not experiment.recalibrate.cumulative:
            message = (
                f"under {name!r} there are no statistics to go on with; write cumulative = true"
            )
            raise ConfigError(message, key)
        return experiment.recalibrate
    if slicing is not None and slicing.merges:
        raise ConfigError(
            f"under {name!r} buffers are merged products, too, which are no statistics; leave the "
            "key out",
            key,
        )
    if slicing is not None and slicing.widths:
        raise ConfigError(
            f"under {name!r} each listed width has statistics of its own, which clients send; "
            "leave the key out",
            key,
        )
    if algorithm.server.needs:
        raise ConfigError(
            f"{name!r} makes models of single uploads, statistics included; leave the key out", key
        )
    if experiment.part("synchrony").overlaps:
        raise ConfigError(
            "statistics are made between two rounds, and here clients are always under way; use "
            "synchronous",
            key,
        )
    return experiment.recalibrate
