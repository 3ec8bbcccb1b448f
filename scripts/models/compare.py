"""One random case in plain PyTorch and in every engine, in float64."""

from __future__ import annotations

import dataclasses
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import motley
from models.cases import Case
from motley.algorithms.parts import Phase
from motley.core.errors import MotleyError
from motley.engines.client import phase_key, phase_plan
from motley.engines.engine import Job, Setting
from motley.rounds.evaluation import evaluate
from motley.tasks import from_clients, own_task
from motley.tasks.nn import set_stream

__all__ = ["ENGINES", "Result", "compared"]

ENGINES = ("auto", "sequential", "threads", "batched", "vmap")
ROUNDS = 2
CLOSE = 1e-7
"""Difference of two runs in float64, in the largest change of a weight, that rounding may leave
after all their steps."""


@dataclass(frozen=True)
class Result:
    """What became of a case in an engine.

    Parameters
    ----------
    outcome: ``equal``, ``fell back`` (equal, with another engine than ``auto`` tried first),
    ``refused`` (a sentence), ``told`` (different, and a sentence says so), ``rule`` (equal is not
    asked for: torch refuses a batch of one sample, and Motley's documented rule trains it),
    ``different`` or ``crashed``. text: why.
    """

    outcome: str
    text: str = ""


class _OneSampleError(Exception):
    """Torch refuses a batch of one sample."""


def compared(case: Case, engines: tuple[str, ...] = ENGINES) -> dict[str, Result]:
    """Return the result of a case in each engine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            task = own_task(
                from_clients(case.clients, test=case.clients, **case.kind),
                case.model,
                loss=case.loss,
            )
        except MotleyError as error:
            return {name: Result("refused", _line(error)) for name in engines}
        except Exception:
            return {name: Result("crashed", _last(traceback.format_exc())) for name in engines}
        return {name: _in_engine(case, task, name) for name in engines}


def _in_engine(case: Case, task: Any, name: str) -> Result:
    keys = {
        "task": "own",
        "cohort": len(case.clients),
        "stop": {"rounds": ROUNDS},
        "local": {**case.local, "optimizer": case.optimizer},
        "engine": {"name": name, "threads": 2},
        "dtype": "float64",
        "evaluate": {"every": 1000},
        "guard": "off",  # a model may diverge
    }
    jobs: list[list[Job]] = []
    try:
        loop = motley.build(keys, task=task)
        first = loop.state.server.model
        train = loop.engine.train

        def noting(some: Any, *args: Any) -> Any:
            jobs.append(list(some))
            return train(some, *args)

        loop.engine.train = noting  # type: ignore[method-assign]
        summaries = [loop.step() for _ in range(ROUNDS)]
        last = loop.state.server.model
        federation = loop.setting.task.federation
        evaluation = evaluate(loop.engine, last, federation, True)
        loop.engine.close()
    except MotleyError as error:
        return Result("refused", _line(error))
    except Exception:
        return Result("crashed", _last(traceback.format_exc()))
    setting = loop.setting
    try:
        expected = _by_torch(case, setting, first, jobs)
    except _OneSampleError:
        return Result("rule")
    except Exception:
        return Result("different", f"torch fails, Motley does not: {_last(traceback.format_exc())}")
    accepted = sum(summary.accepted for summary in summaries)
    if accepted < ROUNDS * len(case.clients):
        finite = all(bool(torch.isfinite(step).all()) for step in expected.steps.values())
        return (
            Result("different", f"{accepted} updates were accepted")
            if finite
            else Result("equal", "nothing finite in torch either")
        )
    close = 1e-3 if "cast inside" in case.words else CLOSE  # which rounds to float32
    reason = _unlike(setting, first, last, expected, close) or _unlike_losses(
        evaluation, expected, close
    )
    if reason and "kept" in federation.notes:
        return Result("told", federation.notes["kept"])
    if reason and not _by_rounding(case, setting, first, jobs, expected, last):
        return Result("different", f"{loop.engine.name}: {reason}")
    return Result("fell back" if "engine" in federation.notes else "equal", loop.engine.name)


@dataclass
class _Expected:
    """What plain PyTorch leads to: changes of parameters, and buffers, by name; the loss of each
    client's samples in evaluation mode."""

    steps: dict[str, Tensor]
    buffers: dict[str, Tensor]
    losses: list[float]


