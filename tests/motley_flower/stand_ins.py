"""Stand-ins for the few words of Flower's Message API that the adapter uses, for environments
without Flower.

They keep Flower's behaviour where a test could tell: what a message's constructor takes, typed
records, arrays as ``np.save`` bytes, errors in place of contents, ``FedAvg`` that samples with the
global generator and refuses inconsistent replies. With Flower installed the same tests run on the
real words (``make test-flower``), so a stand-in that differs is found.
"""

from __future__ import annotations

import io
import random
import sys
import time
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Array:
    dtype: str | np.ndarray
    shape: tuple[int, ...] = ()
    stype: str = ""
    data: bytes = b""

    def __post_init__(self):
        if isinstance(self.dtype, np.ndarray):
            array = self.dtype
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            self.dtype = str(array.dtype)
            self.shape = array.shape
            self.stype = "numpy.ndarray"
            self.data = buffer.getvalue()

    def numpy(self):
        if self.stype != "numpy.ndarray":
            raise TypeError(self.stype)
        return np.load(io.BytesIO(self.data), allow_pickle=False)


class ArrayRecord(dict):
    def __init__(self, arrays=None):
        arrays = arrays or {}
        if isinstance(arrays, list):
            arrays = {str(i): array for i, array in enumerate(arrays)}
        super().__init__(
            {
                name: v if isinstance(v, Array) else Array(np.asarray(v))
                for name, v in arrays.items()
            }
        )

    def to_numpy_ndarrays(self):
        return [array.numpy() for array in self.values()]


class MetricRecord(dict):
    def __setitem__(self, key, value):
        _check(value, (int, float))
        super().__setitem__(key, value)

    def __init__(self, numbers=None):
        super().__init__()
        for key, value in (numbers or {}).items():
            self[key] = value


class ConfigRecord(dict):
    def __init__(self, values=None):
        super().__init__()
        for key, value in (values or {}).items():
            self[key] = value

    def __setitem__(self, key, value):
        _check(value, (int, float, str, bytes, bool))
        super().__setitem__(key, value)


def _check(value, kinds):
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, kinds) or (isinstance(one, bool) and bool not in kinds):
            raise TypeError(f"not all values are of {kinds}: {value!r}")


class RecordDict(dict):
    def _of(self, kind):
        return {name: record for name, record in self.items() if isinstance(record, kind)}

    array_records = property(lambda self: self._of(ArrayRecord))
    metric_records = property(lambda self: self._of(MetricRecord))
    config_records = property(lambda self: self._of(ConfigRecord))


@dataclass
class Error:
    code: int
    reason: str | None = None


@dataclass
class Metadata:
    dst_node_id: int
    src_node_id: int
    message_type: str
    group_id: str = ""
    message_id: str = ""
    reply_to_message_id: str = ""
    ttl: float = 43200.0
    created_at: float = field(default_factory=time.time)
    run_id: int = 1


class Message:
    def __init__(
        self,
        content=None,
        dst_node_id=None,
        message_type=None,
        *,
        reply_to=None,
        ttl=None,
        group_id=None,
        error=None,
    ):
        if isinstance(content, Error):
            content, error = None, content
        if reply_to is not None:
            to = reply_to.metadata
            self.metadata = Metadata(
                to.src_node_id,
                to.dst_node_id,
                to.message_type,
                to.group_id,
                reply_to_message_id=to.message_id,
            )
        elif (
            isinstance(content, RecordDict)
            and isinstance(dst_node_id, int)
            and isinstance(message_type, str)
        ):
            self.metadata = Metadata(
                dst_node_id, 1, message_type, group_id or "", ttl=ttl or 43200.0
            )
        else:
            raise TypeError("Invalid arguments for Message")
        self._content = content
        self._error = error

    @property
    def content(self):
        if self._content is None:
            raise ValueError("Message content is None")
        return self._content

    @content.setter
    def content(self, content):
        self._content = content

    @property
    def error(self):
        if self._error is None:
            raise ValueError("Message error is None")
        return self._error

    @error.setter
    def error(self, error):
        self._error = error

    def has_error(self):
        return self._error is not None

    def has_content(self):
        return self._content is not None


class MessageType:
    TRAIN = "train"
    EVALUATE = "evaluate"
    QUERY = "query"
    SYSTEM = "system"


class Context:
    def __init__(
        self, run_id=1, node_id=0, node_config=None, state=None, run_config=None, series_id=0
    ):
        self.run_id = run_id
        self.node_id = node_id
        self.node_config = node_config or {}
        self.state = RecordDict() if state is None else state
        self.run_config = run_config or {}


class Grid(ABC):
    @abstractmethod
    def get_node_ids(self): ...

    @abstractmethod
    def push_messages(self, messages): ...

    @abstractmethod
    def pull_messages(self, message_ids): ...

    @abstractmethod
    def send_and_receive(self, messages, *, timeout=None): ...


@dataclass
class Result:
    arrays: ArrayRecord = field(default_factory=ArrayRecord)
    train_metrics_clientapp: dict = field(default_factory=dict)
    evaluate_metrics_clientapp: dict = field(default_factory=dict)
    evaluate_metrics_serverapp: dict = field(default_factory=dict)


class InconsistentMessageReplies(Exception):
    pass


