"""Noise that clients add before they mask: what an experiment must be for it, and its numbers."""

from __future__ import annotations

from typing import Any

import torch

from motley.core.errors import ConfigError
from motley.engines.engine import Setting
from motley.rounds.run_config import RunConfig
from motley.selectors.selector import SelectionRule
from motley.tasks.task import ModelState
from motley.timing.deadline import Deadline
from motley.timing.synchrony import Synchronous
from motley_privacy.distributed_noise import ClientNoise, fewest_survivors
from motley_privacy.options import Privacy

Refused = tuple[str, bool, str]
"""The key of a refusal, whether it applies, and the sentence."""


def check_client_noise(options: Privacy, config: RunConfig, rule: SelectionRule[Any]) -> None:
    """Refuse what clients cannot do alone, and what has no sum of whole cohorts under masks.

    Raises
    ------
    ConfigError: one of these, with the line that mends it.
    """
    for key, yes, message in (*_refused_options(options), *_refused_parts(config, rule)):
        if yes:
            raise ConfigError(f'{message}, or noise_by = "server"', key)


def _refused_options(options: Privacy) -> tuple[Refused, ...]:
    gumbel = any(noise.noise == "gumbel" for noise in options.signal_noise.values())
    return (
        (
            "privacy.cohorts",
            options.cohorts == "hidden",
            'the server, against which the claim holds, sees the cohorts; write cohorts = "seen"',
        ),
        (
            "privacy.adaptive",
            options.adaptive is not None,
            "a clip that adapts needs a count of clear norms; write a number for clip",
        ),
        (
            "privacy.min_separation",
            options.min_separation > 1,
            "clients cannot take back the noise of others; write min_separation = 1",
        ),
        ("privacy.part_clips", bool(options.part_clips), "one vector is masked; leave it out"),
        (
            "privacy.signal_noise",
            gumbel,
            'Gumbel noise is the server\'s, which is not trusted; write noise = "laplace"',
        ),
    )


def _refused_parts(config: RunConfig, rule: SelectionRule[Any]) -> tuple[Refused, ...]:
    draw = rule.known_draw(config.cohort, config.setting.task.federation.pool)
    return (
        (
            "algorithm",
            config.setting.algorithm.local.uploads != {"delta"},
            "one vector is masked; use an algorithm whose clients send the update alone, e.g. "
            "fedavg",
        ),
        (
            "weights",
            config.weights != "uniform",
            f"got {config.weights!r}, and under masks all weigh the same; write weights = "
            '"uniform"',
        ),
        (
            "compressor",
            not config.upload_config.plain,
            "compressed updates cannot be masked; leave compressor and feedback out",
        ),
        (
            "synchrony",
            type(config.synchrony) not in (Synchronous, Deadline),
            "it has no cohort that is summed as a whole; write synchronous or deadline",
        ),
        (
            "selector",
            draw is not None and draw.scheme == "poisson",
            'a cohort of coins has no fixed size; write selector = "uniform"',
        ),
    )


def client_noise(options: Privacy, config: RunConfig, multiplier: float) -> ClientNoise:
    """Return what each client adds, so that a sum of the fewest has this noise multiplier.

    Raises
    ------
    ConfigError: too few can remain, or fewer are waited for than must remain.
    """
    synchrony = config.synchrony
    cohort = config.cohort
    clients = synchrony.asked(cohort)
    colluders = 1 if options.colluders is None else options.colluders
    survivors = options.survivors or fewest_survivors(clients, colluders)
    size = _sent_numbers(config.setting)
    noise = ClientNoise(
        clip=options.clip,
        size=size,
        clients=clients,
        survivors=survivors,
        colluders=colluders,
        noise_multiplier=multiplier,
    )
    if survivors > cohort:
        raise ConfigError(
            f"of {clients} clients asked {survivors} must remain, and the server steps when "
            f"{cohort} have delivered; lower over_select",
            "synchrony",
        )
    return noise


def _sent_numbers(setting: Setting) -> int:
    """Return how many numbers of an update a client sends; what it keeps of the model is not among
    them."""
    layout = setting.task.layout
    lengths = (sum(entry.size for entry in part) for part in (layout.buffers, layout.counters))
    model = ModelState(torch.zeros(layout.size), *map(torch.zeros, lengths))
    return setting.algorithm.local.sent(model).x.numel()
