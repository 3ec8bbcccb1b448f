"""The command ``motley``.

Exit codes: 0 done; 2 the user's mistake, in one sentence; 1 ours (``motley --debug`` shows the
traceback); 130 interrupted. Everything heavy is imported inside the commands, so that
``motley --help`` is quick.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from motley.commands import watch as watch_command
from motley.commands.shared_options import (
    Against,
    AllowImport,
    Data,
    JobsOrChosen,
    OtherNumerics,
    Out,
    PlainIntervals,
    RayCluster,
    Settings,
    Target,
    Where,
    check_data,
    import_from_here,
    raise_failures,
    say,
    seeds_of,
    show_table,
    tell,
    wide_console,
)
from motley.core.errors import StoreError, UserError
from motley.core.extensions import (
    COMES_WITH,
    distribution_missing,
    extension,
    extensions,
    required_extension,
)
from motley.core.modules_loading import modules_loading
from motley.core.own_code import in_one_line, own_code_in
from motley.core.untrusted import printable, shortened

if TYPE_CHECKING:
    from motley.results.load import Run

EXAMPLES = """\b
Examples:
  motley run first.toml --set seed=1        one run: tables and a report
  motley compare first.toml --over selector.name=uniform,oort --seeds 0,1,2
  motley compare first.toml --over algorithm.name=fedavg,scaffold --controls
  motley tune first.toml --over local.optimizer.lr=log:0.001..1 --per algorithm.name=fedavg,scaffold
  motley explain mine.toml theirs.toml      why two results differ, and how much each cause carries
  motley report runs/first                  the report of a folder of runs
  motley inspect first.toml                 how its clients differ, and the experiment's pitfalls
  motley list selectors                     names, options, what leaves a client
  motley reproduce flash --scale smoke      a paper's tables and figures
  motley --install-completion               complete commands in this shell

motley COMMAND --help has the options of a command."""
"""What ``motley --help`` ends with; the first character keeps the lines as they are."""

app = typer.Typer(
    name="motley",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    epilog=EXAMPLES,
)

# Typer carries its own copy of click in some versions and the real one in others: ask it for the
# class.
_UsageError: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)

_FAILING = ("strict", "surrogateescape")
"""How a stream treats a letter that its encoding lacks, where it raises an error."""
_LONGEST = 1000
"""Characters of an error message; the middle of a longer one is left out."""


_BESIDE = (
    "audit-privacy",
    "data",
    "deployment",
    "explain",
    "forget-noise",
    "inspect",
    "privacy-ledger",
    "report",
    "reproduce",
    "tune",
    "twin",
    "what-if",
)
"""Commands of Motley's own distributions, which are told of where they are missing."""


def _missing(name: str) -> Callable[[], None]:
    """Return a command that says which distribution has it."""

    def missing() -> None:
        required_extension("command", name)

    return missing


def _add_commands(app: typer.Typer) -> None:
    """Add the commands of the distributions beside this one; one that is missing says where it
    is."""
    for name in sorted({*_BESIDE, *extensions("command")}):
        command = extension("command", name)
        if command is None:
            about = f"Comes with {COMES_WITH[name]}, which is not installed."
            lenient = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(name, help=about, context_settings=lenient, add_help_option=False)(
                _missing(name)
            )
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


File = Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")]
WithReport = Annotated[bool, typer.Option("--report/--no-report", help="Write the HTML report.")]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # names and tables hold letters that a terminal of another encoding than UTF-8 lacks
        if isinstance(stream, TextIOWrapper) and stream.errors in _FAILING:
            stream.reconfigure(errors="backslashreplace")
    code = call(sys.argv[1:] if argv is None else argv)
    gc.freeze()  # or Python looks through all modules for cycles before it ends, half a second
    sys.exit(code)


