"""Let a client app report to a selector by one line: it enrols, says what it can report, and
measures what the selector wants.

    app = with_reports(ClientApp())

The app's own functions stay as they are. Around its train function, losses and steps of PyTorch are
measured; a probe before a choice calls the same function without steps. This module does not import
torch: Flower starts a process for every message.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

from motley.core.errors import ConfigError
from motley_flower.client_failures import text_stays
from motley_flower.messages import flower
from motley_flower.node_config import client_of_node
from motley_flower.node_registry import ENROL, EXAMPLES, RECORD
from motley_flower.strategy.measured_candidates import PROBE
from motley_flower.strategy.query_answers import counts_of, measured, wanted

MEASURED_BEFORE = frozenset({"loss", "robust_loss", "grad_norm", "val_loss"})
"""Signals of a probe that are measured around PyTorch code; ``val_loss`` by the app's evaluate
function, the others by its train function."""
MEASURED_IN_TRAINING = frozenset(
    {
        "loss",
        "loss_rms",
        "learning_rates",
        "local_steps",
        "arrival_loss",
        "robust_loss",
        "grad_norm",
    }
)
"""Signals of a reply that are measured around PyTorch code."""
_OLDER_METRICS = "fitres.metrics"
"""The record of the numbers that ``fit`` of an app of a ``client_fn`` returns."""
_BEFORE_TRAINING = {"arrival_loss": "loss", "robust_loss": "robust_loss", "grad_norm": "grad_norm"}


def with_reports(
    app: Any,
    *,
    reports: Collection[str] = (),
    examples: Callable[[Any], int] | None = None,
    labels: Callable[[Any], Iterable[int]] | None = None,
    classes: int | None = None,
) -> Any:
    """Return a client app like this one that enrols its node and reports what a selector wants; one
    line in the client app.

    Its functions may be registered before or after. Losses, steps and norms are measured around
    PyTorch's loss functions and optimizers, if the app imports torch at its top; a model, its
    training and its random numbers stay the same, bit for bit. For signals of the received model
    (``loss`` before a choice, ``arrival_loss``) the train function passes once over its data
    without steps, so what else it does, such as writing files, happens then, too.

    Parameters
    ----------
    app: Flower's ClientApp.
    reports: signals that the app's own train function puts into its reply's MetricRecord; they are
    not measured.
    examples: returns the number of training samples, given the Context; None: the server takes it
    from replies.
    labels: returns the labels of the training samples, from 0, given the Context; for
    ``label_histogram``.
    classes: how many classes there are.

    Raises
    ------
    ConfigError: an object that is no client app, or labels without classes.
    """
    if isinstance(app, type) or not all(
        callable(getattr(app, name, None)) for name in ("train", "query", "evaluate")
    ):
        raise ConfigError(
            f"got {app!r:.80}; expected a Flower client app, with_reports(ClientApp())"
        )
    if (labels is None) != (classes is None):
        raise ConfigError(
            "labels and their number of classes belong together; give both, or neither",
            key="classes",
        )
    if isinstance(app, _ReportingApp):
        raise ConfigError("this client app reports already; call with_reports once")
    kind: Any = type(f"Reporting{type(app).__name__}", (_ReportingApp, type(app)), {})
    reporting = kind.__new__(kind)
    vars(reporting).update(vars(app))
    reporting.motley_reports = frozenset(reports)
    reporting.motley_data = examples, labels, classes
    return reporting


class _ReportingApp:
    """The call of a client app that reports, put before its own."""

    motley_reports: frozenset[str]
    motley_data: tuple[
        Callable[[Any], int] | None, Callable[[Any], Iterable[int]] | None, int | None
    ]

    def __call__(self, message: Any, context: Any) -> Any:
        """Answer enrolment and probes; let the app do anything else, and measure its training. Of
        what is raised the text stays here."""
        with text_stays():
            return self._answered(message, context)

    def _answered(self, message: Any, context: Any) -> Any:
        kind = message.metadata.message_type
        if kind == ENROL:
            return self._enrolled(message, context)
        if kind == PROBE:
            return self._probed(message, context)
        if kind.partition(".")[0] == "train" and RECORD in message.content:
            return self._trained(message, context)
        return super().__call__(message, context)  # type: ignore[misc]

    def _enrolled(self, message: Any, context: Any) -> Any:
        app = flower()
        query = message.content[RECORD]
        examples, labels, classes = self.motley_data
        key = query["key"]
        enrolment = dict[str, Any]()
        if key in context.node_config:
            enrolment[key] = client_of_node(context.node_config, key)
        if labels is not None and classes is not None:
            counts = counts_of(labels(context), classes)
            enrolment[EXAMPLES] = sum(counts)
            if "label_histogram" in query["wanted"].split(","):
                enrolment["label_histogram"] = counts
        if examples is not None:
            enrolment[EXAMPLES] = int(examples(context))
        # of a client_fn, which gets no config at a probe
        torch = "torch" in sys.modules
        older = vars(self).get("_call") is not None
        declared = {
            "probed": ",".join(sorted(MEASURED_BEFORE if torch and not older else ())),
            "reported": ",".join(
                sorted(self.motley_reports | (MEASURED_IN_TRAINING if torch else frozenset()))
            ),
        }
        content = {"enrolment": app.MetricRecord(enrolment), RECORD: app.ConfigRecord(declared)}
        return app.Message(app.RecordDict(content), reply_to=message)

    def _probed(self, message: Any, context: Any) -> Any:
        requested = wanted(message)
        values: dict[str, float] = {}
        training = {name: batches for name, batches in requested.items() if name != "val_loss"}
        if training:
            limits = [batches or 0 for batches in training.values()]
            values |= self._without_steps(
                message, context, training, max(limits) if all(limits) else None
            )
        if "val_loss" in requested:
            values |= self._validated(message, context)
        _refuse_unmeasured(requested, values)
        return measured(message, {name: values[name] for name in requested})

    def _validated(self, message: Any, context: Any) -> dict[str, float]:
        """Return the loss that the app's evaluate function computes; nothing where it computes
        none."""
        from motley_flower.strategy.torch_measures import LossMeter

        with LossMeter(trains=False) as meter:
            try:
                super().__call__(_copy(message, "evaluate"), context)  # type: ignore[misc]
            except ValueError as error:
                if not str(error).startswith("No evaluate function registered"):
                    raise
                raise ConfigError(
                    "val_loss is measured by the app's evaluate function, and this app has none; "
                    "expected @app.evaluate()"
                ) from None
        return {"val_loss": meter.signals()["loss"]} if meter.samples else {}

    def _without_steps(
        self, message: Any, context: Any, names: Iterable[str], batches: int | None = None
    ) -> dict[str, float]:
        """Return these signals of the received model on the training samples."""
        from motley_flower.strategy.torch_measures import LossMeter, without_steps

        meter = LossMeter(
            robust="robust_loss" in names, gradients="grad_norm" in names, batches=batches
        )

        def train() -> Any:
            # What is measured must leave no trace in the app: it may count rounds in its context.
            held = copy.deepcopy(context)
            return super(_ReportingApp, self).__call__(_copy(message, "train"), held)  # type: ignore[misc]

        return without_steps(train, meter)

    def _trained(self, message: Any, context: Any) -> Any:
        requested = [name for name in str(message.content[RECORD]["wanted"]).split(",") if name]
        missing = [name for name in requested if name not in self.motley_reports]
        message = _copy(message, message.metadata.message_type)
        if "torch" not in sys.modules:  # and nothing but the app's own reports was declared
            return super().__call__(message, context)  # type: ignore[misc]
        from motley_flower.strategy.torch_measures import LossMeter

        values: dict[str, float] = {}
        before = {name: _BEFORE_TRAINING[name] for name in missing if name in _BEFORE_TRAINING}
        if before:
            before_steps = self._without_steps(message, context, before.values())
            values |= {
                name: before_steps[source]
                for name, source in before.items()
                if source in before_steps
            }
        with LossMeter() as meter:
            reply = super().__call__(message, context)  # type: ignore[misc]
        values = {**meter.signals(), **values}
        records = [] if reply.has_error() else list(reply.content.metric_records.values())
        if not reply.has_error() and _OLDER_METRICS in reply.content:
            records = [reply.content[_OLDER_METRICS]]
        if len(records) == 1:
            _refuse_unmeasured(set(missing) - {"local_steps"}, {**values, **records[0]})
            for name in ["loss", *missing]:  # the loss is for the table
                if name in values and name not in records[0]:
                    records[0][name] = values[name]
        return reply


def _copy(message: Any, kind: str) -> Any:
    """Return a message of this kind with the same records, but for Motley's."""
    copied = copy.deepcopy(message)
    copied.metadata.message_type = kind
    copied.content.pop(RECORD, None)
    return copied


def _refuse_unmeasured(names: Iterable[str], values: Collection[str]) -> None:
    lost = sorted(name for name in names if name not in values)
    if lost:
        raise ConfigError(
            f"with_reports could not measure {', '.join(lost)}: the app called none of PyTorch's "
            f"loss functions or optimizers; put {lost[0]!r} into the reply's MetricRecord, "
            f"with_reports(app, reports={lost!r})"
        )
