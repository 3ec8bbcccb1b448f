"""The messages between a server and its clients, as bytes that are checked before anything is
believed.

    Order   server -> client     enrol | probe | train | secure, the model, and which of the
                                 client's uploads was accepted last
    Answer  client -> server     what was measured, how long it took, and the upload

A message is a magic number, the number of the protocol, and a :mod:`motley.core.codec` record
around messages of :mod:`motley.transport.wire`: nothing is unpickled, and bytes can make nothing
but numbers, strings and arrays. A message that is cut off, too long, of other types, or of another
experiment or protocol is a :class:`~motley.core.errors.CodecError`, never half an answer.

>>> order = Order("train", "demo-1", "c0ffee", client=3, round=1, dispatch=7, steps=2, lr=0.1)
>>> open_order(order.seal()) == order
True
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley import __version__
from motley.core import codec
from motley.core.errors import CodecError, ContractError
from motley.core.records import NoiseLaw
from motley.core.untrusted import one_line
from motley.experiments.config import Experiment
from motley.transport import wire
from motley.transport.packet import CODINGS, Coding, Packet, PacketSpec

Kind = Literal["enrol", "probe", "train", "secure"]
Told = NDArray[np.float64]
Noise = tuple[NoiseLaw, float | None, float | None, float]
"""How a signal is noised: law, interval (none for shares of labels), and scale of the noise over
the interval's width."""

PROTOCOL = 7
"""The number of the messages' form and meaning: raised with every change of what a server and its
clients must read or compute alike. Messages of before there was a number have none."""
_MAGIC = b"MTLD"
_NUMBER = struct.Struct("<H")
_HEAD_SIZE = len(_MAGIC) + _NUMBER.size
SPARE = 65_536
"""Bytes of a message besides its upload and its vectors: names and numbers."""

_AGREED = (
    "seed",
    "pin",
    "population",
    "task",
    "split",
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "drift",
    "local",
    "algorithm",
    "loss",
    "compressor",
    "quantizer",
    "feedback",
    "dtype",
    "precision",
)
_AGREED_NOISE = ("privacy", "selector", "weights", "cohort", "participation", "synchrony", "stop")
"""What decides on the noise that clients add, where they do: alike, too."""
_RUN = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
CONSTANTS = frozenset({"buffers"})
"""The parts of a message that may hold numbers that are not finite by design (a mask of -inf); of
an upload those alone that the server's model has in their place."""
_CODING: dict[torch.dtype, Coding] = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int64",
}


@dataclass(frozen=True)
class Order:
    """What the server asks of one client.

    Parameters
    ----------
    kind: enrol (report what you have), probe (measure this model), train or secure (a step of
    secure aggregation).
    run: name of the deployment.
    agreed: fingerprint of the experiment, :func:`agreement`.
    client: the receiver.
    round, dispatch: repeated in the answer.
    kept: dispatch of the client's last accepted upload, whose state it goes on from; -1: none.
    steps, lr: local work.
    theta, budget: the client's share of the update, and the round's mean.
    width: share of the ranks of adapters that the model has here, and that the client trains or
    measures.
    want: signals reported with an update, or at enrolment.
    probed: signals to measure, and on how many batches (None: all).
    noise: signal -> what the client adds to it before it sends it.
    most_examples: samples at which a client's weight is capped, where it multiplies its upload by
    it; 0: it does not.
    model: the packed download.
    secure: a message of secure aggregation; the upload is the answer to it.
    """

    kind: str
    run: str
    agreed: str
    client: int
    round: int = 0
    dispatch: int = -1
    kept: int = -1
    steps: int = 0
    lr: float = 0.0
    theta: float = 1.0
    budget: float = 1.0
    width: float = 1.0
    want: tuple[str, ...] = ()
    probed: Mapping[str, int | None] = field(default_factory=dict)
    noise: Mapping[str, Noise] = field(default_factory=dict)
    most_examples: int = 0
    model: bytes = b""
    secure: bytes = b""

    def seal(self) -> bytes:
        """Return the message's bytes."""
        return _sealed(self)


