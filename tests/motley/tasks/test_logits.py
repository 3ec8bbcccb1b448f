"""Models of ``transformers`` in own tasks: every input that their ``forward`` names, and a training
step, against plain calls of the same model. Weights are random; nothing is downloaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import motley
from motley.core.errors import ModelError
from motley.tasks import from_clients, own_task
from motley.tasks.flat import construct
from motley.tasks.logits import LogitsOf, as_logits

needs_extra = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="needs the extra hf; run by make test-hf",
)
PAD = 1
SIZES = (5, 7)
TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 20,
    "vocab_size": 40,
    "pad_token_id": PAD,
    "initializer_range": 0.5,
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
}
PICTURE = {
    **{name: TEXT[name] for name in TEXT if name not in ("vocab_size", "pad_token_id")},
    "image_size": 8,
    "patch_size": 4,
}
DECODER = {
    **{name: TEXT[name] for name in TEXT if "dropout" not in name},
    "bos_token_id": 2,
    "eos_token_id": 2,
}


def sentences(rng: np.random.Generator, n: int, left: bool = False) -> np.ndarray[Any, Any]:
    """Return n rows of 9 tokens of which the last 0 to 6, or the first, are padding."""
    rows = rng.integers(5, 40, size=(n, 9))
    for row in rows:
        row[rng.integers(3, 10) :] = PAD
    return rows[:, ::-1].copy() if left else rows


def classes(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    return sentences(rng, n), np.arange(n) % 3


def tags(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    rows = sentences(rng, n)
    return rows, np.where(rows == PAD, -100, rows % 3)


def masked(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    rows = sentences(rng, n)
    hidden = (rows % 4 == 0) | (np.arange(9) == 0)
    return np.where(hidden, 3, rows), np.where(hidden, rows, -100)


def next_tokens(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    rows = sentences(rng, n, left=True)
    return rows, np.where(rows == PAD, -100, np.roll(rows, -1, axis=1))


def pictures(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    return rng.normal(size=(n, 3, 8, 8)).astype(np.float32), np.arange(n) % 3


def padded(model: Any, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(input_ids=x, attention_mask=(x != PAD).long()).logits
    return out


def seen(model: Any, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = model(pixel_values=x).logits
    return out


HEADS: dict[str, tuple[str, dict[str, Any], Callable[..., Any], Callable[..., Any]]] = {
    "RobertaForSequenceClassification": ("RobertaConfig", TEXT, classes, padded),
    "BertForTokenClassification": ("BertConfig", TEXT, tags, padded),
    "ElectraForMaskedLM": ("ElectraConfig", {**TEXT, "embedding_size": 16}, masked, padded),
    "LlamaForCausalLM": ("LlamaConfig", DECODER, next_tokens, padded),
    "ViTForImageClassification": ("ViTConfig", PICTURE, pictures, seen),
}


def maker(head: str, **options: Any) -> Callable[[], nn.Module]:
    import transformers

    config, values, _, _ = HEADS[head]
    made = getattr(transformers, config)(**values, num_labels=3, **options)
    return lambda: getattr(transformers, head)(made)


@needs_extra
@pytest.mark.parametrize("head", HEADS)
def test_outputs_and_a_step_are_those_of_plain_calls(head: str, tmp_path: Any) -> None:
    _, _, data, plain = HEADS[head]
    rng = np.random.default_rng(0)
    clients = [data(rng, n) for n in SIZES]
    first = construct(maker(head), 7).state_dict()

    def make() -> nn.Module:
        module = maker(head)()
        module.load_state_dict(first)
        return module

    task = own_task(from_clients(clients, test=clients), make)
    x = torch.from_numpy(clients[0][0])
    torch.testing.assert_close(task.model().eval()(x), plain(make().eval(), x))
    local = {"epochs": 1, "batch_size": 100, "optimizer": {"lr": 0.1}}
    run = motley.run(
        {"cohort": 2, "stop": {"rounds": 1}, "local": local}, task=task, out=tmp_path / "run"
    )
    after = []
    for inputs, targets in clients:
        module = make().train()
        outputs = plain(module, torch.from_numpy(inputs))
        y = torch.from_numpy(targets)
        losses = F.cross_entropy(outputs.movedim(-1, 1), y, reduction="none")
        if y.dim() > 1:  # a sample's loss is the mean over its positions
            losses = losses.sum(1) / (y != -100).sum(1).clamp(min=1)
        losses.mean().backward()
        torch.optim.SGD(module.parameters(), 0.1).step()
        after.append(module.state_dict())
    found = run.module().model.state_dict()
    for name in (name for name, value in found.items() if value.is_floating_point()):
        mean = sum(n * one[name] for n, one in zip(SIZES, after, strict=True)) / sum(SIZES)
        torch.testing.assert_close(found[name], mean, atol=1e-6, rtol=1e-5)
        assert mean.ndim < 2 or not torch.equal(found[name], first[name]) or "embed" in name


@needs_extra
def test_rows_of_a_sample_are_the_inputs_that_were_named() -> None:
    """Pairs of sentences: tokens, mask and token types as a tokenizer gives them."""
    import transformers

    config = transformers.BertConfig(**TEXT, num_labels=3)
    bert = construct(lambda: transformers.BertForSequenceClassification(config), 0).eval()
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(sentences(rng, 4))
    types = (torch.arange(9) > 3).long().expand(4, -1)
    mask = (tokens != PAD).long()
    names = ("input_ids", "attention_mask", "token_type_ids")
    out = LogitsOf(bert, names)(torch.stack([tokens, mask, types], 1))
    plain = bert(input_ids=tokens, attention_mask=mask, token_type_ids=types).logits
    torch.testing.assert_close(out, plain)
    assert (out - padded(bert, tokens)).abs().max() > 1e-3
    # without a mask of one's own it is made of the padding
    two = LogitsOf(bert, names[::2])(torch.stack([tokens, types], 1))
    torch.testing.assert_close(two, plain)


class Pretend(nn.Module):
    """The part of a model of ``transformers`` that is looked at; it gives what it was given."""

    main_input_name = "input_ids"

    def __init__(self, pad: int | None = PAD) -> None:
        super().__init__()
        self.config = SimpleNamespace(pad_token_id=pad)

    def forward(
        self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None
    ) -> Any:
        return SimpleNamespace(logits=[input_ids, attention_mask, token_type_ids])


def test_padding_is_what_stands_before_and_after_a_row_alone() -> None:
    """GPT-2 pads with the token that also ends a text inside the row."""
    x = torch.tensor([[1, 1, 5, 1, 6, 1], [5, 6, 7, 8, 9, 9], [1, 1, 1, 1, 1, 1]])
    expected = [[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]
    given: Any = LogitsOf(Pretend())(x)
    assert given[0] is x
    assert given[1].tolist() == expected
    assert given[2] is None
    without: Any = LogitsOf(Pretend(None))(x)
    assert without[1] is None


def test_names_rows_and_outputs_that_do_not_fit_are_said() -> None:
    with pytest.raises(
        ModelError, match="has no input 'types'; expected some of: attention_mask, "
    ):
        LogitsOf(Pretend(), ("input_ids", "types"))
    two = LogitsOf(Pretend(), ("input_ids", "token_type_ids"))
    with pytest.raises(ModelError, match="3 rows; expected one for each of input_ids, token_type"):
        two(torch.zeros(4, 3, 9, dtype=torch.int64))
    headless = Pretend()
    headless.forward = lambda input_ids: SimpleNamespace(hidden=input_ids)  # type: ignore[method-assign,assignment,misc]
    with pytest.raises(ModelError, match="has no logits; take the model with its head"):
        LogitsOf(headless)(torch.zeros(1, 1))


def test_other_modules_stay_as_they_are() -> None:
    module = nn.Linear(2, 2)
    assert as_logits(module) is module


@needs_extra
@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification"])
def test_a_run_of_a_classifier_is_a_folder_that_transformers_loads(
    kind: str, tmp_path: Path
) -> None:
    import transformers

    def made() -> nn.Module:
        config = transformers.BertConfig(**TEXT, num_labels=3)
        model: nn.Module = getattr(transformers, f"BertFor{kind}")(config)
        return model

    rng = np.random.default_rng(0)
    tokens = [sentences(rng, 12) for _ in range(3)]
    labels = [rows % 3 if kind.startswith("Token") else rows[:, 0] % 3 for rows in tokens]
    clients = list(zip(tokens, labels, strict=True))
    task = own_task(from_clients(clients, test_fraction=0.25), made)
    keys = {"cohort": 2, "stop": {"rounds": 2}, "local": {"epochs": 1, "batch_size": 4}}
    run = motley.run(keys, task=task, out=tmp_path / "run")
    module = run.module()
    module.save_pretrained(tmp_path / "model")
    auto = getattr(transformers, f"AutoModelFor{kind}")
    again = auto.from_pretrained(tmp_path / "model", local_files_only=True).eval()
    rows = torch.from_numpy(tokens[0])
    rows = rows[(rows != PAD).all(1)]
    with torch.no_grad():
        torch.testing.assert_close(again(rows).logits, module(rows))
    assert run.predict(rows).shape == ((len(rows), 9) if kind.startswith("Token") else (len(rows),))
