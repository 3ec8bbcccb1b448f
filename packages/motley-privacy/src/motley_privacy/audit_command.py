"""The command ``motley audit-privacy``: attack a private experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motley.commands.shared_options import Data, Settings, check_data, in_home, say, tell
from motley.core.errors import ConfigError, StoreError
from motley.core.strict_json import to_json

if TYPE_CHECKING:
    from motley_privacy.privacy_attack import Audit

File = Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment, with [privacy].")]
Trials = Annotated[
    int | None,
    typer.Option(
        "--trials",
        metavar="N",
        help="Trials of each of the two worlds; as many as ten minutes hold unless given.",
    ),
]
Quadratic = Annotated[
    bool,
    typer.Option(
        "--stand-in",
        help="Attack quadratic losses with the same rule, caps and noise: more trials in the same "
        "time.",
    ),
]
CanaryId = Annotated[
    int | None,
    typer.Option(
        "--canary",
        metavar="ID",
        min=0,
        help="The client in which the worlds differ; the one with most samples.",
    ),
]
OwnLabels = Annotated[
    bool,
    typer.Option(
        "--own-labels", help="Leave the canary its labels; they are wrong ones unless given."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Of all trials.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where to write; runs/audit-FILE unless given.",
        callback=in_home,
    ),
]
Clear = Annotated[
    bool,
    typer.Option(
        "--clear-signals",
        help="Let signals leave without noise, for which there is no bound, and attack that.",
    ),
]

FullClip = Annotated[
    bool,
    typer.Option(
        "--full-clip",
        help="Make the canary's updates as long as the clip, which its data may not do.",
    ),
]


def audit_privacy(
    file: File,
    trials: Trials = None,
    seed: Seed = 0,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    clear_signals: Clear = False,
    stand_in: Quadratic = False,
    canary: CanaryId = None,
    own_labels: OwnLabels = False,
    full_clip: FullClip = False,
) -> None:
    """Attack a private experiment in worlds that differ in one client.

    First all that its runs publish is compared in worlds with the same counted releases: what
    differs is known with certainty, and the exit code is 1. Then its epsilon is estimated from many
    runs and compared with its claim.
    """
    from motley.experiments import document
    from motley.experiments.run import as_experiment
    from motley_privacy.privacy_attack import audit, check_trials
    from motley_privacy.replay import replay

    check_data(data)
    own = {"--canary": canary is not None, "--own-labels": own_labels, "--full-clip": full_clip}
    if stand_in and any(own.values()):
        raise ConfigError(
            "the stand-in's canary is its own; leave it out",
            next(key for key, is_set in own.items() if is_set),
        )
    keys = document.override(document.read(file), set or [])
    check_trials(trials)
    folder = out or Path("runs") / f"audit-{file.stem}"
    if folder.exists() and not folder.is_dir():  # told before the trials, not after them
        raise StoreError(f"cannot write into {folder}: it is no folder; choose another --out")
    compared = None if clear_signals else replay(as_experiment(keys), data, client=canary)
    if compared is not None:
        tell("\n".join([*compared.sentences(), ""]))
    done = audit(
        keys=keys,
        trials=trials,
        seed=seed,
        data=data,
        clear=clear_signals,
        say=say,
        quadratic=stand_in,
        canary=canary,
        wrong=not own_labels,
        stretched=full_clip,
    )
    tell("\n".join(done.sentences))
    record = {"replay": None if compared is None else compared.record(), **done.record}
    _write(folder, done, record)
    if compared is not None and compared.differs:
        raise typer.Exit(1)


def _write(folder: Path, done: Audit, record: Mapping[str, Any]) -> None:
    """Write the outcome of an audit and its picture, and tell where."""
    from motley_privacy.audit_picture import audit_picture

    attack = done.attack
    picture = audit_picture(
        near=attack.near,
        far=attack.far,
        threshold=attack.threshold,
        eps_hat=attack.epsilon,
        bound=done.record["bound"],
    )
    texts = {"audit.json": to_json(record, indent=1) + "\n", "audit.svg": picture.svg + "\n"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write into {folder}: {error.strerror}") from None
    for name in texts:
        tell(folder / name)