def _by_torch(case: Case, setting: Setting, first: Any, rounds: list[list[Job]]) -> _Expected:
    layout = setting.task.layout
    model = {entry.name: first.x[entry.slice].view(entry.shape).clone() for entry in layout}
    start = dict(model)
    module = _fresh(case, setting)
    buffers = {
        name: value.detach().clone()
        for name, value in module.named_buffers()
        if name in {entry.name for entry in (*layout.buffers, *layout.counters)}
    }
    for jobs in rounds:
        weight = {job.client: len(case.clients[job.client][1]) for job in jobs}
        total = sum(weight.values())
        outcomes = [_trained(case, setting, model, buffers, job) for job in jobs]
        shares = [weight[job.client] / total for job in jobs]
        model = {
            name: sum(a * after[name] for a, (after, _) in zip(shares, outcomes, strict=True))
            for name in model
        }
        joined = {}
        for name, value in buffers.items():
            each = [held[name] for _, held in outcomes]
            if value.is_floating_point():
                mean = sum(a * one.double() for a, one in zip(shares, each, strict=True))
                same = torch.stack([one.double() for one in each])
                fixed = (same == value.double()).all(0)
                joined[name] = torch.where(fixed, value.double(), mean).to(value.dtype)
            else:
                joined[name] = torch.stack(each).amax(0)
        buffers = joined
    losses = []
    for x, y in case.clients:
        module = _filled(_fresh(case, setting), model, buffers).eval()
        with torch.no_grad():
            try:
                outputs = module(_inputs(x))
                losses.append(float(case.plain_loss(outputs, _targets(y, case)).mean()))
            except ValueError:
                if len(x) == 1:
                    raise _OneSampleError from None
                raise
    return _Expected({name: model[name] - start[name] for name in model}, buffers, losses)


def _fresh(case: Case, setting: Setting) -> nn.Module:
    """Return a module with torch's own layers, or Motley's where masks are drawn."""
    drops = any(word.startswith("dropout") for word in case.words)
    module = setting.task.model() if drops else case.model()
    return module.double()


def _filled(
    module: nn.Module, model: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
) -> nn.Module:
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in model:
                parameter.copy_(model[name])
        for name, buffer in module.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])
    return module


def _inputs(x: np.ndarray) -> Tensor:
    values = torch.from_numpy(np.array(x))
    return values if values.dtype == torch.int64 else values.double()


def _targets(y: np.ndarray, case: Case) -> Tensor:
    values = torch.from_numpy(np.array(y))
    return values.double() if case.kind else values