def call(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    command = _command()
    with warnings.catch_warnings():
        warnings.showwarning = partial(_note, set())
        try:
            code = command.main(args=list(argv), prog_name="motley", standalone_mode=False)
        except _UsageError as error:
            return _fail(f"{_usage(error, argv)}; see: motley {_subcommand(argv)}--help")
        except UserError as error:
            return _fail(str(error))
        except MemoryError as error:
            return _fail(
                f"there is not enough memory for this experiment ({error}); choose a smaller "
                "model, population or batch"
            )
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except Exception as error:
            if sentence := distribution_missing(error):
                return _fail(sentence)
            own_code = own_code_in(error)
            if own_code is not None:
                return _theirs(error, own_code, debug="--debug" in argv)
            return _ours(error, debug="--debug" in argv)
    if code == 130:
        say("interrupted; what was finished is kept: " + _how_to_go_on(argv))
    return code if isinstance(code, int) else 0


@cache
def _command() -> Any:
    """Return the command with its subcommands, read from the functions above once."""
    return typer.main.get_command(app)


def _fail(text: str) -> int:
    say(shortened(" ".join(text.split()), _LONGEST))
    return 2


def _usage(error: Exception, argv: Sequence[str]) -> str:
    """Return what is wrong with a command, and how several files are compared."""
    sentence = _sentence(error)
    if _subcommand(argv) == "compare " and "extra argument" in sentence:
        sentence += (
            "; compare takes one file and its variants (--over algorithm.name=fedavg,scaffold); "
            "run files of their own each, and motley report runs puts them into one page"
        )
    return sentence


def _sentence(error: Exception) -> str:
    message = error.format_message() if isinstance(error, _UsageError) else str(error)  # type: ignore[attr-defined]
    return message.strip().rstrip(".")


def _subcommand(argv: Sequence[str]) -> str:
    names = _command().commands
    return next((f"{word} " for word in argv if word in names), "")


def _theirs(error: Exception, own_code: str, debug: bool) -> int:
    """Say which code of the user's raised an error."""
    if debug:
        tell("".join(traceback.format_exception(error)), err=True)
    reason = shortened(in_one_line(error), _LONGEST)
    more = "" if debug else "; motley --debug shows the traceback"
    say(f"{reason}; {own_code}{more}")
    return 2


def _ours(error: Exception, debug: bool) -> int:
    """Say that the error is Motley's, and keep its traceback: it is never passed off as a mistake
    of the user's."""
    text = "".join(traceback.format_exception(error))
    reason = shortened(in_one_line(error), _LONGEST)
    try:
        if debug:
            raise OSError
        with tempfile.NamedTemporaryFile(
            "w", prefix="motley-", suffix=".log", delete=False, encoding="utf-8"
        ) as file:
            file.write(printable(text))
        where = f"{file.name}, which holds the traceback (motley --debug shows it)"
    except OSError:  # no room for it
        tell(text, err=True)
        where = "the traceback above"
    say(f"this is a fault of Motley, not yours: {reason}; please report it with {where}")
    return 1


def _how_to_go_on(argv: Sequence[str]) -> str:
    if "run" in argv and "--resume" not in argv:
        return "go on with the same command and --resume"
    return "the same command goes on where it stopped"


def _note(
    shown: set[str],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if str(message) not in shown:  # the runs of a comparison would all say it
        shown.add(str(message))
        say(f"note: {message}")


@app.callback(invoke_without_command=True)
def motley(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error that is ours.")
    ] = False,
) -> None:
    """Federated learning where clients differ."""
    from motley import __version__

    if version:
        typer.echo(f"motley {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    file: File,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with an interrupted run, or with a finished one under a later stop.",
        ),
    ] = False,
    allow_other_numerics: OtherNumerics = False,
    allow_import: AllowImport = False,
    report: WithReport = True,
) -> None:
    """Run one experiment."""
    with modules_loading():
        from motley.experiments.run import run as run_experiment

    check_data(data)
    done = run_experiment(
        file,
        out=out,
        resume=resume,
        data=data,
        overrides=set or [],
        progress=True,
        allow_other_numerics=allow_other_numerics,
        allow_import=import_from_here(allow_import),
    )
    started = done.meta.get("task", {}).get("notes", {}).get("initial weights")
    if started:
        say(f"initial weights: {started}")
    _show([done], done.directory, report)


