"""In what two experiments differ beside the method, told from their resolved keys.

The *method* is the algorithm; where it is alike, the selector; where both are, the first other
part that differs (:data:`PARTS`). What else differs is an :class:`Aspect`: it may explain a
difference of figures, and a run of the reference with the method's value of it, a *control*, tells.
Data, clients and devices are the *world* of an experiment. Methods are compared within their world;
one that is alone in its own is held against the reference all the same, and what differs of their
worlds is named, for the difference is then not one of methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from motley.results.labels import IGNORED

Keys = Mapping[str, Any]


def value_at(keys: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None where it leads nowhere."""
    value: Any = keys
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


@dataclass(frozen=True)
class Aspect:
    """Something in which two methods can differ.

    Parameters
    ----------
    name: in words; *at equal NAME* is a comparison without it.
    keys: the keys that it consists of.
    without: options of a component that are aspects of their own.
    unset: in words, where no key has a value.
    """

    name: str
    keys: tuple[str, ...]
    without: tuple[str, ...] = ()
    unset: str = "none"

    def of(self, keys: Keys) -> dict[str, Any]:
        """Return the values of the keys, by key."""
        return {key: self._left(value_at(keys, key)) for key in self.keys}

    def _left(self, value: Any) -> Any:
        if not self.without or not isinstance(value, Mapping):
            return value
        return {option: setting for option, setting in value.items() if option not in self.without}

    def in_words(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return the values in words: of several keys and options those in which ``compared``
        differ."""
        words = [
            word
            for key in self.keys
            for word in _words(
                key.rpartition(".")[2],
                self._left(value_at(keys, key)),
                [self._left(value_at(method_keys, key)) for method_keys in compared],
                bare=len(self.keys) == 1,
            )
        ]
        if len(words) == 1:  # momentum 0.9 of the momentum
            return words[0].removeprefix(f"{self.name.replace(' ', '_')} ")
        return " ".join(words) or self.unset

    def held_against(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return what a control has, which is this method's value where an experiment can have
        it."""
        return self.in_words(keys, compared)


def _words(
    name: str, value: Any, compared: Sequence[Any], bare: bool, *, zero: bool = False
) -> list[str]:
    """Return the words of one key; a component by its name, where others have another one.
    ``zero``: whether a 0 is told."""
    if value is None or (value == 0 and not (bare or zero)):
        return []
    if isinstance(value, Mapping):
        tables = [
            compared_value for compared_value in compared if isinstance(compared_value, Mapping)
        ]
        alike = [table for table in tables if table.get("name") == value.get("name")]
        options = [
            option
            for option in value
            if len({repr(table.get(option)) for table in alike}) > 1
            or (option == "name" and (len(alike) < len(compared)))
            or ("name" not in value and len(tables) < len(compared))
        ]
        return [
            word
            for option in options
            for word in _words(option, value[option], alike, bare=option == "name", zero=True)
        ]
    text = plain_value(value)
    return [text if bare or name == "name" else f"{name} {text}"]


def algorithm_words(keys: Keys, compared: Sequence[Keys]) -> str:
    """Return the algorithm with its options, without those in which all that have it are alike."""
    algorithm = keys["algorithm"]
    held = [method_keys["algorithm"] for method_keys in compared]
    words = []
    for option, value in algorithm.items():
        values = [repr(options[option]) for options in held if option in options]
        plain = isinstance(value, int | float | str)
        if plain and option != "name" and (len(values) < 2 or len(set(values)) > 1):
            words.append(f"{option} {plain_value(value)}")
    return " ".join([str(algorithm.get("name")), *words])


def plain_value(value: Any) -> str:
    """Return a value of a key as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class _Weights(Aspect):
    """The weights of uploads, in words."""

    @override
    def in_words(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return how uploads count."""
        mode = str(keys.get("weights"))
        return {"examples": "by samples", "uniform": "equal"}.get(mode, f"by {mode}")


@dataclass(frozen=True)
class _Selector(Aspect):
    """The selector, in words."""

    @override
    def in_words(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return the selector, and of the same one how closely its probe measures."""
        parts = [Aspect(key, (key,), unset="").in_words(keys, compared) for key in self.keys]
        return parts[0] or (f"probe {parts[1]}" if parts[1] else self.unset)


@dataclass(frozen=True)
class _LocalWork(Aspect):
    """The local work of a round, in words."""

    @override
    def in_words(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return the epochs or steps, and what cuts them short."""
        local = keys.get("local") or {}
        kind = "steps" if local.get("steps") else "epochs"
        number = local.get(kind) or 1
        capped = f", at most {local['max_steps']} steps" if local.get("max_steps") else ""
        short = ""
        if local.get("stragglers"):
            theirs = [value_at(method_keys, "local.stragglers") for method_keys in compared]
            words = _words("stragglers", local["stragglers"], theirs, bare=False)
            short = " ".join([", stragglers", *words])
        return f"{number} {kind if number != 1 else kind[:-1]}{capped}{short}"


@dataclass(frozen=True)
class _Tuning(Aspect):
    """Whether clients are examined with models of their own. A method that fine-tunes before it is
    examined is compared with fine-tuning for as long; one that keeps models of its own, with
    fine-tuning for as long as a round's local work."""

    @override
    def in_words(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return for how long the model is tuned, or that the method has models of its own."""
        if keys.get("personal"):
            return "models of their own"
        return self.held_against(keys, compared)

    @override
    def held_against(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return for how long a control is tuned."""
        tuning = keys.get("fine-tuning") or {}
        parts = [
            f"{tuning[kind]} {kind if tuning[kind] != 1 else kind[:-1]}"
            for kind in ("epochs", "steps")
            if tuning.get(kind)
        ]
        rate = f" at rate {tuning['lr']:g}" if parts and tuning.get("lr") else ""
        return ", ".join(parts) + rate or "none"


@dataclass(frozen=True)
class _Compression(Aspect):
    """How updates are compressed, in words."""

    @override
    def in_words(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return compressor and quantizer, and the parts in which others differ, each with the
        options in which they do; none where updates are sent whole."""
        names = {key: value_at(keys, f"{key}.name") for key in self.keys}
        if names["compressor"] in (None, "identity") and names["quantizer"] is None:
            return self.unset
        plain = (None, "none", "identity")
        parts = {
            key: _with_options(keys[key], [method_keys.get(key) for method_keys in compared])
            for key in self.keys
            if names[key] not in plain
        }
        first = [parts[key] for key in ("compressor", "quantizer") if key in parts]
        differing = [
            f"{key} {parts[key]}"
            for key in ("feedback", "allocator", "budget")
            if key in parts and any(method_keys.get(key) != keys[key] for method_keys in compared)
        ]
        return ", ".join([" and ".join(first), *differing])


@dataclass(frozen=True)
class _Server(Aspect):
    """The server's step, in words."""

    @override
    def in_words(self, keys: Keys, compared: Sequence[Keys]) -> str:
        """Return its name, the options in which others differ, and a rate that is not 1."""
        server = keys.get("server")
        if not isinstance(server, Mapping):
            return str(server or self.unset)
        words = _with_options(server, [method_keys.get("server") for method_keys in compared])
        rate = server.get("lr")
        hidden = rate not in (None, 1) and f" lr {plain_value(rate)}" not in words
        return f"{words} lr {plain_value(rate)}" if hidden else words


def _with_options(component: Keys, compared: Sequence[Any]) -> str:
    """Return the name of a component with the options in which others of its name differ."""
    alike = [
        compared_value
        for compared_value in compared
        if isinstance(compared_value, Mapping)
        and compared_value.get("name") == component.get("name")
    ]
    words = [word for word in _words("", component, alike, bare=False) if word != component["name"]]
    return " ".join([str(component["name"]), *words])


WEIGHTS = _Weights("weights", ("weights",))
RATE = Aspect("learning rate", ("local.optimizer.lr",))
MOMENTUM = Aspect("momentum", ("local.optimizer.momentum", "local.optimizer.nesterov"))
OPTIMIZER = Aspect("optimizer", ("local.optimizer",), ("lr", "momentum", "nesterov", "clip"))
LOCAL_WORK = _LocalWork(
    "local work", ("local.epochs", "local.steps", "local.max_steps", "local.stragglers")
)
TUNING = _Tuning("fine-tuning", ("fine-tuning",))
SELECTOR = _Selector("selector", ("selector", "probe"))
AGGREGATOR = Aspect("aggregator", ("aggregator",), unset="the algorithm's")
SERVER = _Server("server step", ("server",), unset="the algorithm's")
LOSS = Aspect("loss", ("loss",), unset="the algorithm's")
SYNCHRONY = Aspect("synchrony", ("synchrony",))
COMPRESSION = _Compression(
    "compression", ("compressor", "quantizer", "feedback", "allocator", "budget")
)
PRIVACY = Aspect("privacy", ("privacy",))
CAPACITY = Aspect("capacity", ("capacity",), unset="whole models")
DEFENCE = Aspect("defence", ("defence",))
ASPECTS = (
    *(WEIGHTS, RATE, MOMENTUM, OPTIMIZER),
    Aspect("rate schedule", ("local.lr_schedule",)),
    Aspect("clipping", ("local.clip",)),
    LOCAL_WORK,
    Aspect("batch size", ("local.batch_size", "local.micro_batch")),
    TUNING,
    *(SELECTOR, AGGREGATOR, SERVER, LOSS, SYNCHRONY, COMPRESSION, PRIVACY, CAPACITY, DEFENCE),
    Aspect("cohort", ("cohort", "participation")),
    Aspect("end of the run", ("stop",)),
    Aspect("first weights", ("init",), unset="random"),
    *(Aspect(key, (key,)) for key in ("public", "recalibrate", "guard", "precision", "dtype")),
)
PARTS = (
    *(AGGREGATOR, SERVER, LOSS, SYNCHRONY, COMPRESSION),
    *(PRIVACY, CAPACITY, DEFENCE, TUNING),
)
"""Parts of which the first that differs is the method, where algorithm and selector are alike."""
TUNES_ITSELF = {"tune_epochs", "tune_steps"}
"""Options of algorithms that fine-tune before they are examined."""
_TOP = {key.partition(".")[0] for aspect in ASPECTS for key in aspect.keys}


def _tuning(algorithm: Keys, local: Keys) -> dict[str, Any] | None:
    """Return the fine-tuning that a personal method is compared with: its own before it is
    examined, as FedBABU's and Per-FedAvg's options have it (None for none), else a round's local
    work."""
    if algorithm.get("name") == "fine_tuned":
        tuning = {key: algorithm.get(key) for key in ("epochs", "steps", "lr")}
        return tuning if tuning["epochs"] or tuning["steps"] else None
    options = {"epochs": "tune_epochs", "steps": "tune_steps"}
    if TUNES_ITSELF & algorithm.keys():
        work = {kind: algorithm.get(option) or 0 for kind, option in options.items()}
        rate = algorithm.get("alpha") if work["steps"] else None
        return {**work, "lr": rate} if any(work.values()) and rate != 0 else None
    return {**{kind: local.get(kind) or 0 for kind in options}, "lr": None}


@dataclass(frozen=True)
class ComparedMethod:
    """A method as it is compared.

    Parameters
    ----------
    label: of the method.
    keys: its resolved experiment; ``algorithm`` is that which is fine-tuned, and ``fine-tuning``
    says for how long.
    world: the keys of data, clients and devices.
    """

    label: str
    keys: Keys
    world: Keys = field(repr=False)

    @classmethod
    def of(cls, label: str, config: Keys, personal: bool = False) -> ComparedMethod:
        """Return the method of a resolved experiment; ``personal``: whether clients use models of
        their own."""
        algorithm = config.get("algorithm") or {}
        if not isinstance(algorithm, Mapping):
            algorithm = {"name": algorithm}
        tuned = algorithm.get("name") == "fine_tuned"
        own = not TUNES_ITSELF & algorithm.keys()
        tuning = _tuning(algorithm, config.get("local") or {}) if personal or tuned else None
        if tuned:
            inner = algorithm.get("method", "fedavg")
            algorithm = dict(inner) if isinstance(inner, Mapping) else {"name": inner}
        keys = {
            **config,
            "algorithm": algorithm,
            "fine-tuning": tuning,
            "personal": personal and own and not tuned,
        }
        # pinned seeds make other data and devices; a run that pins nothing may have no key
        left = {*IGNORED, *_TOP, "algorithm", "personal"} - ({"pin"} if keys.get("pin") else set())
        return cls(label, keys, {key: value for key, value in keys.items() if key not in left})

    def worlds_differ(self, rival: ComparedMethod) -> tuple[str, ...]:
        """Return the keys of data, clients and devices in which it differs from another method."""
        return tuple(
            key
            for key in dict.fromkeys((*self.world, *rival.world))
            if self.world.get(key) != rival.world.get(key)
        )

    def same_algorithm(self, rival: ComparedMethod) -> bool:
        """Return whether both have one algorithm; an option that only one of them writes out is
        taken for the other's, too."""
        mine = self.keys["algorithm"]
        theirs = rival.keys["algorithm"]
        return all(mine[key] == theirs[key] for key in mine.keys() & theirs.keys())

    def with_own_optimizer(self, rival: ComparedMethod) -> bool:
        """Return whether the optimizers have different names: rate and momentum then mean something
        else."""
        names = [value_at(method.keys, "local.optimizer.name") for method in (self, rival)]
        return bool(names[0] != names[1])

    def differing(self, rival: ComparedMethod) -> list[Aspect]:
        """Return the aspects in which it differs from another method."""
        follows = (RATE, MOMENTUM) if self.with_own_optimizer(rival) else ()
        return [
            aspect
            for aspect in ASPECTS
            if aspect not in follows and aspect.of(self.keys) != aspect.of(rival.keys)
        ]

    def is_control(
        self, reference: ComparedMethod, method: ComparedMethod, aspects: Sequence[Aspect]
    ) -> bool:
        """Return whether it is the reference with the method's value of these aspects."""
        return self.taken(reference, method) == tuple(aspects)

    def taken(self, reference: ComparedMethod, method: ComparedMethod) -> tuple[Aspect, ...] | None:
        """Return the aspects that it has of a method, where it is the reference in all else; None
        where it is not."""
        if self.world != reference.world or not self.same_algorithm(reference):
            return None
        differing = method.differing(reference)
        values = [
            [aspect.of(each.keys) for each in (self, method, reference)] for aspect in ASPECTS
        ]
        follow = (RATE, MOMENTUM) if method.with_own_optimizer(reference) else ()
        for aspect, (mine, theirs, plain) in zip(ASPECTS, values, strict=True):
            may = aspect in differing or aspect in follow
            if mine != plain and not (may and mine == theirs):
                return None
        return tuple(
            aspect
            for aspect, (mine, theirs, _) in zip(ASPECTS, values, strict=True)
            if aspect in differing and mine == theirs
        )


@dataclass(frozen=True)
class Pair:
    """A method and its reference; ``aspects``: in which they differ beside the method. ``world``:
    the keys of data, clients and devices in which they differ, none where the reference is of the
    method's own world."""

    method: ComparedMethod
    reference: ComparedMethod
    aspects: tuple[Aspect, ...]
    world: tuple[str, ...] = ()

    def takes(self, aspect: Aspect) -> bool:
        """Return whether the reference can be run with the method's value: one that keeps models of
        its own has them whatever else is tuned."""
        return not (aspect is TUNING and self.reference.keys.get("personal"))

    @property
    def reference_name(self) -> str:
        """The reference by what makes it another method, without its settings."""
        mine = self.method.keys
        keys = self.reference.keys
        parts = [] if self.reference.same_algorithm(self.method) else [keys["algorithm"]]
        if SELECTOR not in self.aspects and mine.get("selector") != keys.get("selector"):
            parts += [keys["selector"]]
        return ", ".join(str(part.get("name")) for part in parts) or self.reference.label


def pairs_of(methods: Sequence[ComparedMethod], base: str) -> list[Pair]:
    """Return every method with the reference of its world: ``base`` in its own, and elsewhere the
    method that is like it, else the first; a method that is alone in its world with ``base``."""
    first = next(method for method in methods if method.label == base)
    pairs = []
    for method in methods:
        there = [candidate for candidate in methods if candidate.world == method.world]
        alike = (
            candidate
            for candidate in there
            if candidate.same_algorithm(first) and not candidate.differing(first)
        )
        reference = first if first in there or len(there) == 1 else next(alike, there[0])
        if method is not reference:
            pairs.append(
                Pair(
                    method, reference, _besides(method, reference), method.worlds_differ(reference)
                )
            )
    return pairs


def world_sentences(pairs: Sequence[Pair]) -> list[str]:
    """Return the sentences on methods that are of another world than their reference, those that
    differ in the same from the same one together."""
    same: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for pair in pairs:
        if pair.world:
            same.setdefault((pair.reference.label, pair.world), []).append(pair.method.label)
    return [
        f"{in_list([*methods, reference])} were run with different "
        f"{in_list([key.replace('_', ' ') for key in keys])}: "
        + ("their difference is not one" if len(methods) == 1 else "their differences are not")
        + " of methods"
        for (reference, keys), methods in same.items()
    ]


def _besides(method: ComparedMethod, reference: ComparedMethod) -> tuple[Aspect, ...]:
    """Return the aspects in which two methods differ beside what makes the method; none where it is
    settings alone that differ, which are then compared on purpose."""
    differing = method.differing(reference)
    if not method.same_algorithm(reference):
        return tuple(differing)
    if SELECTOR in differing:
        return tuple(aspect for aspect in differing if aspect is not SELECTOR)
    part = next((aspect for aspect in PARTS if aspect in differing), None)
    return () if part is None else tuple(aspect for aspect in differing if aspect is not part)


def wanted_words(name: str, value: str) -> str:
    """Return a setting in words, as a control has it: ``equal weights``, ``learning rate 0.1``."""
    return f"{value} {name}" if (name, value) == ("weights", "equal") else f"{name} {value}"


def in_list(words: Sequence[str]) -> str:
    """Return words as a list: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