def _optimizer(case: Case, module: nn.Module) -> torch.optim.Optimizer:
    options = {key: value for key, value in case.optimizer.items() if key != "name"}
    kinds: Mapping[str, Any] = {
        "sgd": torch.optim.SGD,
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    moving = [p for p in module.parameters() if p.requires_grad]
    options.setdefault("weight_decay", 0.0)
    made: torch.optim.Optimizer = kinds[case.optimizer["name"]](moving, **options)
    return made


def _batches(case: Case, setting: Setting, job: Job) -> Iterator[tuple[Tensor, Tensor]]:
    x, y = case.clients[job.client]
    plan = phase_plan(setting, job, Phase(), len(y))
    for step in range(len(plan)):
        rows = plan[step]
        yield _inputs(x[rows]), _targets(y[rows], case)


def _trained(
    case: Case,
    setting: Setting,
    model: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    job: Job,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    module = _filled(_fresh(case, setting), model, buffers).train()
    set_stream(module, phase_key(setting, "dropout", job, Phase()))
    optimizer = _optimizer(case, module)
    for inputs, targets in _batches(case, setting, job):
        optimizer.zero_grad()
        try:
            loss = case.plain_loss(module(inputs), targets).mean()
        except ValueError:
            if len(inputs) == 1:
                raise _OneSampleError from None
            raise
        loss.backward()
        for parameter in module.parameters():  # no gradient is one of zeros
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    now = dict(module.named_parameters())
    held = dict(module.named_buffers())
    return (
        {name: now[name].detach().clone() for name in model},
        {name: held[name].detach().clone() for name in buffers},
    )


def _unlike(setting: Setting, first: Any, last: Any, expected: _Expected, close: float) -> str:
    largest = max((_size(step) for step in expected.steps.values()), default=0.0)
    for entry in setting.task.layout:
        step = (last.x - first.x)[entry.slice].view(entry.shape)
        wanted = expected.steps[entry.name]
        if not _close(step, wanted, close * largest + 1e-12):
            return f"{entry.name} moved by {_size(step):.3g}, in torch by {_size(wanted):.3g}"
    layout = setting.task.layout
    for entries, values in ((layout.buffers, last.buffers), (layout.counters, last.counters)):
        for entry in entries:
            value = values[entry.slice].view(entry.shape)
            wanted = expected.buffers[entry.name]
            if not _close(value, wanted, close * max(_size(wanted), 1.0)):
                return f"buffer {entry.name} is {_size(value):.3g}, in torch {_size(wanted):.3g}"
    return ""


def _by_rounding(
    case: Case,
    setting: Setting,
    first: Any,
    jobs: list[list[Job]],
    expected: _Expected,
    last: Any,
) -> bool:
    """Return whether weights differ from those of torch by no more than ten times as much as these
    change where the first ones change in the thirteenth digit: a variance of 0, or a kink."""
    draws = torch.Generator().manual_seed(0)
    own = 0.0
    for _ in range(8):
        noise = torch.randn(first.x.shape, generator=draws, dtype=first.x.dtype)
        # also what is 0 moves: the kink of a ReLU may lie there
        nearby = dataclasses.replace(first, x=first.x * (1 + 1e-13 * noise) + 1e-14 * noise)
        moved = _by_torch(case, setting, nearby, jobs)
        changes = [_size(step - moved.steps[name]) for name, step in expected.steps.items()]
        own = max(own, *changes)
    layout = setting.task.layout
    largest = max(
        _size((last.x - first.x)[entry.slice].view(entry.shape) - expected.steps[entry.name])
        for entry in layout
    )
    return 0 < largest <= 10 * own


def _unlike_losses(evaluation: Any, expected: _Expected, close: float) -> str:
    rows = evaluation.rows
    scopes = [i for i, scope in enumerate(rows["scope"]) if scope == "client"]
    measured = torch.tensor([float(rows["loss"][i]) for i in scopes], dtype=torch.float64)
    wanted = torch.tensor(expected.losses, dtype=torch.float64)
    if _close(measured, wanted, close * max(_size(wanted), 1.0)):
        return ""
    return f"losses of clients are {measured.tolist()}, in torch {wanted.tolist()}"


def _close(value: Tensor, wanted: Tensor, tolerance: float) -> bool:
    value, wanted = value.detach().double(), wanted.detach().double()
    if value.shape != wanted.shape:
        return False
    odd = ~wanted.isfinite()
    if not torch.equal(odd, ~value.isfinite()):
        return False
    return not value.numel() or _size((value - wanted)[~odd]) <= tolerance


def _size(value: Tensor) -> float:
    finite = value.detach().double()
    finite = finite[finite.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    places = [line.strip() for line in lines if line.strip().startswith("File")][-1:]
    return " ".join([lines[-1], *places])