class Strategy(ABC):
    @abstractmethod
    def configure_train(self, server_round, arrays, config, grid): ...

    @abstractmethod
    def aggregate_train(self, server_round, replies): ...

    @abstractmethod
    def configure_evaluate(self, server_round, arrays, config, grid): ...

    @abstractmethod
    def aggregate_evaluate(self, server_round, replies): ...

    @abstractmethod
    def summary(self): ...

    def start(
        self,
        grid,
        initial_arrays,
        num_rounds=3,
        timeout=3600,
        train_config=None,
        evaluate_config=None,
        evaluate_fn=None,
    ):
        result = Result()
        arrays = initial_arrays
        train_config = train_config or ConfigRecord()
        evaluate_config = evaluate_config or ConfigRecord()
        if evaluate_fn and (metrics := evaluate_fn(0, arrays)) is not None:
            result.evaluate_metrics_serverapp[0] = metrics
        for t in range(1, num_rounds + 1):
            asked = self.configure_train(t, arrays, train_config, grid)
            new, metrics = self.aggregate_train(
                t, grid.send_and_receive(messages=asked, timeout=timeout)
            )
            if new is not None:
                result.arrays = arrays = new
            if metrics is not None:
                result.train_metrics_clientapp[t] = metrics
            asked = self.configure_evaluate(t, arrays, evaluate_config, grid)
            metrics = self.aggregate_evaluate(
                t, grid.send_and_receive(messages=asked, timeout=timeout)
            )
            if metrics is not None:
                result.evaluate_metrics_clientapp[t] = metrics
            if evaluate_fn and (metrics := evaluate_fn(t, arrays)) is not None:
                result.evaluate_metrics_serverapp[t] = metrics
        return result


class FedAvg(Strategy):
    def __init__(
        self,
        fraction_train=1.0,
        fraction_evaluate=1.0,
        min_train_nodes=2,
        min_evaluate_nodes=2,
        min_available_nodes=2,
        weighted_by_key="num-examples",
        arrayrecord_key="arrays",
        configrecord_key="config",
    ):
        self.fraction_train = fraction_train
        self.fraction_evaluate = fraction_evaluate
        self.min_train_nodes = min_train_nodes
        self.min_evaluate_nodes = min_evaluate_nodes if fraction_evaluate else 0
        self.min_available_nodes = min_available_nodes
        self.weighted_by_key = weighted_by_key
        self.arrayrecord_key = arrayrecord_key
        self.configrecord_key = configrecord_key

    def summary(self):
        pass

    def _messages(self, t, arrays, config, grid, fraction, least, kind):
        if not fraction:
            return []
        wanted = max(int(len(list(grid.get_node_ids())) * fraction), least)
        while len(nodes := list(grid.get_node_ids())) < max(self.min_available_nodes, wanted):
            time.sleep(1)
        config["server-round"] = t
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return [Message(record, node, kind) for node in random.sample(nodes, wanted)]

    def configure_train(self, server_round, arrays, config, grid):
        return self._messages(
            server_round, arrays, config, grid, self.fraction_train, self.min_train_nodes, "train"
        )

    def configure_evaluate(self, server_round, arrays, config, grid):
        return self._messages(
            server_round,
            arrays,
            config,
            grid,
            self.fraction_evaluate,
            self.min_evaluate_nodes,
            "evaluate",
        )

    def _check_and_log_replies(self, replies, is_train, validate=True):
        good = [reply for reply in replies if not reply.has_error()]
        shapes = {
            (
                len(r.content.array_records) if is_train else 1,
                len(r.content.metric_records),
                tuple(
                    sorted(key for record in r.content.metric_records.values() for key in record)
                ),
            )
            for r in good
        }
        if validate and good and (len(shapes) > 1 or next(iter(shapes))[:2] != (1, 1)):
            raise InconsistentMessageReplies(str(shapes))
        if validate and any(
            self.weighted_by_key not in next(iter(r.content.metric_records.values())) for r in good
        ):
            raise InconsistentMessageReplies(f"Missing required key `{self.weighted_by_key}`")
        return good, [reply for reply in replies if reply.has_error()]

    def _average(self, good):
        metrics = [next(iter(reply.content.metric_records.values())) for reply in good]
        weights = np.array([float(m[self.weighted_by_key]) for m in metrics])
        weights = weights / weights.sum()
        names = [name for name in metrics[0] if name != self.weighted_by_key]
        mean = {}
        for name in names:
            total = sum(
                np.asarray(m[name], float) * w for m, w in zip(metrics, weights, strict=True)
            )
            mean[name] = total.tolist()
        return weights, MetricRecord(mean)

    def aggregate_train(self, server_round, replies):
        good, _ = self._check_and_log_replies(replies, is_train=True)
        if not good:
            return None, None
        weights, metrics = self._average(good)
        total: dict[str, np.ndarray] = {}
        for reply, weight in zip(good, weights.tolist(), strict=True):
            for record in reply.content.array_records.values():
                for name, array in record.items():
                    total[name] = (
                        array.numpy() * weight
                        if name not in total
                        else total[name] + array.numpy() * weight
                    )
        return ArrayRecord(
            {name: Array(np.asarray(value)) for name, value in total.items()}
        ), metrics

    def aggregate_evaluate(self, server_round, replies):
        good, _ = self._check_and_log_replies(replies, is_train=False)
        return self._average(good)[1] if good else None


def modules():
    """As they are imported."""
    here = sys.modules[__name__]
    names = {
        "flwr": (),
        "flwr.app": (
            "Array",
            "ArrayRecord",
            "ConfigRecord",
            "Context",
            "Error",
            "Message",
            "MessageType",
            "Metadata",
            "MetricRecord",
            "RecordDict",
        ),
        "flwr.serverapp": ("Grid",),
        "flwr.serverapp.strategy": ("FedAvg", "Result", "Strategy"),
        "flwr.serverapp.exception": ("InconsistentMessageReplies",),
    }
    made = {}
    for module, words in names.items():
        made[module] = types.ModuleType(module)
        for word in words:
            setattr(made[module], word, getattr(here, word))
    made["flwr"].__path__ = []
    return made
