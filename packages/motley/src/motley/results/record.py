"""The record of a run, ``run.json``: read whole and checked before anything is made of it.

What is checked is what reports, comparisons and resumed runs rely on; a key that an older version
did not write may be absent, and keys that nothing here knows are left alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from motley.core.errors import DataError
from motley.core.files import changed, no_file
from motley.core.strict_json import restored
from motley.core.untrusted import check_limits, printable, shortened

_MOST_BYTES = 64 * 2**20


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class _Citation(_Part):
    key: str
    bibtex: str
    of: list[str] = []


class _MetricRecord(_Part):
    name: str
    higher_is_better: bool = True
    share: bool = False


class _SamplesRecord(_Part):
    shape: list[Annotated[int, Field(ge=0)]]
    dtype: Literal[
        "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"
    ]
    classes: Annotated[int, Field(ge=1)] | None
    targets: Literal["classes", "positions", "multilabel", "numbers"]
    target_shape: list[Annotated[int, Field(ge=0)]]
    prepared: bool


class _TaskRecord(_Part):
    metric: str = ""
    metrics: list[_MetricRecord] = []
    classes: list[str] = []
    notes: dict[str, Any] = {}
    samples: _SamplesRecord | None = None


class _Every(_Part):
    every: Annotated[int, Field(ge=1)] | None = None


class _StopRecord(_Part):
    rounds: int | None = None
    target: dict[str, float] | None = None


class _SplitRecord(_Part):
    test: str | None = None
    test_fraction: float | None = None
    validation: float | None = None


class _LocalRecord(_Part):
    epochs: int | None = None
    steps: int | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None


class _TunedRecord(_Part):
    values: dict[str, Any]
    method: dict[str, Any] = {}
    trials: int
    run_equivalents: float


class _WorkRecord(_Part):
    step_passes: float
    extra_epochs: float


class _ConfigRecord(_Part):
    algorithm: dict[str, Any] | str | None = None
    local: _LocalRecord | None = None
    tuned: _TunedRecord | None = None
    method: str | None = None
    population: Annotated[int, Field(ge=1, le=10**9)] | None = None
    cohort: int | None = None
    participation: float | None = None
    dtype: Literal["float32", "float64"] = "float32"
    precision: Literal["float32", "bfloat16"] = "float32"
    task: dict[str, Any] | str | None = None
    init: dict[str, Any] | None = None
    evaluate: _Every | None = None
    examine: dict[str, Any] | None = None
    split: _SplitRecord | None = None
    stop: _StopRecord = _StopRecord()


class _Numerics(_Part):
    engine: str = ""


class _LeavesRecord(_Part):
    enrolled: dict[str, Literal["data", "size", "public"]] = {}
    probed: dict[str, Literal["data", "size", "public"]] = {}
    reported: dict[str, Literal["data", "size", "public"]] = {}
    choice: str = ""
    visibility: Literal["sum", "each"] = "sum"
    private: str = ""


class _ArchitecturesRecord(_Part):
    names: list[str]
    parameters: list[int]
    holders: list[Annotated[int, Field(ge=0)]]


class _PrivacyRecord(_Part):
    epsilon: float
    delta: float
    claim: list[str] = []


class _Record(_Part):
    name: str | None = None
    run_id: str = ""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    config: _ConfigRecord = _ConfigRecord()
    numerics: _Numerics = _Numerics()
    versions: dict[str, Any] = {}
    citations: list[_Citation] = []
    data: dict[str, str] = {}
    finished: bool = False
    standstill: str | None = None
    task: _TaskRecord = _TaskRecord()
    parameters: int | None = None
    command: str | None = None
    personal: bool = False
    control: str | None = None
    work: _WorkRecord | None = None
    nodes: dict[str, str] = {}
    privacy: _PrivacyRecord | None = None
    clients: dict[Annotated[str, Field(pattern=r"^[0-9]{1,18}$")], str] | None = None
    leaves: dict[Literal["selector", "algorithm"], _LeavesRecord] = {}
    architectures: _ArchitecturesRecord | None = None


def read_record(path: Path) -> dict[str, Any]:
    """Return the content of a ``run.json`` whose known keys have the right types, without its
    ``digest``, which is checked.

    Raises
    ------
    DataError: it is no file, too large, no JSON, or a key holds something else than such a record;
    the message names the key.
    """
    record = read_json(path)
    if not isinstance(record, dict):
        raise DataError(
            f"{path} holds {type(record).__name__}, not an object with the run's record"
        )
    try:
        full_record = restored(record)
    except ValueError as error:
        raise DataError(f"{path}: {error}; the run's record is damaged") from None
    try:
        _Record.model_validate(full_record)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "missing":
            fault_words = "lacks"
        else:
            fault_words = f"holds {shortened(repr(fault['input']), 80)} under"
        raise DataError(f"{path} {fault_words} {key!r}; the run's record is damaged") from None
    if changed(record):
        raise DataError(
            f"{path} was changed after it was written (its digest differs); restore it, or remove "
            "the key 'digest' to read it as it is"
        )
    full_record.pop("digest", None)
    return full_record


def read_json(path: Path) -> Any:
    """Return the content of a JSON file of a run's folder.

    Raises
    ------
    DataError: it is no file, too large, no JSON in UTF-8, nested too deeply, or holds a number of
    too many digits.
    """
    reason = no_file(path)
    if reason is not None:
        raise DataError(f"{path} {reason}; expected a file of the run")
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES / 2**20:.0f} MiB")
        value = json.loads(raw.decode())
        check_limits(value)
    except RecursionError:
        raise DataError(
            f"{path} cannot be read as JSON (it is nested too deeply); the run's record is damaged"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as JSON ({error}); the run's record is damaged"
        ) from None
    return value


def read_note(text: str, directory: Path) -> dict[str, float]:
    """Return the numbers by name that a row of the table ``rounds`` notes; ``directory``: of the
    run, for the message.

    Raises
    ------
    DataError: the text is something else.
    """
    try:
        note = restored(json.loads(text))
        numbers = all(isinstance(value, int | float) for value in note.values())
    except (ValueError, RecursionError):
        numbers = False
    if not numbers:
        raise DataError(
            f"{directory}: the table rounds holds the notes {shortened(text, 60)!r}; expected "
            "names with numbers"
        )
    return {printable(name): float(value) for name, value in note.items()}
