"""Models of Hugging Face ``transformers`` on texts by client, with low-rank adapters of ``peft`` or
trained as a whole: ``task = { name = "hf", base = "folder", data = "texts" }``.

Under adapters the base weights are frozen: constants of every client's module, which are neither
trained, sent nor billed. What is learned and travels are the adapters' factors,

    W x + (alpha / rank) B A x,      A ``[rank, inputs]`` drawn by the run's seed, B zeros

(Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, ICLR 2022), and the head that
tells classes apart. Modules of one process share the memory of the base weights. Needs the extra
``hf``; nothing is ever downloaded.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from motley.core.errors import ConfigError, DataError, UserError, install_hint, suggest
from motley.core.files import files_digest, is_folder, user_path, where_paths_start
from motley.core.keys import Key
from motley.tasks.flat import construct
from motley.tasks.logits import LogitsOf
from motley.tasks.metrics import as_metric
from motley.tasks.nn import replace_stochastic
from motley.tasks.own import outputs_of
from motley.tasks.task import IGNORED, Dataset, Federation, Task, TaskSource
from motley_data.labelled_texts import read_labelled, token_rows
from motley_data.public_classes import Classes, with_classes
from motley_data.text import join_windows, read_clients

BYTES = "bytes"
"""The tokenizer that every model can be used with: the bytes of UTF-8 are the tokens."""


Head = Literal["language", "sequence", "token"]
_AUTO: Mapping[Head, str] = {
    "language": "AutoModelForCausalLM",
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}
_PEFT: Mapping[Head, str] = {"language": "CAUSAL_LM", "sequence": "SEQ_CLS", "token": "TOKEN_CLS"}


@dataclass(frozen=True)
class PretrainedModel(TaskSource):
    """The next token of texts by client, the class of each text, or the class of each word.

    The next token: a window is ``window`` tokens of one client, its targets the tokens that follow
    each of them. Windows follow each other; places after the end of a text have no target, and
    count in no loss and no metric. A client without a window in either half is left out.

    Classes: a sample is a text with the tokenizer's special tokens; what is longer than ``window``
    is cut, with a warning, and what is shorter ends with padding, which is masked out. A word's
    class is that of its first token; the other tokens have none, as in Hugging Face's examples. The
    loss of a text is the mean over its words, and a batch's the mean over its texts.

    Parameters
    ----------
    data: as for the task ``text``: ``shakespeare``, or a folder of texts by client. With classes:
        a folder with a file for each client, or a single file: a table, or JSON lines
        (:mod:`motley_data.labelled_texts`).
    base: path of a folder that ``save_pretrained`` wrote, or a table of its configuration with
        ``model_type``, whose weights are drawn by a fixed seed, e.g. ``{ model_type = "gpt2" }``.
        A head that the folder lacks is drawn by the run's seed, and so are all weights of a
        configuration with ``rank = 0``.
    tokenizer: path of a tokenizer's folder, or ``bytes`` of UTF-8 as tokens; empty: that of the
    model's folder, ``bytes`` where it has none.
    window: T, tokens in a window.
    min_examples: clients with fewer windows, or texts, to train on (and to test on, where no half
        is given) are left out.
    rank, alpha: of the adapters; their product is scaled by alpha / rank, also where a client holds
        fewer ranks. 0, with classes: no adapters, all weights are trained.
    targets: names of the layers that get adapters; empty: those that ``peft`` names for this kind
        of model.
    dropout: of the adapters' inputs. The base model has no dropout.
    head: ``language`` (the next token), ``sequence`` (a class for each text) or ``token`` (for each
    word).
    text, label: columns of texts with classes; empty: ``text`` and ``label``, with ``token``
        ``tokens`` and ``labels``.
    pair: with ``sequence``, the column of second texts, of which the class of each pair is told; a
        sample is then tokens, and which text each is of, ``[2, T]``, where the model reads that
        (BERT).
    client: the column of clients, in a single file.
    classes: their number or the list of their names; left out: those that the model's folder names,
        else those of the labels, which a private run refuses.
    """

    has_clients: ClassVar[bool] = True

    data: str = "shakespeare"
    base: str | Mapping[str, Any] = ""
    tokenizer: str = ""
    window: int = 64
    min_examples: int = 1
    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ()
    dropout: float = 0.0
    head: Head = "language"
    text: str = ""
    label: str = ""
    client: str = ""
    classes: Classes = None
    pair: str = ""

    def __post_init__(self) -> None:
        language = self.head == "language"
        for name in ("window", "min_examples", "rank"):
            value = getattr(self, name)
            if value < (0 if name == "rank" and not language else 1):
                heads = ' (0, all weights, goes with head = "sequence" or "token")'
                also = heads if name == "rank" and value == 0 else ""
                raise ConfigError(f"{name}: got {value}; expected at least 1{also}")
        if not (0 < self.alpha < math.inf):
            raise ConfigError(f"alpha: got {self.alpha}; expected a positive number")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(
                f"dropout: got {self.dropout}; expected a share of at least 0 and below 1"
            )
        if not isinstance(self.base, str) and "model_type" not in self.base:
            raise ConfigError(
                'got a configuration without model_type; write base = { model_type = "gpt2" }, or '
                "the path of a model's folder",
                "task.base",
            )
        self._check_unused()

    def _check_unused(self) -> None:
        """Refuse options that would change nothing."""
        for_classes = {name: getattr(self, name) for name in ("text", "label", "client", "classes")}
        of_adapters = {"targets": self.targets, "dropout": self.dropout}
        unused, why = for_classes, 'head = "sequence" or "token" reads it'
        if self.head != "language":
            unused = of_adapters if self.rank == 0 else {}
            why = "rank = 0 has no adapters"
        for name, value in unused.items():
            if value:
                raise ConfigError(f"{name}: got {value!r}, and {why}; leave it out")
        if self.pair and self.head != "sequence":
            raise ConfigError(
                f'pair: got {self.pair!r}, and head = "sequence" reads it; leave it out'
            )

    @override
    def files_digest(self) -> str:
        named = [self.data] if self.data != "shakespeare" else []
        named += [self.base] if isinstance(self.base, str) else []
        named += [self.tokenizer] if self.tokenizer not in ("", BYTES) else []
        return " ".join(files_digest(path) for path in named)

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return windows, client after client, ``x`` and ``y`` int64 ``[n, T]``; with a class for
        each text ``y`` is ``[n]``."""
        return self._texts(folder) if self.head == "language" else self._labelled(folder)

    def _texts(self, folder: Path | None) -> Dataset:
        texts = read_clients(self.data, folder)
        encode = self._encoder()
        pairs = [
            (self._windows(encode(train)), self._windows(encode(test)))
            for train, test in zip(texts.train, texts.test, strict=True)
        ]
        clients, windows, test, groups = join_windows(
            pairs, self.min_examples, f"{self.window} tokens", f"client of {self.data!r}"
        )
        outputs = self._vocabulary(windows)
        left = len(texts.names) - len(clients)
        return Dataset(
            x=torch.from_numpy(windows[:, :-1].clip(min=0)),
            y=torch.from_numpy(np.ascontiguousarray(windows[:, 1:])),
            classes=outputs,
            test=test,
            groups=groups,
            notes={
                "data": texts.note,
                "clients": f"{len(clients)}; {left} left out, with fewer than {self.min_examples} "
                "training windows or no test window",
            },
            client_names=texts.names,
        )

    def _vocabulary(self, tokens: NDArray[np.int64]) -> int:
        """Return the number of tokens that the model knows.

        Raises
        ------
        ConfigError: the tokenizer gives others.
        """
        outputs = int(_config(self.base).vocab_size)
        largest = int(tokens.max())
        if largest >= outputs:
            raise ConfigError(
                f"the tokenizer gives the token {largest}, and the model has {outputs}; name the "
                'tokenizer that belongs to it, or vocab_size = 256 for "bytes"',
                "task.tokenizer",
            )
        return outputs

    def _labelled(self, folder: Path | None) -> Dataset:
        """Return texts with a class each, or one for each word."""
        words = self.head == "token"
        text = self.text or ("tokens" if words else "text")
        label = self.label or ("labels" if words else "label")
        read = read_labelled(
            data=self.data,
            text=text,
            label=label,
            client=self.client,
            words=words,
            folder=folder,
            pair=self.pair,
        )
        tokenizer = self._tokenizer()
        if words and tokenizer is not None and not tokenizer.is_fast:
            raise DataError(
                "task.tokenizer: it does not say which token is of which word; save it as a "
                '"fast" tokenizer, with tokenizer.json'
            )
        padding = _padding(_config(self.base), tokenizer)
        rows = token_rows(
            texts=read.texts,
            tokenizer=tokenizer,
            window=self.window,
            words=words,
            padding=padding,
            origin=read.origin,
        )
        self._vocabulary(rows.tokens)
        y = read.labels
        if rows.places is not None:
            y = torch.full((rows.tokens.size,), IGNORED)
            y[torch.from_numpy(rows.places[rows.places >= 0])] = read.labels[rows.places >= 0]
            y = y.view(rows.tokens.shape)
        notes = {"data": f"{len(read.texts)} texts of {Path(self.data).name}"}
        if rows.cut:
            note = (
                f"{rows.cut} of {len(read.texts)} texts are longer than window = {self.window} "
                f"tokens and are cut; the longest has {rows.longest}"
            )
            warnings.warn(f"task.window: {note}", stacklevel=2)
            notes["texts"] = note
        tokens = torch.from_numpy(rows.tokens)
        if rows.types is not None and self._inputs():
            tokens = torch.stack([tokens, torch.from_numpy(rows.types)], dim=1)
        dataset = Dataset(
            x=tokens,
            y=y,
            classes=read.classes,
            test=read.test,
            groups=read.groups,
            names=read.names,
            notes=notes,
            client_names=read.clients,
        )
        named = () if self.classes is not None else _named_classes(_config(self.base))
        fits = bool(named) and read.classes <= len(named) and set(read.names) <= set(named)
        dataset = with_classes(dataset, named if fits else self.classes, self.data)
        return _enough(dataset, self.min_examples)

    def _inputs(self) -> tuple[str, ...]:
        """Return the names of the rows of a sample; empty: it is tokens alone."""
        types = getattr(_config(self.base), "type_vocab_size", None) or 0
        return ("input_ids", "token_type_ids") if self.pair and types > 1 else ()

    def _windows(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the windows of a text with the token after each, ``[n, T + 1]``; :data:`IGNORED`
        after its end."""
        if len(tokens) < 2:
            return np.zeros((0, self.window + 1), np.int64)
        count = -(-(len(tokens) - 1) // self.window)
        missing = count * self.window + 1 - len(tokens)
        padded = np.pad(tokens, (0, missing), constant_values=IGNORED)
        return np.lib.stride_tricks.sliding_window_view(padded, self.window + 1)[:: self.window]

    def _tokenizer(self) -> Any:
        """Return the tokenizer; None: the bytes of UTF-8 are the tokens."""
        folder = self.tokenizer or (self.base if isinstance(self.base, str) else BYTES)
        own = folder != BYTES and any(
            (user_path(folder) / name).is_file()
            for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json")
        )
        if not own and self.tokenizer not in ("", BYTES):
            raise DataError(
                f"task.tokenizer: got {folder!r}; expected 'bytes', or the path of a folder with a "
                f"tokenizer that exists{where_paths_start(folder)}"
            )
        if not own:
            return None
        with _readable("task.tokenizer", folder):
            return _transformers().AutoTokenizer.from_pretrained(
                str(user_path(folder)), local_files_only=True
            )

    def _encoder(self) -> Callable[[str], NDArray[np.int64]]:
        """Return the function from a text to its tokens, without special ones."""
        tokenizer = self._tokenizer()
        if tokenizer is None:
            return lambda text: np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        return lambda text: np.array(
            tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], np.int64
        )

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        """Return a function that makes fresh modules.

        Raises
        ------
        ConfigError: the model has no layers of these names, is shorter than a window, sees the
        tokens that it is to predict, or is changed by padding.
        """
        config = _config(self.base)
        longest = getattr(config, "max_position_embeddings", None)
        if longest is not None and longest < self.window:
            raise ConfigError(
                f"got window = {self.window}, and the model reads {longest} tokens; expected at "
                "most as many",
                "task.window",
            )
        # two runs of one process may read a folder that changed between them
        if isinstance(self.base, str):
            source = (str(user_path(self.base)), files_digest(self.base))
        else:
            source = (json.dumps(dict(self.base), sort_keys=True), "")
        classes = dataset.classes or 0
        language = self.head == "language"
        padding = 0 if language else _padding(config, self._tokenizer())
        if language:
            base = _Base(*source)
        else:
            base = _Base(
                *source,
                head=self.head,
                classes=classes,
                names=dataset.names,
                padding=padding,
                inputs=self._inputs(),
            )
        make = partial(
            _adapted,
            base,
            rank=self.rank,
            alpha=self.alpha,
            targets=self.targets,
            dropout=self.dropout,
        )
        if language:
            _check_causal(make, dataset, config)
        else:
            _check_padding(make, dataset, padding, config)
        return make

    @override
    def task(self, name: str, dataset: Dataset, federation: Federation) -> Task:
        """Return the task; perplexity, or with classes the macro F1, is measured beside
        accuracy."""
        beside = "perplexity" if self.head == "language" else "macro_f1"
        return dataclasses.replace(
            super().task(name, dataset, federation), metrics=(as_metric(beside),)
        )


def _check_causal(make: Callable[[], nn.Module], dataset: Dataset, config: Any) -> None:
    """Refuse a model that sees the tokens that it is to predict."""
    classes = dataset.classes or 0
    sample = torch.zeros(2, *dataset.x.shape[1:], dtype=torch.int64)
    sample[1, -1] = 1
    out = outputs_of(construct(make, 0), sample, (*dataset.y.shape[1:], classes), classes)
    # the two rows differ in their last token alone
    if (out[0, :-1] - out[1, :-1]).abs().sum() > 1e-5 * out[0, :-1].abs().sum():
        raise ConfigError(
            f"a model of the kind {config.model_type!r} sees the tokens that it is to predict; "
            "expected a causal language model, such as gpt2 or llama",
            "task.base",
        )


def _check_padding(
    make: Callable[[], nn.Module], dataset: Dataset, padding: int, config: Any
) -> None:
    """Refuse a model that cannot take the texts, or whose scores padding changes."""
    if not len(dataset.x):  # of a run that is read: this was seen when it began
        return
    classes = dataset.classes or 0
    module = construct(make, 0).eval()
    tokens = dataset.x if dataset.x.dim() == 2 else dataset.x[:, 0]
    lengths = (tokens != padding).sum(1)
    shortest, longest = int(lengths.argmin()), int(lengths.argmax())
    rows = dataset.x[[shortest, longest]]
    outputs_of(module, rows, (*dataset.y.shape[1:], classes), classes)
    length = int(lengths[shortest])
    with torch.no_grad():
        alone, padded = module(rows[:1, ..., :length]), module(rows[:1])
    places = padded[:, :length] if dataset.y.dim() > 1 else padded
    if (alone - places).abs().max() > 1e-4 * (1 + alone.abs().max()):
        raise ConfigError(
            f"padding changes the scores of a model of the kind {config.model_type!r}, which has "
            "no attention_mask; expected one with it, such as bert or distilbert",
            "task.base",
        )


def _padding(config: Any, tokenizer: Any) -> int:
    """Return the token that fills a row after the end of a text: the model's, the tokenizer's, or
    the end of a text; 0 for bytes.

    Raises
    ------
    ConfigError: there is none of them.
    """
    candidates = [getattr(config, "pad_token_id", None)]
    candidates += [0] if tokenizer is None else [tokenizer.pad_token_id, tokenizer.eos_token_id]
    padding = next((token for token in candidates if token is not None), None)
    if padding is None:
        raise ConfigError(
            "neither the tokenizer nor the model has a padding token; write pad_token_id in the "
            "model's configuration, or save a tokenizer that has pad_token",
            "task.tokenizer",
        )
    return int(padding)


def _named_classes(config: Any) -> tuple[str, ...]:
    """Return the names that a model's configuration gives its classes; none where they are
    transformers' own."""
    names = tuple(str(config.id2label[k]) for k in sorted(config.id2label))
    return () if names == tuple(f"LABEL_{k}" for k in range(len(names))) else names


def _enough(dataset: Dataset, least: int) -> Dataset:
    """Return the data set without the clients that have fewer than ``least`` training texts, or no
    test text where others have some; a note says how many.

    Raises
    ------
    DataError: no client is left.
    """
    if dataset.groups is None:
        return dataset
    count = int(dataset.groups.max()) + 1
    train, test = (
        np.bincount(dataset.groups[half], minlength=count) for half in (~dataset.test, dataset.test)
    )
    large = (train >= least) & ((test > 0) | (not dataset.test.any()))
    if not large.any():
        raise DataError(
            f"no client has {least} training texts and a test text; use a smaller min_examples"
        )
    rows = large[dataset.groups]
    note = (
        f"{int(large.sum())}; {int((~large).sum())} left out, with fewer than {least} training "
        "texts or no test text"
    )
    return dataclasses.replace(
        dataset,
        x=dataset.x[torch.from_numpy(rows)],
        y=dataset.y[torch.from_numpy(rows)],
        test=dataset.test[rows],
        groups=dataset.groups[rows],
        notes={**dataset.notes, "clients": note},
    )


def _transformers() -> Any:
    try:
        import peft  # noqa: F401 - the other half of the extra
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"it needs transformers and peft ({error}); {install_hint('hf')}", "task"
        ) from None
    return transformers