@dataclass(frozen=True)
class Answer:
    """What a client answers to an order.

    Parameters
    ----------
    run, client, round, dispatch: of the order.
    steps: taken.
    compute_s: seconds of work.
    signals: those asked for, by name; both as float64 arrays, single numbers of no dimension, so
    that no length depends on values.
    finite: whether there is an upload; an update that is not finite is not sent.
    forgot: whether the state of the last accepted upload is gone, and the client began anew.
    upload: the parts, encoded.
    """

    run: str
    client: int
    round: int
    dispatch: int
    steps: int = 0
    compute_s: Told = field(default_factory=lambda: np.zeros(()))
    signals: Mapping[str, Told] = field(default_factory=dict)
    finite: bool = True
    forgot: bool = False
    upload: bytes = b""

    def seal(self) -> bytes:
        """Return the message's bytes."""
        return _sealed(self)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "kind": (str,),
    "run": (str,),
    "agreed": (str,),
    "client": (int,),
    "round": (int,),
    "dispatch": (int,),
    "kept": (int,),
    "steps": (int,),
    "lr": (int, float),
    "theta": (int, float),
    "budget": (int, float),
    "width": (int, float),
    "want": (tuple,),
    "probed": (dict,),
    "noise": (dict,),
    "most_examples": (int,),
    "model": (bytes,),
    "secure": (bytes,),
    "compute_s": (np.ndarray,),
    "signals": (dict,),
    "finite": (bool,),
    "forgot": (bool,),
    "upload": (bytes,),
}


def _sealed(message: Order | Answer) -> bytes:
    return b"".join((_MAGIC, _NUMBER.pack(PROTOCOL), *codec.pieces(message)))


def open_order(data: object) -> Order:
    """Return the order in a message.

    Raises
    ------
    CodecError: anything else than a sound order.
    """
    order: Order = _opened(data, Order)
    kinds = ("enrol", "probe", "train", "secure")
    if (
        order.kind not in kinds
        or not _RUN.fullmatch(order.run)
        or order.client < 0
        or order.steps < 0
        or not 0 < order.width <= 1
    ):
        raise CodecError(
            f"got an order {order.kind!r} of run {order.run[:80]!r} for client {order.client}; "
            f"expected one of {kinds}"
        )
    names = [*order.want, *order.probed]
    batches = [n for n in order.probed.values() if n is not None]
    if any(type(name) is not str for name in names) or any(
        type(n) is not int or n < 1 for n in batches
    ):
        raise CodecError("got an order that wants signals without names or measured on no batches")
    if (
        not all(type(name) is str and _is_noise(noise) for name, noise in order.noise.items())
        or order.most_examples < 0
    ):
        raise CodecError("got an order with noise or weights that are none")
    return order


def _is_noise(value: object) -> bool:
    """Return whether a value has the form of :data:`Noise`."""
    if not isinstance(value, tuple) or len(value) != 4 or value[0] not in get_args(NoiseLaw):
        return False
    return type(value[3]) is float and all(type(end) in (float, type(None)) for end in value[1:3])


def open_answer(data: object, limit: int) -> Answer:
    """Return the answer in a message of at most ``limit`` bytes.

    Raises
    ------
    CodecError: anything else than a sound answer.
    """
    if isinstance(data, bytes) and len(data) > limit:
        raise CodecError(f"got an answer of {len(data)} bytes; expected at most {limit}")
    answer: Answer = _opened(data, Answer)
    for name, value in {"compute_s": answer.compute_s, **answer.signals}.items():
        if type(name) is not str or not isinstance(value, np.ndarray) or value.dtype != np.float64:
            raise CodecError(f"got a signal {one_line(name, 40)} that is no array of float64")
    if answer.compute_s.ndim:
        raise CodecError("got several times of work; expected one")
    return answer