@app.command()
def compare(
    file: File,
    over: Annotated[
        list[str] | None, typer.Option("--over", metavar="KEY=A,B", help="Values of a key.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="0,1,2", help="Values of the seed.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="NAME", help="This [[grid]] of the file only."),
    ] = None,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    target: Target = None,
    against: Against = None,
    plain_intervals: PlainIntervals = False,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="Add runs of the reference with each method's settings: what is left at equal X.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run the controls also where they are more than 100.")
    ] = False,
    skip_refused: Annotated[
        bool,
        typer.Option("--skip-refused", help="Go on without the variants that cannot run."),
    ] = False,
    on_ray: RayCluster = None,
    jobs: JobsOrChosen = None,
    allow_other_numerics: OtherNumerics = False,
    allow_import: AllowImport = False,
    report: WithReport = True,
) -> None:
    """Run an experiment in several variants and compare them. What is finished already is not run
    again; what differs beside the method is named."""
    # a target of losses reads the data, and a user's module may do anything
    plain = on_ray is None and not allow_import and (target is None or target <= 1)
    check_data(data)
    showing = None
    if plain and (jobs is None or jobs > 0):
        from motley.commands.shown_again import Showing

        options = {
            "over": over,
            "seeds": seeds,
            "grid": grid,
            "target": target,
            "against": against,
            "plain_intervals": plain_intervals,
            "controls": controls,
            "yes": yes,
            "skip_refused": skip_refused,
            "report": report,
        }
        showing = Showing(file, overrides=set or [], out=out, data=data, options=options)
        if showing.again():
            return
    new = plain and "torch" not in sys.modules
    with modules_loading():
        from motley.experiments.parallel import on_free_core, workers_forked
        from motley.experiments.sweep import check_target, parse_axes
        from motley.experiments.sweep import compare as compare_experiments
        from motley.results.written_report import load_report

    with nullcontext() if showing is None else showing.noted():
        with workers_forked(safe=new), on_free_core(load_report) if report else nullcontext():
            if target is not None:
                check_target(
                    experiment=file,
                    target=target,
                    data=data,
                    overrides=set or [],
                    allow_import=import_from_here(allow_import),
                )
            values = parse_axes(over)
            comparison = compare_experiments(
                file,
                values,
                seeds_of(seeds),
                out=out,
                data=data,
                overrides=set or [],
                progress=True,
                on_ray=on_ray,
                jobs=jobs,
                allow_import=import_from_here(allow_import),
                grids=grid,
                allow_other_numerics=allow_other_numerics,
                against=against,
                controls=controls,
                many_controls=yes,
                skip_refused=skip_refused,
                say=_note_line if showing is None else showing.note,
            )
        if showing is not None:
            showing.ran(comparison)
        if comparison.runs:
            _show(
                comparison.runs,
                comparison.directory,
                report,
                target,
                controls=comparison.controls,
                plain_intervals=plain_intervals,
            )
            _name_confounds(comparison.runs, comparison.controls, with_controls=controls)
    raise_failures(comparison.failures, len(comparison.runs))
    if showing is not None:
        showing.keep(comparison, with_report=report)


def _note_line(line: str) -> None:
    say(f"note: {line}")


def _show(
    runs: Sequence[Run],
    directory: Path,
    with_report: bool,
    target: float | None = None,
    controls: Sequence[Run] = (),
    plain_intervals: bool = False,
) -> None:
    """Print the summary and the path of the report."""
    from motley.results.disclosed import claims
    from motley.results.gains import missing_local
    from motley.results.labels import group_runs, label_runs
    from motley.results.measures import costs
    from motley.results.method_rows import not_compared
    from motley.results.model_health import model_health
    from motley.results.terminal import terminal_tables

    console = wide_console()
    for table in terminal_tables([*runs, *controls], target, plain_intervals):
        show_table(console, table)
    for block in claims(group_runs(runs)):
        tell("\n".join((block.title, *(f"- {line}" for line in block.items))))
    if any(run.meta.get("personal") for run in runs) and (
        advice := missing_local(group_runs(runs))
    ):
        say(f"note: {advice}")
    if alone := not_compared(group_runs(runs)):
        say(f"note: {alone}")
    rejected = sum(costs(run).rejected for run in runs)
    if rejected:
        reasons = "not finite, of the wrong shape, or part of a refused step"
        say(f"note: {rejected} updates were rejected ({reasons}): paid for, not used")
    for run, label in zip(runs, label_runs(runs), strict=True):
        for trouble in model_health(run):
            say(f"note: {label} seed {run.seed}: {trouble}")
    if with_report:
        from motley.results.written_report import write_report

        page = write_report(
            [*runs, *controls],
            directory / "report.html",
            target,
            plain_intervals=plain_intervals,
        )
        if page is not None:
            tell(f"report: {page}")
    tell(f"tables: {directory}")


