"""The commands ``motley twin`` and ``motley what-if``: make the twin of a recorded federation, and
ask it about rules that were never tried."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from motley.commands.shared_options import (
    Data,
    Jobs,
    Out,
    Settings,
    check_data,
    in_home,
    raise_failures,
    say,
    seeds_of,
    tell,
    wide_console,
)

RunDir = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_DIR", help="A simulation, a deployment, or a Flower strategy's out=."
    ),
]
TwinFile = Annotated[Path, typer.Argument(metavar="twin.toml", help="What motley twin wrote.")]
TwinOut = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FILE.toml",
        help="The experiment; its tables come beside it.",
        callback=in_home,
    ),
]
Over = Annotated[
    list[str] | None, typer.Option("--over", metavar="KEY=A,B", help="Values of a key.")
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds", metavar="0,1,2", help="Federations that are drawn; ten without the recorded one."
    ),
]
Target = Annotated[
    float | None,
    typer.Option("--target", metavar="0.9", help="How long until the headline metric is this."),
]


def twin(where: RunDir, out: TwinOut = Path("twin.toml"), data: Data = None) -> None:
    """Make the twin of recorded clients: an experiment with their speeds, links and absences."""
    from motley_advice.twin.make import twin as make_twin

    check_data(data)
    made_twin = make_twin(where, out, data)
    for sentence in made_twin.fits:
        tell(sentence)
    tell("What cannot be known from these records:")
    for sentence in made_twin.unknown:
        tell(f"- {sentence}")
    tell(f"twin: {made_twin.path}")


def what_if(
    file: TwinFile,
    over: Over = None,
    seeds: Seeds = None,
    target: Target = None,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    jobs: Jobs = 1,
) -> None:
    """Predict time and traffic of rules that a recorded federation never tried, after the twin has
    shown whether it gives back what was recorded."""
    from motley.core.files import replacing
    from motley.core.strict_json import to_json
    from motley.experiments.sweep import parse_axes
    from motley.results.terminal import block_table
    from motley_advice.twin.what_if import what_if as predict

    check_data(data)
    forecast = predict(
        file,
        parse_axes(over),
        seeds_of(seeds),
        target=target,
        out=out,
        data=data,
        overrides=set or [],
        progress=True,
        jobs=jobs,
    )
    console = wide_console()
    console.print(block_table(forecast.table(), "predicted"))
    say(forecast.sentence())
    path = forecast.directory / "prediction.json"
    with replacing(path) as record:
        record.write((to_json(forecast.record(), indent=1) + "\n").encode())
    tell(f"prediction: {path}")
    raise_failures(forecast.failures, len(forecast.rules))
