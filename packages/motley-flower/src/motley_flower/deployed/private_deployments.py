"""What a deployment of a private experiment is refused for, and its secret: imported for such
experiments alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motley.core.keys import Streams
from motley.experiments.build import Ready
from motley.experiments.config import Experiment
from motley.selectors.selector import Selector
from motley.timing.asynchronous import Asynchronous
from motley_flower.deployed.private_plan import hides_cohorts, plan_of
from motley_privacy.all_runs import in_ledger
from motley_privacy.noise import SecretRandomness
from motley_privacy.private_admission import selection_seed
from motley_privacy.private_time import looks_at_time
from motley_privacy.run_secret import keep_secret, secret_of

__all__ = ["deployment_secret", "drawn_from", "in_ledger", "refuses_private"]


def deployment_secret(
    experiment: Experiment, folder: Path, record: Mapping[str, Any], new: bool
) -> bytes:
    """Return the secret of a private deployment: a new one, which is written, or the one that it
    began with.

    Parameters
    ----------
    folder, record: of the run.
    new: whether it begins.
    """
    data = experiment.data_digests()
    secret = secret_of(folder, record, data)
    if new:
        keep_secret(folder, secret, data)
    return secret


def drawn_from(secret: bytes, experiment: Experiment, selector: Selector[Any]) -> Selector[Any]:
    """Return a selector that draws its cohorts from the server's secret: clients hold the
    experiment's seed, and could compute what is drawn from it."""
    streams = Streams(experiment.seed, experiment.pin)
    seed = selection_seed(experiment.privacy, streams, SecretRandomness(secret))
    return Selector(selector.rule, seed, selector.horizon, selector.defence)


def refuses_private(experiment: Experiment, ready: Ready) -> str | None:
    """Return why a private experiment cannot be deployed, in a sentence; None: it can be."""
    config = ready.config
    plan = plan_of(config)
    if plan is None:
        return None
    if plan.options.noise_seed is not None:
        return (
            "the noise of a deployment comes from the operating system and from no seed; leave "
            "privacy.noise_seed out"
        )
    draw = ready.selector.rule.known_draw(config.cohort, len(config.setting.task.federation))
    if hides_cohorts(experiment) and (draw is None or draw.scheme != "poisson"):
        return (
            "real clients come and go, and a fixed number of those that are there is drawn, each "
            "more often than the account of hidden cohorts counts; write selector = "
            '"poisson", or privacy.cohorts = "seen"'
        )
    if config.setting.work.steps is None:
        return (
            "local steps tell the server numbers of samples where work is counted in epochs; "
            "write local = { steps = 10 }"
        )
    looks = looks_at_time(experiment, config, ready.selector.rule)
    if looks is not None and plan.options.sizes == "private":
        reason = (
            f"real clients take as long as their data makes them, and {looks[0]}; write {looks[1]}"
        )
        return f'{reason}, or, where the numbers of samples are no secret, privacy.sizes = "public"'
    if config.weights == "examples" and isinstance(config.synchrony, Asynchronous):
        return (
            "clients weigh their uploads themselves, before they are mixed with the newest "
            'model; write weights = "uniform"'
        )
    return None