def _opened(data: object, kind: type) -> Any:
    """Return a message of one kind whose fields have their types."""
    if not isinstance(data, bytes):
        raise CodecError(f"got {type(data).__name__} for a message; expected bytes")
    _check_protocol(data, "server" if kind is Order else "client")
    try:
        message = codec.decode(memoryview(data)[_HEAD_SIZE:], kind, header=SPARE)
    except CodecError:
        raise
    except Exception as error:
        # a sound checksum around what no program of ours writes: whatever reading it may raise
        raise CodecError(
            f"these {len(data)} bytes cannot be read: {type(error).__name__}"
        ) from error
    if not isinstance(message, kind):
        raise CodecError(
            f"got a message that holds {type(message).__name__}; expected {kind.__name__}"
        )
    for f in dataclasses.fields(message):  # type: ignore[arg-type]  # kind is one of the two above
        value = getattr(message, f.name)
        if type(value) not in _TYPES[f.name]:
            expected = " or ".join(t.__name__ for t in _TYPES[f.name])
            raise CodecError(
                f"got {type(value).__name__} for {f.name!r} in a message; expected {expected}"
            )
    return message


def _check_protocol(data: bytes, sender: str) -> None:
    """Refuse a message of another protocol than this Motley's; bytes that are no message are left
    to the codec."""
    if data[: len(_MAGIC)] == _MAGIC and len(data) >= _HEAD_SIZE:
        (number,) = _NUMBER.unpack(data[len(_MAGIC) : _HEAD_SIZE])
        spoken = f"protocol {number}"
    else:
        number = None
        spoken = "a protocol without a number, of an older Motley"
        if data[: len(codec.MAGIC)] != codec.MAGIC:
            raise CodecError(f"these {len(data)} bytes are no message of a Motley {sender}")
    if number != PROTOCOL:
        raise CodecError(
            f"the {sender} speaks {spoken}, and this Motley {__version__} speaks protocol "
            f"{PROTOCOL}; install the same version of Motley at the server and at all clients"
        )


def agreement(experiment: Experiment) -> str:
    """Return twelve hex digits of what a server and its clients must have alike: task, initial
    weights, local work, algorithm, compression, seeds, and the code of components that are not
    Motley's. Selection, synchrony and the end of the run are the server's own, unless clients add
    noise by them."""
    resolved = experiment.resolved()
    options = experiment.privacy
    by_clients = options is not None and options.noise_by == "clients"
    agreed = (*_AGREED, *_AGREED_NOISE) if by_clients else _AGREED
    telling = {key: resolved[key] for key in agreed if key in resolved}
    telling["init"] = (resolved["init"] or {}).get("digest")
    # each client has its own data
    telling["task"] = {key: value for key, value in telling["task"].items() if key != "fingerprint"}
    if isinstance(telling.get("privacy"), dict):  # these are each end's own
        own = ("data_set", "noise_seed")
        telling["privacy"] = {k: v for k, v in telling["privacy"].items() if k not in own}
    code = {
        key: value
        for key, value in experiment.own_code.items()
        if key.partition(".")[0] in agreed and key != "task"
    }
    if code:
        telling["code"] = code
    text = json.dumps(telling, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def packet_spec(value: Tensor) -> PacketSpec:
    """Return how a whole tensor is written.

    Raises
    ------
    ContractError: a dtype that the wire does not know.
    """
    if value.dtype not in _CODING:
        names = ", ".join(sorted(set(CODINGS)))
        raise ContractError(
            f"a tensor of dtype {value.dtype} cannot travel; the wire knows {names}"
        )
    return PacketSpec(value.numel(), value.numel(), coding=_CODING[value.dtype])


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Return named tensors as one message of the wire format; :data:`CONSTANTS` may hold numbers
    that are not finite.

    Raises
    ------
    CodecError: another one is not finite.
    """
    return wire.encode(
        {
            name: Packet(value.numel(), value.detach().cpu().reshape(-1))
            for name, value in tensors.items()
        },
        CONSTANTS,
    )


def unpack(data: bytes, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the packed tensors; names, sizes and dtypes must be those of ``like``, whose shapes
    they get.

    Raises
    ------
    CodecError: bytes that hold anything else.
    """
    specs = {name: packet_spec(value) for name, value in like.items()}
    packets = wire.decode(data, specs, CONSTANTS)
    return {name: packets[name].dense().reshape(value.shape) for name, value in like.items()}