def _config(model: str | Mapping[str, Any]) -> Any:
    """Return a model's configuration, of a folder or made of its values, in which every dropout is
    0: the base model is frozen, and its dropout would draw from torch's process-wide generator."""
    auto = _transformers().AutoConfig
    if isinstance(model, str):
        path = user_path(model)
        if not model or not is_folder(path) or not (path / "config.json").is_file():
            raise DataError(
                f"task.base: got {model!r}; expected the path of a folder with config.json and the "
                "model's weights, as save_pretrained writes it, or a configuration such as "
                f'{{ model_type = "gpt2" }}{where_paths_start(model)}'
            )
        with _readable("task.base", model):
            config = auto.from_pretrained(str(path), local_files_only=True)
    else:
        options = dict(model)
        kind = options.pop("model_type")
        with _readable("task.base", ""):
            config = auto.for_model(kind, **options)
            _check_known(options, auto.for_model(kind))
    if not hasattr(config, "vocab_size"):
        raise ConfigError(
            f"a model of the kind {config.model_type!r} has no vocabulary; expected a model of "
            "texts, such as gpt2, llama or bert",
            "task.base",
        )
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


_READ_BESIDE = frozenset({"attn_implementation", "rope_theta"})
"""Keys that a configuration reads and keeps under another name."""