def _name_confounds(runs: Sequence[Run], controls: Sequence[Run], with_controls: bool) -> None:
    """Say what may explain a difference and is not in the comparison."""
    from motley.results.besides import Besides
    from motley.results.labels import group_runs

    besides = Besides(group_runs(runs), controls)
    for line in besides.sentences():
        say(f"note: {line}")
    if besides.lacks_controls and not with_controls:
        say("note: motley compare --controls runs the reference with these settings, too")


_add_commands(app)
app.command()(watch_command.watch)


def _kinds(incomplete: str) -> list[str]:
    """Return the kinds of component whose names begin so, for the shell's completion."""
    from motley.experiments import registry

    return [kind for kind in (*registry.KINDS, "preset", "recipe") if kind.startswith(incomplete)]


@app.command("list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="selectors, partitions, ..., presets, recipes.",
            autocompletion=_kinds,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the components of one kind, the presets or the recipes; without a kind, list the
    kinds."""
    from motley.core.strict_json import finite
    from motley.experiments import registry

    if kind:
        rows = _listing(kind)
    else:
        rows = [{"name": name} for name in (*registry.KINDS, "preset", "recipe")]
    if as_json:
        typer.echo(json.dumps([finite(row) for row in rows], indent=1, allow_nan=False))
    else:
        typer.echo("\n".join(line for row in rows for line in _lines(row)))


def _listing(kind: str) -> list[dict[str, Any]]:
    from motley.experiments import document, registry

    known_kind = registry.kind_of(kind, ("preset", "recipe"))
    if known_kind == "recipe":
        rows: list[dict[str, Any]] = required_extension("listing", "recipe")()
        return rows
    return document.preset_rows() if known_kind == "preset" else registry.listing(known_kind)


def _lines(row: Mapping[str, Any]) -> list[str]:
    revealed = f"  [reveals {row['reveals']}]" if row.get("reveals") else ""
    lines = [f"{row['name']:<22} {row.get('about', '')}{revealed}".rstrip()]
    if row.get("leaves"):
        from motley.results.disclosed import leaving

        lines += [f"    {quantity:<20} {sentence}" for quantity, sentence in leaving(row["leaves"])]
    if row.get("code"):
        lines.append(f"    {'public code':<20} {row['code']}")
    for option in row.get("options", []):
        default = "must be given" if option["required"] else f"default {_shown(option['default'])}"
        lines.append(f"    {option['name']:<20} {option['accepts']}; {default}")
    return lines


def _shown(default: Any) -> str:
    """Return a default in words; a number as TOML has it, which may be ``inf``."""
    return str(default) if isinstance(default, float) else json.dumps(default)


@app.command()
def cite(where: Where) -> None:
    """Print the BibTeX of the papers behind what a run, or a folder of runs, used."""
    from motley.results.load import citations, load_all

    tell("\n\n".join(citations(load_all(where))))


@app.command()
def new(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="selector, algorithm, server, aggregator, stage, task, partition, compressor, "
            "recipe",
        ),
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lower case with underscores, e.g. my_rule.")
    ],
    package: Annotated[
        bool, typer.Option("--package", help="A folder that others can install.")
    ] = False,
) -> None:
    """Write the skeleton of a component of your own, with its test, or of a recipe for somebody's
    table, into the working directory."""
    from motley.experiments.skeleton import skeleton

    files = {Path(path): text for path, text in skeleton(kind, name, package).items()}
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise StoreError(f"{taken[0]} is there already and is not overwritten; choose another name")
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from None
        tell(path)
