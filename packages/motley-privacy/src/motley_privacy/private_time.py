"""What time tells in a private run: refused where seconds that follow clients' data can reach
anything but the clock.

The account holds one sum to the sensitivity C: with one client's data changed, the clipped sum of a
server step moves by at most C (zero-out; 2 C under replace-one, as elsewhere). That takes more than
clipping: *which other clients* are in the sum, from which model they started, and with which
factor, must not change with that client's data.

Derivation
----------
Let H be all that was released before a step: noised sums, noisy signals, cohorts, and public facts
(roster, speeds, links, random numbers). Two worlds differ in client k; condition on the same H.
Durations are called *free* where they are functions of H alone.

* Cohorts are functions of H: rules hear noisy signals, outcomes and, where durations are free,
  seconds that H fixes. A client that sent nothing usable is heard as accepted, so outcomes are
  functions of H, too.
* With free durations every timeline is a function of H: device, link, bits, steps and the share of
  the work after which a client drops out are. A synchrony is a pure function of timelines, so the
  set S of a step's members, each member's model version and each staleness factor s are functions
  of H. Members other than k compute the same in both worlds, for their data and their model are the
  same. The sum of both worlds differs in the one term of k, s_k w_k Delta_k after clipping: at most
  C. This covers

  - ``synchronous``: S is the cohort without those that drop out;
  - ``deadline``: S is the first M to arrive before D seconds, ``late = "partial"`` changes steps by
    H alone, ``min_uploads`` counts members by H alone;
  - ``buffered`` with ``refill = "idle"``: a client is in flight once, and not sent out again while
    its update waits, so it is in a sum at most once;
  - ``asynchronous``: S is one client; mixing adds released models to its update before it is
    clipped.

* A client of S that sends nothing usable adds zero and stays a member; nobody enters in its place,
  and the divisor is fixed. A client that is late or drops out is so by H alone, adds zero in both
  worlds, and whoever enters in its place enters in both.
* With durations that are not free the same steps fail for k alone to be late. Under ``deadline``,
  ``buffered`` and ``asynchronous`` *another client enters* when k is slower: the sum loses one term
  of norm C and gains another, so that it moves by 2 C, and the next cohorts, versions and factors
  differ as well, which no account covers.
* ``synchronous`` waits for everybody: there S is the cohort without those that drop out whatever
  time they take, and only the clock differs. So durations need not be free, as long as nothing
  looks at the clock: rules that hear seconds, clients that come and go by the hour, data that drift
  by the second, an end after so many hours.

Two ways to durations that are free: a fixed number of local steps on devices whose seconds per step
do not follow the number of samples (``Device.follows_examples``), without work that passes over all
samples; or ``privacy.sizes = "public"``: the number of samples is then a public fact, a part of H,
and neighbouring data have as many samples.
"""

from __future__ import annotations

from typing import Any

from motley.core.components import declares
from motley.core.errors import ConfigError
from motley.core.records import SIGNALS
from motley.experiments.config import Experiment
from motley.experiments.disclosure import sized_seconds
from motley.rounds import probing
from motley.rounds.run_config import RunConfig
from motley.selectors.selector import SelectionRule
from motley.timing.synchrony import Synchronous


def check_time(experiment: Experiment, config: RunConfig, rule: SelectionRule[Any]) -> None:
    """Refuse a private run in which seconds or shares of uploads that follow one client's data
    change what others do.

    Raises
    ------
    ConfigError: one of these, with the lines that do without.
    """
    if config.world.network.wants():
        name = experiment.network["name"]
        message = (
            f"under {name!r} one client's loss changes the links of all, and with them times "
            "and what a rule hears"
        )
        raise ConfigError(f'{message}; write e.g. network = "uniform"', "network")
    options = experiment.privacy
    if options is None or options.sizes == "public":
        return
    public = 'or, where the numbers of samples are no secret, privacy.sizes = "public"'
    allocator = config.upload_config.allocator
    if allocator.looks_at_work or not declares(allocator, "looks_at_work", "ratios"):
        message = (
            f"{experiment.allocator['name']!r} divides the budget by what clients have to do, "
            "which tells numbers of samples"
        )
        raise ConfigError(f'{message}; write allocator = "uniform", {public}', "allocator")
    heard = _sized(experiment, config, rule)
    probed = _sized_probes(rule)
    timed = looks_at_time(experiment, config, rule)
    # the clock follows sizes, what a rule hears of a client's seconds does not
    if heard is None and probed is not None:
        timed = _looks_at_clock(experiment, config)
    sized = heard or probed
    if sized and timed:
        (key, why, without), (use, instead) = sized, timed
        raise ConfigError(f"{why}, and {use}; write {without}, {instead}, {public}", key)


def _sized(
    experiment: Experiment, config: RunConfig, rule: SelectionRule[Any]
) -> tuple[str, str, str] | None:
    """Return the key whose value makes durations follow numbers of samples, why, and the line that
    does without; None: free."""
    needs = rule.needs()
    local = config.setting.algorithm.local
    steps = "local = { steps = 10 }"
    own = config.extra_exchange().own
    if config.setting.work.steps is None:
        return (
            "local.epochs",
            "work that is counted in epochs takes time that follows numbers of samples",
            steps,
        )
    device = config.world.device
    if device.follows_examples or not declares(device, "follows_examples", "step_s"):
        message = f"{experiment.device['name']!r} takes time that follows the number of samples"
        return "device", message, 'device = "uniform"'
    passes = sorted(probing.pre_training_signals(needs.reported, local.pre_training))
    if passes or local.extra_epochs or own:
        message = (
            "before or after its steps a client passes over all its samples, which takes time "
            "that follows their number"
        )
        key = "selector" if probing.pre_training_signals(needs.reported) else "algorithm"
        return key, message, f"another {key}"
    return None


def _sized_probes(rule: SelectionRule[Any]) -> tuple[str, str, str] | None:
    """Return the same of what candidates measure before a choice, which moves the clock of all but
    is no client's duration."""
    learned = sorted(name for name in rule.needs().probed if SIGNALS[name].kind == "learning")
    if not learned:
        return None
    message = (
        f"to measure {learned[0]!r} before a choice takes time that follows numbers of samples"
    )
    return "selector", message, "a selector that probes nothing"


def looks_at_time(
    experiment: Experiment, config: RunConfig, rule: SelectionRule[Any]
) -> tuple[str, str] | None:
    """Return what in a run depends on the moments of its clients or of the clock, and what to write
    instead; None: nothing.

    ``synchronous`` steps when all have delivered or dropped out, whatever time they take.
    """
    if sized_seconds(rule.needs()):
        return (
            f"{experiment.selector['name']!r} looks at seconds or steps",
            "a selector that does not",
        )
    return _looks_at_clock(experiment, config)


def _looks_at_clock(experiment: Experiment, config: RunConfig) -> tuple[str, str] | None:
    """Return the same of all but what a rule hears of its clients' durations."""
    world = config.world
    if type(config.synchrony) is not Synchronous:
        message = (
            f"under {experiment.synchrony['name']!r} the time of one client decides which "
            "others enter a sum"
        )
        return message, 'synchrony = "synchronous"'
    online = world.availability
    if online.follows_time or not declares(online, "follows_time", "online"):
        return (
            f"under {experiment.availability['name']!r} clients come and go by the clock",
            'availability = "always"',
        )
    if world.drift.follows_time:
        return f"{experiment.drift['name']!r} moves data by the clock", 'drift.clock = "rounds"'
    if config.stop.virtual_hours is not None:
        return "stop.virtual_hours ends the run by the clock", "stop = { rounds = 50 }"
    return None