def _check_known(options: Mapping[str, Any], plain: Any) -> None:
    """Refuse a key that no part of the model would read: ``transformers`` keeps any."""
    unknown = [key for key in options if not hasattr(plain, key) and key not in _READ_BESIDE]
    if unknown:
        names = {*plain.to_dict(), *plain.attribute_map, *_READ_BESIDE}
        raise ConfigError(
            f"a model of the kind {plain.model_type!r} has no option {unknown[0]!r}"
            f"{suggest(unknown[0], names)}; leave it out",
            "task.base",
        )


@contextmanager
def _readable(key: str, folder: str) -> Iterator[None]:
    """Raise what ``transformers`` does not accept in a folder, or in a configuration (``""``), as
    an error of the experiment."""
    try:
        yield
    except (MemoryError, UserError):
        raise
    except Exception as error:  # transformers, safetensors and tokenizers each raise their own
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")[:200]
        if not folder:
            raise ConfigError(f"transformers refuses it: {reason}", key) from None
        raise DataError(
            f"{key}: transformers cannot read {folder!r} ({type(error).__name__}: {reason}); "
            "expected a folder that save_pretrained wrote"
        ) from None


class _Base(NamedTuple):
    """What a base model is made of.

    Parameters
    ----------
    model: its folder where there is a ``digest`` of it, else its configuration as JSON.
    head, classes, names, padding: of a model that tells classes apart.
    inputs: of a model of pairs, the names of the rows of a sample.
    """

    model: str
    digest: str
    head: Head = "language"
    classes: int = 0
    names: tuple[str, ...] = ()
    padding: int = 0
    inputs: tuple[str, ...] = ()

    def config(self) -> Any:
        """Return the model's configuration."""
        config = _config(self.model if self.digest else json.loads(self.model))
        if self.head != "language":
            names = self.names or tuple(f"LABEL_{k}" for k in range(self.classes))
            config.num_labels = self.classes
            config.id2label = dict(enumerate(names))
            config.label2id = {name: k for k, name in enumerate(names)}
            config.pad_token_id = self.padding
            config.problem_type = "single_label_classification"
        return config

    def drawn(self) -> Any:
        """Return a model whose weights are drawn by torch's generator."""
        auto = getattr(_transformers(), _AUTO[self.head])
        with _readable("task.base", ""):
            return auto.from_config(config=self.config(), dtype=torch.float32)


