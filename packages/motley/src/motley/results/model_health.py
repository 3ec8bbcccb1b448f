"""Whether a run's model was saved from ruin by the guard, or is ruined: sentences for the terminal
and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from motley.results import measures
from motley.results.load import Run


def model_health(run: Run) -> list[str]:
    """Return one sentence for each kind of trouble that a run's model had; nothing for a sound
    run."""
    noted = {
        name: measures.note(run, name).x.astype(int).tolist()
        for name in ("step_refused", "model_restored", "uploads_dropped", "set_aside")
    }
    restored = noted["model_restored"]
    dropped = noted["uploads_dropped"]
    refused = [number for number in noted["step_refused"] if number not in dropped]
    troubles = []
    if dropped:
        troubles.append(
            f"uploads that would have ruined {_times(len(dropped), 'step')} were dropped, and the "
            f"others used ({_rounds(dropped)}): they are those of {_clients(run, dropped)}"
            + (
                f"; clients were set aside ({_rounds(noted['set_aside'])})"
                if noted["set_aside"]
                else ""
            )
        )
    if refused:
        troubles.append(
            f"the server refused {_times(len(refused), 'step')} that would have ruined the model "
            f"({_rounds(refused)}); the uploads "
            'were paid for, not used. guard = "off" lets such steps through'
        )
    if restored:
        troubles.append(
            "the loss was not finite and the server went back to its last good model "
            f"{_times(len(restored), 'time')} ({_rounds(restored)}); a smaller learning rate may "
            "help"
        )
    rounds = run.tables["rounds"].num_rows
    if len(idle := _idle_rounds(run)) > rounds / 2:
        troubles.append(_learned_nothing(run, idle))
    since = ruined_since(run)
    if since is not None and not restored:
        troubles.append(
            f"the model is ruined: its loss is not finite from round {since} on; a smaller "
            "learning rate may help"
        )
    return troubles


def learned_nothing(run: Run) -> str | None:
    """Return in a sentence that no upload of the whole run was accepted; None where one was, where
    there was no round, or where the run stood still, which is said as it ends."""
    idle = _idle_rounds(run) if run.standstill is None else []
    every_round = bool(idle) and len(idle) == run.tables["rounds"].num_rows
    return _learned_nothing(run, idle) if every_round else None


def _idle_rounds(run: Run) -> list[int]:
    """Return the rounds in which no upload was accepted."""
    accepted = run.column("rounds", "accepted")
    return [int(number) for number in run.column("rounds", "round")[accepted == 0]]


def _learned_nothing(run: Run, idle: Sequence[int]) -> str:
    ends = Counter(run.column("clients", "outcome").tolist())
    ended = (
        ", ".join(f"{count} {outcome}" for outcome, count in ends.most_common())
        or "nobody was asked"
    )
    return (
        f"no upload was accepted in {len(idle)} of {run.tables['rounds'].num_rows} rounds "
        f"({_rounds(idle)}), and nothing was learned in them (what came of all dispatches: {ended})"
    )


def ruined_since(run: Run) -> int | None:
    """Return the round of the first evaluation from which on no headline loss is finite; None where
    the last one is, or where a deployment's clients measured none."""
    global_rows = measures.rows_of(run, "loss", "global")[0]
    headline = global_rows if global_rows.num_rows else measures.rows_of(run, "loss", "mean")[0]
    if run.deployed and headline["loss"].null_count == headline.num_rows:
        return None
    rounds = headline["round"].to_numpy()
    sound = np.isfinite(np.asarray(headline["loss"].to_numpy(), float))
    if not len(sound) or sound[-1]:
        return None
    good = np.flatnonzero(sound)
    return int(rounds[good[-1] + 1 if len(good) else 0])


def _clients(run: Run, rounds: Sequence[int]) -> str:
    """Return in words the clients whose uploads were rejected in these rounds."""
    table = run.tables["clients"]
    rejected = np.isin(table["round"].to_numpy(), rounds) & (
        np.asarray(table["outcome"].to_pylist()) == "rejected"
    )
    return _few("client", sorted(set(table["client"].to_numpy()[rejected].tolist())))


def _times(count: int, noun: str) -> str:
    return f"one {noun}" if count == 1 else f"{count} {noun}s"


def _rounds(rounds: Sequence[int]) -> str:
    return _few("round", rounds)


def _few(noun: str, numbers: Sequence[int]) -> str:
    """Return numbers in words: the first five and how many more."""
    listed = ", ".join(map(str, numbers[:5])) + (
        f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    )
    return f"{noun}{'s' if len(numbers) > 1 else ''} {listed}"
