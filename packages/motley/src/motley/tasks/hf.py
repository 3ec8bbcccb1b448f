"""Causal language models of Hugging Face ``transformers`` with low-rank adapters of ``peft``, on
texts by client: ``task = { name = "hf", base = "folder", data = "texts" }``.

The base weights are frozen: constants of every client's module, which are neither trained, sent nor
billed. What is learned and travels are the adapters' factors,

    W x + (alpha / rank) B A x,      A ``[rank, inputs]`` drawn by the run's seed, B zeros

(Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, ICLR 2022). Modules of one process
share the memory of the base weights. Needs the extra ``hf``; nothing is ever downloaded.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from motley.core.errors import ConfigError, DataError, UserError, install_hint, suggest
from motley.core.files import files_digest, is_folder, where_paths_start
from motley.core.keys import Key
from motley.tasks.flat import construct
from motley.tasks.logits import LogitsOf
from motley.tasks.metrics import as_metric
from motley.tasks.nn import replace_stochastic
from motley.tasks.own import outputs_of
from motley.tasks.task import IGNORED, Dataset, Federation, Task, TaskSource
from motley.tasks.text import join_windows, read_clients

__all__ = ["AdaptedLanguageModel"]

BYTES = "bytes"
"""The tokenizer that every model can be used with: the bytes of UTF-8 are the tokens."""


@dataclass(frozen=True)
class AdaptedLanguageModel(TaskSource):
    """The next token of texts by client, by a causal language model of ``transformers`` with
    adapters of ``peft``.

    A window is ``window`` tokens of one client, its targets the tokens that follow each of them.
    Windows follow each other; places after the end of a text have no target, and count in no loss
    and no metric. A client without a window in either half is left out.

    Parameters
    ----------
    data: as for the task ``text``: ``shakespeare``, or a folder of texts by client.
    base: path of a folder that ``save_pretrained`` wrote, or a table of its configuration with
    ``model_type``, whose weights are drawn by a fixed seed, e.g. ``{ model_type = "gpt2" }``.
    tokenizer: path of a tokenizer's folder, or ``bytes`` of UTF-8 as tokens; empty: that of the
    model's folder, ``bytes`` where it has none.
    window: T, tokens in a window. min_examples: clients with fewer training windows are left out.
    rank, alpha: of the adapters; their product is scaled by alpha / rank, also where a client holds
    fewer ranks. targets: names of the layers that get adapters; empty: those that ``peft`` names
    for this kind of model. dropout: of the adapters' inputs. The base model has no dropout.
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

    def __post_init__(self) -> None:
        for name in ("window", "min_examples", "rank"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name}: got {value}; expected at least 1")
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

    @override
    def files_digest(self) -> str:
        named = [self.data] if self.data != "shakespeare" else []
        named += [self.base] if isinstance(self.base, str) else []
        named += [self.tokenizer] if self.tokenizer not in ("", BYTES) else []
        return " ".join(files_digest(path) for path in named)

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return the windows, client after client: ``x`` and ``y`` int64 ``[n, T]``."""
        texts = read_clients(self.data, folder)
        encode = self._encoder()
        pairs = [
            (self._windows(encode(train)), self._windows(encode(test)))
            for train, test in zip(texts.train, texts.test, strict=True)
        ]
        kept, windows, test, groups = join_windows(
            pairs, self.min_examples, f"{self.window} tokens", f"client of {self.data!r}"
        )
        outputs = int(_config(self.base).vocab_size)
        largest = int(windows.max())
        if largest >= outputs:
            raise ConfigError(
                f"the tokenizer gives the token {largest}, and the model has {outputs}; name the "
                'tokenizer that belongs to it, or vocab_size = 256 for "bytes"',
                "task.tokenizer",
            )
        left = len(texts.names) - len(kept)
        return Dataset(
            torch.from_numpy(windows[:, :-1].clip(min=0)),
            torch.from_numpy(np.ascontiguousarray(windows[:, 1:])),
            outputs,
            test,
            groups,
            notes={
                "data": texts.note,
                "clients": f"{len(kept)}; {left} left out, with fewer than {self.min_examples} "
                "training windows or no test window",
            },
            client_names=texts.names,
        )

    def _windows(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the windows of a text with the token after each, ``[n, T + 1]``; :data:`IGNORED`
        after its end."""
        if len(tokens) < 2:
            return np.zeros((0, self.window + 1), np.int64)
        count = -(-(len(tokens) - 1) // self.window)
        missing = count * self.window + 1 - len(tokens)
        padded = np.pad(tokens, (0, missing), constant_values=IGNORED)
        return np.lib.stride_tricks.sliding_window_view(padded, self.window + 1)[:: self.window]

    def _encoder(self) -> Callable[[str], NDArray[np.int64]]:
        """Return the function from a text to its tokens, without special ones."""
        folder = self.tokenizer or (self.base if isinstance(self.base, str) else BYTES)
        own = folder != BYTES and any(
            (Path(folder).expanduser() / name).is_file()
            for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json")
        )
        if not own and self.tokenizer not in ("", BYTES):
            raise DataError(
                f"task.tokenizer: got {folder!r}; expected 'bytes', or the path of a folder with a "
                f"tokenizer that exists{where_paths_start(folder)}"
            )
        if not own:
            return lambda text: np.frombuffer(text.encode(), np.uint8).astype(np.int64)
        with _readable("task.tokenizer", folder):
            tokenizer = _transformers().AutoTokenizer.from_pretrained(
                str(Path(folder).expanduser()), local_files_only=True
            )
        return lambda text: np.array(
            tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], np.int64
        )

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        """Return a function that makes fresh modules.

        Raises
        ------
        ConfigError: the model has no layers of these names, is shorter than a window, or sees the
        tokens that it is to predict.
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
        base = (
            (str(Path(self.base).expanduser()), files_digest(self.base))
            if isinstance(self.base, str)
            else (json.dumps(dict(self.base), sort_keys=True), "")
        )
        make = partial(_adapted, *base, self.rank, self.alpha, self.targets, self.dropout)
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
        return make

    @override
    def task(self, name: str, dataset: Dataset, federation: Federation) -> Task:
        """Return the task; perplexity is measured beside accuracy."""
        return dataclasses.replace(
            super().task(name, dataset, federation), metrics=(as_metric("perplexity"),)
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
        path = Path(model).expanduser()
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
            f"a model of the kind {config.model_type!r} has no vocabulary; expected a causal "
            "language model, such as gpt2 or llama",
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
        known = {*plain.to_dict(), *plain.attribute_map, *_READ_BESIDE}
        raise ConfigError(
            f"a model of the kind {plain.model_type!r} has no option {unknown[0]!r}"
            f"{suggest(unknown[0], known)}; leave it out",
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


@lru_cache(maxsize=2)
def _base(model: str, digest: str) -> nn.Module:
    """Return the base model, frozen; ``model``: its folder where there is a ``digest`` of it, else
    its configuration as JSON."""
    config = _config(model if digest else json.loads(model))
    auto = _transformers().AutoModelForCausalLM
    base: nn.Module
    missing: set[str] = set()
    options = {"config": config, "dtype": torch.float32}
    with _readable("task.base", model if digest else ""), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        if digest:
            base, report = auto.from_pretrained(
                model, **options, local_files_only=True, output_loading_info=True
            )
            missing = set(report["missing_keys"])
        else:
            base = auto.from_config(**options)
    if missing:
        raise DataError(
            f"task.base: got {model!r}, which lacks {len(missing)} of the weights of a causal "
            f"language model, such as {min(missing)}; transformers would draw them at random"
        )
    return base.requires_grad_(False)


def _adapted(
    model: str, digest: str, rank: int, alpha: float, targets: tuple[str, ...], dropout: float
) -> nn.Module:
    """Return a fresh module with fresh adapters over the base weights, which it shares with all
    others that were made of them."""
    import peft

    base = _base(model, digest)
    # parameters of their own, for a module may be moved to another type or device
    shared = {id(p): nn.Parameter(p.data, requires_grad=False) for p in base.parameters()}
    options = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=list(targets) or None,
        lora_dropout=dropout,
        # layers of GPT-2 store their weights the other way round
        fan_in_fan_out=any(type(m).__name__ == "Conv1D" for m in base.modules()),
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            # peft calls what transformers will rename
            warnings.simplefilter("ignore", FutureWarning)
            adapted = peft.get_peft_model(copy.deepcopy(base, shared), options)
    except ValueError as error:
        raise ConfigError(f"peft refuses them: {str(error)[:200]}", "task.targets") from None
    names = [f".{name}" for name, _ in base.named_modules()]
    unknown = [name for name in targets if not any(known.endswith(f".{name}") for known in names)]
    if unknown:
        raise ConfigError(f"the model has no layer {unknown[0]!r}; leave it out", "task.targets")
    return replace_stochastic(LogitsOf(adapted))