@lru_cache(maxsize=2)
def _loaded(base: _Base) -> tuple[Any, frozenset[str]]:
    """Return the base model, frozen, and the names of those weights of its head that are not
    given."""
    if not base.digest:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model = base.drawn()
        return model.requires_grad_(False), _head_weights(model, base.head)
    auto = getattr(_transformers(), _AUTO[base.head])
    config = base.config()
    with _readable("task.base", base.model), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model, report = auto.from_pretrained(
            base.model,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=base.head != "language",
        )
    missing = set(report["missing_keys"])
    head = _head_weights(model, base.head)
    head |= {name for name in missing if base.head != "language" and ".pooler." in f".{name}"}
    lacks = missing - head
    if lacks:
        kind = "a causal language model" if base.head == "language" else "its kind of model"
        raise DataError(
            f"task.base: got {base.model!r}, which lacks {len(lacks)} of the weights of {kind}, "
            f"such as {min(lacks)}; transformers would draw them at random"
        )
    if base.head != "language":
        _check_head(base, bool(head - missing), report["mismatched_keys"])
    return model.requires_grad_(False), frozenset(head & missing)


def _check_head(base: _Base, has_head: bool, mismatched: Any) -> None:
    """Refuse the head of a folder that tells other classes apart than those of the labels."""
    own = _config(base.model)
    theirs = _named_classes(own) or tuple(own.id2label.values())
    renamed = has_head and _named_classes(own) and base.names and theirs != base.names
    if mismatched or renamed:
        raise ConfigError(
            f"the model of {base.model!r} tells {', '.join(theirs[:6])} apart, and the labels are "
            f"{', '.join(base.names[:6]) or f'0 to {base.classes - 1}'}; call them alike, or save "
            "the model without its head",
            "task.classes",
        )


