"""The commands ``motley privacy-ledger`` and ``motley forget-noise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motley.commands.shared_options import tell
from motley.core.errors import ConfigError, StoreError


def privacy_ledger(
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="The name or path of a data set.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="EPSILON", min=0.0, help="Let no run go beyond it."),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="At which epsilons are shown.")] = 1e-5,
) -> None:
    """Show what all private runs so far release of each data set together, or set its budget."""
    from motley_privacy.all_runs import ledger_lines, set_budget

    if budget is not None:
        if data is None:
            raise ConfigError("whose budget? give the data set's name or path", "--budget")
        set_budget(data, budget, delta)
    tell("\n".join(ledger_lines(data, delta)))


def forget_noise(
    where: Annotated[Path, typer.Argument(metavar="DIR", help="A run, or a folder of runs.")],
) -> None:
    """Delete the secrets from which private runs drew their noise, and their checkpoints: nobody
    can take the noise away then, and the runs cannot go on."""
    from motley.core.files import SECRET
    from motley.experiments.store import RunFolder
    from motley_privacy.run_secret import forget_secret, is_seeded

    folders = sorted(path.parent for path in where.rglob(SECRET))
    seeded = [folder for folder in folders if is_seeded(folder)]
    for folder in folders or [where]:
        if folder in seeded:
            continue
        with RunFolder(folder).lock():
            forget_secret(folder)
        tell(
            f"{folder}: the secret of the noise and the checkpoints are deleted; tables and models "
            "stay"
        )
    if seeded:
        raise StoreError(
            f"the noise of {seeded[0]} is made from privacy.noise_seed, which its run.json holds, "
            "and cannot be forgotten; leave noise_seed out and run it again"
        )
