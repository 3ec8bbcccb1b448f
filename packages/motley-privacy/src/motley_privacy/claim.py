"""The claim of a private run in words: what is bounded, for whom, against whom, and what is not
covered."""

from __future__ import annotations

from motley_privacy.accounting import Bound
from motley_privacy.distributed_noise import ClientNoise
from motley_privacy.noise import NoiseOrigin
from motley_privacy.options import Privacy
from motley_privacy.published import NOT_COVERED

_CHANGE = {
    "zero_out": "its data replaced by nothing (zero-out adjacency)",
    "replace_one": "its data replaced by any other data (replace-one adjacency)",
    "add_remove": "the client there or not (add-remove adjacency)",
}


def claim(
    options: Privacy,
    bound: Bound,
    max_rounds: int,
    signals: dict[str, int],
    origin: NoiseOrigin,
    by_clients: ClientNoise | None = None,
) -> tuple[str, ...]:
    """Return the sentences of a claim.

    Parameters
    ----------
    max_rounds: cap on the sums of one client.
    signals: name -> cap on its values.
    origin: where noise comes from.
    by_clients: noise that clients add before they mask; None: the server adds it.
    """
    hidden = options.cohorts == "hidden"
    times = "".join(
        f" and {n} value{'s' if n > 1 else ''} of {name}" for name, n in sorted(signals.items())
    )
    if hidden:
        upto = f"over {max_rounds} rounds"
    else:
        upto = f"for every client up to {max_rounds} sums{times}"
    return (
        f"({bound.epsilon:.4g}, {options.delta:g})-differential privacy of one client's whole "
        f"data, {_CHANGE[options.adjacency]}, {upto}; added up by the accountant "
        f"{bound.accountant!r}.",
        *_sizes(options),
        _trust(options) if by_clients is None else _untrusted(options, by_clients),
        _hidden(origin, bound.amplified)
        if hidden
        else "Cohorts are taken as seen: nothing is amplified.",
        *_correlated(options),
        "Not covered: who is on the roster, who was available, who dropped out and when messages "
        "came; evaluations, settings that were chosen by looking at clients' data, and models that "
        "stay with clients.",
        _origin(options, origin, by_clients is not None),
        _noise(options, origin == "noise_seed"),
        f"Not covered of what the run's folder holds: {_not_covered()}.",
    )


def _not_covered() -> str:
    """Return what a run's folder holds beside counted releases and public facts, in words."""
    return "; ".join(f"{name} ({description})" for name, description in NOT_COVERED.items())


def _hidden(origin: NoiseOrigin, amplified: bool) -> str:
    """Return the sentences on hidden cohorts, and on who could know them."""
    if not amplified:
        return (
            "Cohorts are hidden, but so large that this amplifies nothing: the same holds against "
            'whoever sees them, with cohorts = "seen", which refuses less.'
        )
    drawn = "the seed" if origin == "noise_seed" else "the run's secret.json"
    return (
        "Cohorts are drawn without a look at data and taken as hidden, which amplifies: whoever "
        f"sees a cohort, the table of participants or {drawn} gets less privacy."
    )


def _origin(options: Privacy, origin: NoiseOrigin, by_clients: bool) -> str:
    """Return the sentences on where the noise comes from, and on who could take it away."""
    if origin == "system":
        return _generator(by_clients)
    if origin == "noise_seed":
        return (
            "The noise is a function of noise_seed, which is for tests and comparisons: whoever "
            "knows it can take the noise away, and runs with one noise_seed add the same noise, "
            "also under other seeds, so nothing is private against whoever has two of them, and "
            "deviations over seeds hold none of the noise."
        )
    drawn = "The noise and the cohorts come" if options.cohorts == "hidden" else "The noise comes"
    return (
        f"{drawn} from a secret of the operating system that no other run has, in the file "
        "secret.json of the run's folder: whoever reads it can take the noise away, so no copy of "
        "the folder that is given away may hold it."
    )


def _noise(options: Privacy, quantiles: bool) -> str:
    """Return the sentence on how noise is drawn, and on its low bits."""
    gumbel = "gumbel" in {noise.noise for noise in options.signal_noise.values()}
    if quantiles:
        drawn = "drawn as quantiles in float64 and rounded."
    else:
        drawn = (
            "drawn exactly, with the discrete Gaussian and Laplace laws, so that low bits tell "
            "nothing."
        )
    sentence = (
        "Values and sums are rounded to a grid before noise, and noise is a whole number of "
        f"its steps, {drawn}"
    )
    return sentence + (
        " Gumbel noise is in floating point, and choices alone show it." if gumbel else ""
    )


def _correlated(options: Privacy) -> tuple[str, ...]:
    """Return the sentence on correlated noise, if there is any."""
    n = options.min_separation
    sentence = (
        f"The noise of {n} successive sums is correlated, and a client's update enters at most "
        "one of them."
    )
    return (sentence,) if n > 1 else ()


def _generator(by_clients: bool) -> str:
    """Return the sentences on where the noise of a deployment comes from, and on what clients keep
    to."""
    if by_clients:
        whose = "the generators of the clients' operating systems"
    else:
        whose = "the operating system's generator"
    secrets = "" if by_clients else "Tables and checkpoints of the server are secrets. "
    return (
        f"The noise comes from {whose}. {secrets}A client whose own file has [privacy] "
        "keeps to the noise and the caps in it, over all runs, until its operator removes its "
        "counts; one without does as the server says."
    )


def _sizes(options: Privacy) -> tuple[str, ...]:
    """Return the sentence on the numbers of samples, where these are public."""
    sentence = (
        "The number of each client's samples is public, like its id, and the same whatever its "
        "data are replaced by."
    )
    return (sentence,) if options.sizes == "public" else ()


def _trust(options: Privacy) -> str:
    """Return the sentence on whom the claim holds against, and who must be trusted."""
    laws = {noise.noise for noise in options.signal_noise.values()}
    shown = "the models" if options.cohorts == "hidden" else "the models and the cohorts"
    shown += " and the noisy signals" if laws and "gumbel" not in laws else ""
    added = "the sums" + (" and of the choices" if "gumbel" in laws else "")
    if laws - {"gumbel"}:
        clients = " Clients add the noise of their signals before they send them."
    else:
        clients = ""
    trusted = (
        f"The server adds the noise of {added}, sees uploads before it does, and must be trusted."
    )
    return f"It holds against those who see {shown}. {trusted}{clients}"


def _untrusted(options: Privacy, noise: ClientNoise) -> str:
    """Return the sentences on whom the claim holds against where clients add the noise and mask."""
    shown = "the models and the cohorts" + " and the noisy signals" * bool(options.signal_noise)
    if noise.colluders:
        together = f"also together with {noise.colluders} of its clients"
    else:
        together = (
            "as long as it has no client's help, and not against clients, who know their own noise"
        )
    signals = " and of their signals" if options.signal_noise else ""
    return (
        f"It holds against those who see {shown}, and against the server itself, {together}, as "
        "far as the masks of the secure sum hold: clients clip, round, and add the noise of the "
        f"sums{signals} themselves. A sum is opened only with {noise.survivors} clients or more, "
        f"so that the noise of {noise.honest} clients is in it that none of them knows."
    )