def _head_weights(model: Any, head: Head) -> frozenset[str]:
    """Return the names of the weights that tell classes apart, those outside of the base; a model
    of language has none."""
    if head == "language":
        return frozenset()
    inside = f"{model.base_model_prefix}."
    return frozenset(name for name, _ in model.named_parameters() if not name.startswith(inside))


def _with_fresh(model: Any, names: Collection[str]) -> Any:
    """Return a model with these weights drawn by torch's generator, as transformers draws them."""
    for path in sorted({name.rpartition(".")[0] for name in names}):
        model._init_weights(model.get_submodule(path))
    return model


def _adapted(
    source: _Base, rank: int, alpha: float, targets: tuple[str, ...], dropout: float
) -> nn.Module:
    """Return a fresh module with fresh adapters over the base weights, which it shares with all
    others that were made of them; of rank 0 without adapters, all weights its own."""
    if not rank and not source.digest:
        return replace_stochastic(LogitsOf(source.drawn(), source.inputs))
    base, absent = _loaded(source)
    if not rank:
        trainable = _with_fresh(copy.deepcopy(base), absent).requires_grad_(True)
        return replace_stochastic(LogitsOf(trainable, source.inputs))
    import peft

    head = absent | _head_weights(base, source.head)
    # parameters of their own, for a module may be moved to another type or device
    shared = {
        id(p): nn.Parameter(p.data, requires_grad=False)
        for name, p in base.named_parameters()
        if name not in head
    }
    options = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=list(targets) or None,
        lora_dropout=dropout,
        # layers of GPT-2 store their weights the other way round
        fan_in_fan_out=any(type(m).__name__ == "Conv1D" for m in base.modules()),
        task_type=_PEFT[source.head],
        modules_to_save=_trained_modules(base, head) or None,
    )
    model = _with_fresh(copy.deepcopy(base, shared), absent)
    try:
        with warnings.catch_warnings():
            # peft calls what transformers will rename
            warnings.simplefilter("ignore", FutureWarning)
            adapted = peft.get_peft_model(model, options)
    except ValueError as error:
        raise _refused_layers(base, head, targets, str(error)) from None
    names = [f".{name}" for name, _ in base.named_modules()]
    unknown = [
        name
        for name in targets
        if not any(module_name.endswith(f".{name}") for module_name in names)
    ]
    if unknown:
        raise ConfigError(f"the model has no layer {unknown[0]!r}; leave it out", "task.targets")
    return replace_stochastic(LogitsOf(adapted, source.inputs))


def _refused_layers(
    base: Any, head: Collection[str], targets: Sequence[str], reason: str
) -> ConfigError:
    if targets:
        return ConfigError(f"peft refuses them: {reason[:200]}", "task.targets")
    layers = [
        name
        for name, layer in base.named_modules()
        if isinstance(layer, nn.Linear) and f"{name}.weight" not in head
    ]
    listed = ", ".join(dict.fromkeys(f'"{name.rpartition(".")[2]}"' for name in layers))
    return ConfigError(
        f"peft does not say which layers of a model of the kind {base.config.model_type!r} get "
        f"adapters; name some of [{listed}]",
        "task.targets",
    )


def _trained_modules(base: Any, head: Collection[str]) -> list[str]:
    """Return the names of the modules that are trained beside adapters: those of the head, whole,
    and a pooler that is not given."""
    inside = f"{base.base_model_prefix}."
    parts = set()
    for name in head:
        if name.startswith(inside):
            parts.add(name.rpartition(".pooler.")[0] + ".pooler")
        else:
            parts.add(name.split(".")[0])
    return sorted(parts)
