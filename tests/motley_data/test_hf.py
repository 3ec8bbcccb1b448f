"""The task ``hf``: windows and padding by hand, what is billed, figures against torch's own, steps
against plain calls of transformers, and what ``peft`` and transformers load. Models are made here;
nothing is downloaded."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import motley
from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.experiments.build import build
from motley.tasks.flat import FlatModule, construct
from motley.tasks.narrow_models import narrowed
from motley.tasks.task import IGNORED
from motley_data.hf import PretrainedModel
from tests.motley.engines.test_memory import measured

needs_extra = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("transformers", "peft")),
    reason="needs the extra hf; run by make test-hf",
)
# what peft calls and transformers will rename
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
TINY = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 8,
    "vocab_size": 256,
    "n_positions": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
}

BERT = {
    "model_type": "bert",
    "vocab_size": 256,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for k, line in enumerate(("abcd ", "badcab ", "dd a ")):
        (folder / f"c{k}.txt").write_text(line * (12 + 3 * k))
    return folder


@pytest.fixture(scope="module")
def done(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> motley.Run:
    """A run of two rounds."""
    return motley.run(keys(texts), out=tmp_path_factory.mktemp("runs") / "run")


def keys(texts: Path, task: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    made = {"name": "hf", "data": str(texts), "base": TINY, "window": 16, "rank": 2, **(task or {})}
    return {
        "task": made,
        "cohort": 2,
        "stop": {"rounds": 2},
        "local": {"epochs": 1, "batch_size": 4, "optimizer": {"lr": 0.5}},
        "evaluate": {"every": 1},
        **more,
    }


def test_the_end_of_a_text_is_padded_and_has_no_target():
    """Ten bytes in windows of 4: abcd -> bcde, efgh -> fghi, and i -> j with three empty places;
    nine leave no token after the second window; one byte has none to predict."""
    task = PretrainedModel(base=TINY, window=4)
    encode = task._encoder()
    assert encode("aé").tolist() == [97, 195, 169]
    no = IGNORED
    assert task._windows(np.arange(10)).tolist() == [
        [0, 1, 2, 3, 4],
        [4, 5, 6, 7, 8],
        [8, 9, no, no, no],
    ]
    assert task._windows(np.arange(9)).tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]
    assert task._windows(np.arange(1)).shape == (0, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, r"rank: got 0; expected at least 1 \(0, all weights, goes with head = \"seq"),
        ({"alpha": 0.0}, "alpha: got 0.0; expected a positive number"),
        ({"dropout": 1.0}, "dropout: got 1.0; expected a share"),
        ({"base": {"n_layer": 2}}, "without model_type; write base = "),
        ({"classes": 3}, 'classes: got 3, and head = "sequence" or "token" reads it; leave it out'),
        ({"head": "token", "rank": -1}, "rank: got -1; expected at least"),
        (
            {"head": "token", "rank": 0, "dropout": 0.1},
            "dropout: got 0.1, and rank = 0 has no adapters; leave it out",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        PretrainedModel(**{"base": TINY, **options})


def test_without_the_extra_the_message_says_what_to_install(texts, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"needs transformers and peft .* pip install .*\[hf\]"):
        PretrainedModel(str(texts), TINY).load(Key(0), 0)


@needs_extra
def test_only_adapters_are_trained_sent_and_billed(texts, done):
    """One layer of 8 inputs and 24 outputs in each of two blocks: rank 2 gives 2 (8 + 24) numbers
    each, 128 in all, of 32 bits. Two clients a round receive and send them."""
    task = build(keys(texts)).setting.task
    assert [entry.shape for entry in task.layout] == [(2, 8), (24, 2)] * 2
    assert done.column("rounds", "down_bits").tolist() == [2 * 128 * 32] * 2
    assert done.column("rounds", "up_paper_bits").tolist() == [2 * 128 * 32] * 2
    fresh, after = task.model().state_dict(), done.module().state_dict()
    same = {name for name, value in fresh.items() if value.equal(after[name])}
    assert {name for name in fresh if "lora" not in name} == same
    assert len(same) > 20


@needs_extra
def test_modules_share_the_memory_of_the_base_and_not_of_the_adapters(texts):
    make = build(keys(texts)).setting.task.model
    one, other = make(), make()
    moved = make().to(torch.float64)
    pairs = zip(one.named_parameters(), other.named_parameters(), strict=True)
    for (name, mine), (_, theirs) in pairs:
        assert (mine.data_ptr() == theirs.data_ptr()) == ("lora" not in name)
    assert {p.dtype for p in one.parameters()} == {torch.float32}
    assert {p.dtype for p in moved.parameters()} == {torch.float64}


@needs_extra
def test_padding_is_in_no_figure(texts, done):
    """Perplexity and accuracy of each client, by torch's cross-entropy over the places that have a
    target; other tokens in the empty places change no score at the others."""
    data = build(keys(texts)).setting.task.federation
    module = done.module()
    found = {}
    for row in done.tables["metrics"].to_pylist():
        if row["round"] == 2 and row["scope"] == "client":
            found[row["client"]] = row["value"]
    assert set(found) == {0, 1, 2}
    for k, perplexity in found.items():
        rows = torch.from_numpy(data.test[k])
        x, y = data.x[rows], data.y[rows]
        with torch.no_grad():
            scores = module(x)
            other = module(torch.where(y == IGNORED, 7, x))
        counted = y != IGNORED
        assert torch.equal(scores[counted], other[counted])
        mean = F.cross_entropy(scores[counted], y[counted], reduction="mean")
        assert perplexity == pytest.approx(math.exp(mean), rel=1e-5)
        hits = (scores[counted].argmax(-1) == y[counted]).double().mean()
        last = done.column("evaluations", "round") == 2
        mine = last & (done.column("evaluations", "client") == k)
        assert done.column("evaluations", "accuracy")[mine] == pytest.approx([float(hits)])
    assert any((data.y == IGNORED).any(1))


@needs_extra
def test_peft_loads_what_a_run_saves_and_gives_the_same_scores(texts, tmp_path):
    import peft
    from transformers import AutoModelForCausalLM

    base = tmp_path / "base"
    torch.manual_seed(3)
    _model(TINY).save_pretrained(base)
    run = motley.run(keys(texts, {"base": str(base), "dropout": 0.1}), out=tmp_path / "run")
    module = run.module()
    module.save_pretrained(tmp_path / "adapter")
    plain = AutoModelForCausalLM.from_pretrained(base)
    loaded = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    x = torch.arange(32).view(2, 16) + 97
    with torch.no_grad():
        scores = loaded(input_ids=x).logits
        with loaded.disable_adapter():
            without = loaded(input_ids=x).logits
        assert torch.equal(scores, module(x))
    assert not torch.equal(scores, without)


@needs_extra
def test_a_folder_brings_its_tokenizer_and_changes_the_run_id(texts, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    base = tmp_path / "base"
    _model({**TINY, "vocab_size": 9}).save_pretrained(base)
    words = {"[UNK]": 0, "abcd": 1, "badcab": 2, "dd": 3, "a": 4}
    made = Tokenizer(models.WordLevel(words, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    options = keys(texts, {"base": str(base), "window": 4})
    with pytest.raises(ConfigError, match=r"gives the token \d+, and the model has 9; name the"):
        build(options)
    before = motley.Experiment(**options).run_id()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]").save_pretrained(base)
    assert motley.Experiment(**options).run_id() != before
    data = build(options).setting.task.federation
    # twelve of client 1's fifteen words are to train on, and the last has none after it
    first = data.train[1]
    assert data.x[first].tolist() == [[2, 2, 2, 2]] * 3
    assert data.y[first].tolist() == [[2, 2, 2, 2]] * 2 + [[2, 2, 2, IGNORED]]


@needs_extra
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"base": "nowhere"}, "task.base: got 'nowhere'; expected the path of a folder with"),
        ({"base": {"model_type": "gpt9"}}, "task.base: transformers refuses it"),
        ({"window": 17}, "got window = 17, and the model reads 16 tokens"),
        ({"base": {**TINY, "n_embd": 9}}, "task.base: transformers refuses it: .*divisible"),
        ({"base": {**TINY, "n_embd": "8"}}, "task.base: transformers refuses it: .*expected int"),
        (
            {"base": {**TINY, "n_layr": 1}},
            r"task.base: .* 'gpt2' has no option 'n_layr' \(did you mean 'n_layer'\?\); leave it",
        ),
        ({"base": {"model_type": "t5"}}, "task.base: transformers refuses it: Unrecognized config"),
        ({"base": {"model_type": "vit"}}, "task.base: a model of the kind 'vit' has no vocabulary"),
        ({"base": BERT}, "task.base: a model of the kind 'bert' sees the tokens that it is to"),
        ({"targets": ["nothing"]}, "task.targets: peft refuses them"),
        ({"targets": ["c_attn", "atn"]}, "task.targets: the model has no layer 'atn'; leave it"),
        ({"tokenizer": "nowhere"}, "task.tokenizer: got 'nowhere'; expected 'bytes', or"),
        ({"base": {**TINY, "vocab_size": 90}}, "gives the token 100, and the model has 90"),
    ],
)
def test_what_does_not_fit_is_said(texts, task, message):
    with pytest.raises((ConfigError, DataError), match=message):
        build(keys(texts, task))


@needs_extra
@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.json", "{", "task.base: transformers cannot read .*not a valid JSON"),
        ("config.json", "{}", "task.base: transformers cannot read .*Unrecognized model"),
        ("model.safetensors", None, "task.base: transformers cannot read .*no file named model"),
        ("model.safetensors", "cut", "task.base: transformers cannot read .*SafetensorError"),
        ("tokenizer.json", "{", "task.tokenizer: transformers cannot read .*JSONDecodeError"),
    ],
)
def test_damaged_folders_are_a_sentence(texts, tmp_path, file, text, message):
    _model(TINY).save_pretrained(tmp_path)
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(text)
    with pytest.raises(DataError, match=message):
        build(keys(texts, {"base": str(tmp_path)}))


@needs_extra
def test_weights_that_a_folder_lacks_are_not_drawn_at_random(texts, tmp_path):
    """A file of two blocks under a configuration of three, each with 12 parameters."""
    _model(TINY).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "n_layer": 3}))
    with pytest.raises(DataError, match=r"lacks 12 of the weights .*such as transformer\.h\.2"):
        build(keys(texts, {"base": str(tmp_path)}))


@needs_extra
def test_every_dropout_of_the_base_is_off(texts):
    config = {**BERT, "model_type": "biogpt"}
    task = build(keys(texts, {"base": config, "targets": ["q_proj"]})).setting.task
    kinds = {type(m).__name__: m for m in task.model().modules()}
    assert all(m.p == 0 for name, m in kinds.items() if name == "Dropout")


@needs_extra
def test_bfloat16_products_learn_nearly_the_same(texts):
    ends = {}
    for precision in ("float32", "bfloat16"):
        loop = build(keys(texts, engine={"name": "sequential"}, precision=precision))
        while not loop.done:
            loop.step()
        ends[precision] = loop.state.server.model.x
    assert not torch.equal(*ends.values())
    torch.testing.assert_close(*ends.values(), atol=2e-2, rtol=0.2)


@needs_extra
def test_a_batch_in_parts_takes_the_same_step_in_less_memory(texts):
    """Batches of 8 in parts of 3, 3 and 2, padded ends among them."""
    ends, sizes = [], []
    for parts in (None, 3):
        work = {"epochs": 1, "batch_size": 8, "micro_batch": parts, "optimizer": {"lr": 0.5}}
        loop = build(keys(texts, local=work, dtype="float64"))
        sizes.append(loop.setting.memory().step)
        while not loop.done:
            loop.step()
        ends.append(loop.state.server.model.x)
    torch.testing.assert_close(*ends, rtol=1e-10, atol=1e-12)
    assert sizes[1] < 0.6 * sizes[0]


@needs_extra
def test_own_task_takes_a_model_with_adapters_and_trains_as_the_task_does(texts):
    import peft

    from motley.tasks.own import own_task

    loop = build(keys(texts, engine={"name": "sequential"}))
    named = loop.setting.task
    base = _model(TINY)
    base.load_state_dict(
        {
            name.removeprefix("model.base_model.model.").replace(".base_layer", ""): value
            for name, value in named.model().state_dict().items()
            if "lora" not in name
        }
    )

    def adapted() -> torch.nn.Module:
        options = peft.LoraConfig(
            r=2, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True
        )
        return peft.get_peft_model(copy.deepcopy(base), options)

    task = own_task(named.federation, adapted, metric="perplexity")
    mine = build({**keys(texts, engine={"name": "sequential"}), "task": task})
    assert [(e.name, e.shape) for e in task.layout] == [(e.name, e.shape) for e in named.layout]
    for one in (loop, mine):
        while not one.done:
            one.step()
    assert torch.equal(loop.state.server.model.x, mine.state.server.model.x)


@needs_extra
def test_merged_adapters_are_saved_as_a_whole_model(texts, tmp_path):
    """GPT-2 stores its layers the other way round; a client of half of the rank is in the stack."""
    from transformers import AutoModelForCausalLM

    capacity = {"name": "levels", "levels": [1.0, 0.5]}
    run = motley.run(keys(texts, algorithm="flora", capacity=capacity), out=tmp_path / "run")
    module = motley.load(run.directory).module()
    products = {name: p for name, p in module.state_dict().items() if "merged_product" in name}
    assert len(products) == 2
    assert all(product.any() for product in products.values())
    module.save_pretrained(tmp_path / "whole")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    tokens = torch.randint(256, (3, 16), generator=torch.Generator().manual_seed(0))
    outputs = module(tokens)
    torch.testing.assert_close(whole(input_ids=tokens).logits, outputs)
    assert (outputs - _model(TINY).eval()(input_ids=tokens).logits).abs().max() > 1e-4
    torch.testing.assert_close(module(tokens), outputs)  # saving leaves the module as it was


@needs_extra
def test_another_kind_of_model_trains_in_every_engine(texts):
    """A llama has rotary buffers that are no part of its state."""
    llama = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_size": 8,
        "intermediate_size": 8,
        "vocab_size": 256,
        "max_position_embeddings": 16,
    }
    ends = []
    for engine in ("sequential", "threads"):
        loop = build(keys(texts, {"base": llama}, engine={"name": engine}, dtype="float64"))
        while not loop.done:
            loop.step()
        ends.append(loop.state.server.model.x)
    assert ends[0].dtype == torch.float64
    torch.testing.assert_close(*ends, rtol=1e-10, atol=1e-12)


@needs_extra
def test_clients_of_half_the_ranks_send_half_and_compute_what_the_cut_model_does(texts, tmp_path):
    """Rank 2, two clients a round: 64 of 128 numbers each way. The narrower module has the scale of
    the whole one, so it computes what the whole one does with its second rank at 0."""
    options = {
        "algorithm": {"name": "lora_fedavg", "measure_bias": True},
        "capacity": {"name": "constant", "width": 0.5},
    }
    run = motley.run(keys(texts, **options), out=tmp_path / "run")
    for column in ("down_bits", "up_paper_bits"):
        assert run.column("rounds", column).tolist() == [2 * 64 * 32] * 2
    assert all("bias" in notes for notes in run.column("rounds", "notes"))
    loop = build(keys(texts, **options))
    task = loop.setting.task
    narrow = FlatModule(narrowed(task.model, task.layout, 0.5, False))
    whole = FlatModule.of(task.model)
    kept = torch.from_numpy(task.layout.kept_positions(0.5))
    weights = torch.arange(128) / 128
    narrow.w.copy_(weights[kept])
    whole.w.zero_()[kept] = weights[kept]
    x = task.federation.x[:3]
    with torch.no_grad():
        one, other = (flat.module.eval()(x) for flat in (narrow, whole))
    torch.testing.assert_close(one, other)
    assert narrow.w.numel() == 64


@needs_extra
def test_the_memory_of_training_is_within_15_percent_of_the_measured_peak(texts, tmp_path):
    """Also fewer ranks take less, and a client that cannot hold its rank is refused."""
    task = {"base": {**TINY, "n_embd": 32}, "rank": 8}
    sizes = {"local": {"steps": 1, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.1}}}
    options = keys(texts, task, algorithm="flexlora", **sizes)
    setting = build(options).setting
    found = setting.memory()
    module = setting.task.model()
    data = setting.task.federation
    rows = torch.arange(8) % len(data.x)

    def step() -> None:
        scores = module(data.x[rows])
        loss = F.cross_entropy(scores.flatten(0, 1), data.y[rows].flatten(), ignore_index=IGNORED)
        loss.backward()

    assert found.total == pytest.approx(measured(module, step, 2, tmp_path), rel=0.15)
    assert found.optimizer == 2 * found.gradients == 2 * 4 * setting.task.layout.size
    assert setting.memory(0.25).total < found.total
    assert setting.memory(0.25).gradients == found.gradients / 4
    little = {"name": "by_memory", "low": 0.001, "high": 0.001, "levels": [1.0, 0.5]}
    with pytest.raises(ConfigError, match=r"training takes .* MB even with the share 0.5"):
        build({**options, "capacity": little})


# ----------------------------------------------------------------- classes of texts and of words


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with a class each, of one to four words, of two clients."""
    folder = tmp_path_factory.mktemp("reviews")
    for k in range(2):
        rows = [
            {
                "text": " ".join(["good" if i % 3 else "bad"] * (1 + i % 4)),
                "label": _SAID[i % 3 > 0],
            }
            for i in range(10 + 5 * k)
        ]
        (folder / f"c{k}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words with a class each, one to three of them; some have none."""
    folder = tmp_path_factory.mktemp("names")
    tokens, labels = ["ann", "went", "home"], ["PER", None, "LOC"]
    for k in range(2):
        rows = [
            {"tokens": tokens[: 1 + i % 3], "labels": labels[: 1 + i % 3]}
            for i in range(10 + 5 * k)
        ]
        (folder / f"c{k}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


_SAID = ("no", "yes")
_AUTO = {
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}


def _classes(data: Path, head: str, base: Any, rank: int, **more: Any) -> dict[str, Any]:
    return keys(data, {"head": head, "base": base, "rank": rank, "window": 24, **more})


def _encoder_folder(folder: Path) -> Path:
    """Write a model that predicts masked tokens, without pooler and classifier, as BERT comes."""
    import transformers

    torch.manual_seed(3)
    config = transformers.BertConfig(**{**BERT, "max_position_embeddings": 24})
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


def _saved(task: Any, weights: torch.Tensor, folder: Path, base: Any, rank: int, head: str) -> Any:
    """Return a model of transformers (and peft) of what Motley's module saved."""
    import peft
    import transformers

    flat = FlatModule.of(task.model)
    flat.w.copy_(weights)
    flat.module.save_pretrained(folder)
    auto = getattr(transformers, _AUTO[head])
    if not rank:
        return auto.from_pretrained(folder)
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    plain = auto.from_pretrained(base, num_labels=task.federation.classes, **off)
    return peft.PeftModel.from_pretrained(plain, folder, is_trainable=True)


@needs_extra
@pytest.mark.parametrize(
    ("head", "kind", "rank"),
    [
        ("sequence", "bert", 0),
        ("sequence", "gpt2", 0),
        ("token", "bert", 0),
        ("sequence", "bert", 2),
        ("token", "bert", 2),
    ],
)
def test_a_step_is_that_of_transformers_without_any_padding(
    head, kind, rank, reviews, names, tmp_path
):
    """A client's step of all its texts, of the saved model and by transformers alone, which sees
    one text at a time: the loss is the mean over texts."""
    base: Any = str(_encoder_folder(tmp_path / "base")) if kind == "bert" else {**TINY}
    if kind == "gpt2":
        base["n_positions"] = 24
    data = {"sequence": reviews, "token": names}[head]
    work = {"epochs": 1, "batch_size": 100, "optimizer": {"lr": 0.5}}
    more = {"local": work, "cohort": 2, "stop": {"rounds": 1}, "algorithm": "fedavg"}
    loop = build({**_classes(data, head, base, rank), **more})
    task = loop.setting.task
    federation = task.federation
    start = loop.state.server.model.x.clone()
    assert federation.names == {"sequence": ("no", "yes"), "token": ("LOC", "PER")}[head]
    steps = []
    for k in range(2):
        plain = _saved(task, start, tmp_path / "start", base, rank, head).train()
        losses = []
        for row in federation.train[k]:
            x, y = federation.x[row], federation.y[row]
            own = x != 0
            losses.append(
                plain(input_ids=x[own][None], labels=(y[own] if y.dim() else y)[None]).loss
            )
        torch.stack(losses).mean().backward()
        torch.optim.SGD((p for p in plain.parameters() if p.requires_grad), 0.5).step()
        steps.append(plain.state_dict())
    loop.step()
    ended = _saved(task, loop.state.server.model.x, tmp_path / "end", base, rank, head)
    share = torch.from_numpy(federation.train.sizes / federation.train.sizes.sum())
    moved = 0
    trained = {name for name, p in ended.named_parameters() if p.requires_grad}
    for name, value in ended.state_dict().items():
        if name in trained:
            mean = sum(w * one[name] for w, one in zip(share, steps, strict=True))
            torch.testing.assert_close(value, mean.float(), atol=1e-6, rtol=0)
            moved += 1
    assert moved > 4
    assert rank or ended.config.id2label == dict(enumerate(federation.names))


@needs_extra
def test_accuracy_and_macro_f1_count_words_that_have_a_class(names, tmp_path):
    from sklearn.metrics import accuracy_score, f1_score

    options = _classes(names, "token", {**TINY, "n_positions": 24}, 0)
    run = motley.run({**options, "metrics": ["macro_f1", "accuracy"]}, out=tmp_path / "run")
    data = build(options).setting.task.federation
    rows = torch.from_numpy(data.test[1])
    y = data.y[rows]
    with torch.no_grad():
        said = run.module()(data.x[rows]).argmax(-1)
    truth, said = y[y != IGNORED], said[y != IGNORED]
    own = {
        row["metric"]: row["value"]
        for row in run.tables["metrics"].to_pylist()
        if row["round"] == 2 and row["client"] == 1
    }
    assert own["macro_f1"] == pytest.approx(f1_score(truth, said, average="macro"))
    last = (run.column("evaluations", "round") == 2) & (run.column("evaluations", "client") == 1)
    accuracy = run.column("evaluations", "accuracy")[last]
    assert accuracy == pytest.approx([accuracy_score(truth, said)])


def _with_words(folder: Path, words: list[str]) -> None:
    """Save a tokenizer of these pieces of words, which puts [CLS] and [SEP] around a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    known = {word: k for k, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    made = Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    marks = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    PreTrainedTokenizerFast(tokenizer_object=made, **marks).save_pretrained(folder)


@needs_extra
def test_the_first_token_of_a_word_has_its_class(tmp_path):
    """[CLS] ann went ##ing home [SEP]; a text of eight tokens is cut to six, its end mark kept."""
    base = _encoder_folder(tmp_path / "base")
    _with_words(base, ["ann", "go", "##ing", "home"])
    rows = [
        {"tokens": ["ann", "going", "home"], "labels": [1, 0, -100]},
        {"tokens": ["home"] * 6, "labels": [1, 0, 1, 0, 1, 0]},
    ] * 3
    data = tmp_path / "all.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    task = PretrainedModel(str(data), str(base), window=6, head="token", rank=2)
    with pytest.warns(UserWarning, match=r"3 of 6 texts are longer than window = 6 .* has 8"):
        found = task.load(Key(0), 0)
    no = IGNORED
    assert found.x[:2].tolist() == [[2, 4, 5, 6, 7, 3], [2, 7, 7, 7, 7, 3]]
    assert found.y[:2].tolist() == [[no, 1, 0, no, no, no], [no, 1, 0, 1, 0, no]]
    assert found.classes == 2


@needs_extra
def test_a_pair_is_told_as_transformers_tells_it(tmp_path):
    """[CLS] ann home [SEP] go [SEP], of which text each token is, and the scores of the model that
    transformers loads."""
    import transformers

    base = _encoder_folder(tmp_path / "base")
    _with_words(base, ["ann", "go", "##ing", "home"])
    for k in range(2):
        rows = [
            {"text_a": "ann home", "text_b": ["go", "ann"][i % 2], "label": _SAID[i % 2]}
            for i in range(10)
        ]
        (tmp_path / f"c{k}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = tmp_path / "data"
    files.mkdir()
    for path in tmp_path.glob("c*.jsonl"):
        path.rename(files / path.name)
    columns = {"text": "text_a", "pair": "text_b", "window": 8}
    options = _classes(files, "sequence", str(base), 0, **columns)
    run = motley.run(options, out=tmp_path / "run")
    x = build(options).setting.task.federation.x
    assert x[:2].tolist() == [
        [[2, 4, 7, 3, 5, 3, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]],
        [[2, 4, 7, 3, 4, 3, 0, 0], [0, 0, 0, 0, 1, 1, 0, 0]],
    ]
    module = run.module()
    with torch.no_grad():  # of which text a token is shall count
        module.model.bert.embeddings.token_type_embeddings.weight[1] = torch.arange(8.0)
    module.save_pretrained(tmp_path / "saved")
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    with torch.no_grad():
        mine = module(x[:2])
        own = {"input_ids": x[:2, 0, :6], "token_type_ids": x[:2, 1, :6]}
        torch.testing.assert_close(mine, plain.eval()(**own).logits, atol=1e-6, rtol=0)
        swapped = module(torch.stack([x[:2, 0], 1 - x[:2, 1]], 1))
    assert (mine - swapped).abs().max() > 1e-3
    # a model that reads no such thing gets tokens alone
    gpt = _classes(files, "sequence", {**TINY, "n_positions": 24}, 0, **columns, tokenizer="bytes")
    with pytest.warns(UserWarning, match="texts are longer than window = 8"):
        assert build(gpt).setting.task.federation.x.shape == (20, 8)
    with pytest.raises(ConfigError, match=r"pair: got 'text_b', and head = \"sequence\" reads it"):
        PretrainedModel(str(files), str(base), head="token", pair="text_b")


@needs_extra
def test_a_head_is_drawn_by_the_seed_and_a_pooler_that_lacks_is_trained(reviews, tmp_path):
    base = str(_encoder_folder(tmp_path))
    task = build(_classes(reviews, "sequence", base, 2)).setting.task
    trained = {entry.name.split(".modules_to_save")[0] for entry in task.layout}
    assert {name.rpartition(".")[2] for name in trained if "lora" not in name} == {
        "classifier",
        "pooler",
    }
    first, second, again = (
        {name: p.clone() for name, p in construct(task.model, seed).named_parameters()}
        for seed in (0, 1, 0)
    )
    head = [name for name in first if "modules_to_save" in name and "weight" in name]
    assert len(head) == 2
    for name, value in first.items():
        assert value.equal(again[name])
        assert value.equal(second[name]) == ("lora_A" not in name and name not in head) or (
            "original_module" in name
        )


@needs_extra
def test_a_folder_of_classes_keeps_their_order(reviews, tmp_path):
    """The folder calls class 0 yes; the labels in order would call it no."""
    import transformers

    config = transformers.BertConfig(
        **{**BERT, "max_position_embeddings": 24}, id2label={0: "yes", 1: "no"}
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    federation = build(_classes(reviews, "sequence", str(tmp_path), 0)).setting.task.federation
    assert federation.names == ("yes", "no")
    told = _classes(reviews, "sequence", str(tmp_path), 0, classes=["no", "yes"])
    with pytest.raises(ConfigError, match="tells yes, no apart, and the labels are no, yes; call"):
        build(told)
    more = _classes(reviews, "sequence", str(tmp_path), 0, classes=["no", "yes", "perhaps"])
    with pytest.raises(ConfigError, match="tells yes, no apart, and the labels are no, yes, perh"):
        build(more)


@needs_extra
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"base": {**BERT, "max_position_embeddings": 8}}, "window = 24, and the model reads 8"),
        (
            {"base": {"model_type": "fnet", "vocab_size": 256, "hidden_size": 8}, "rank": 0},
            "padding changes the scores of a model of the kind 'fnet', which has no attention_mask",
        ),
        (
            {"base": {"model_type": "distilbert", "dim": 8, "n_heads": 2, "n_layers": 1}},
            "does not say which layers .* 'distilbert' get adapters; name some of \\[\"q_lin\", ",
        ),
        ({"base": {**BERT, "pad_token_id": 103}}, "begins or ends with the token 103, which is"),
        ({"label": "class"}, "has no column 'class'; its columns: text, label"),
        ({"head": "token", "text": "text", "label": "label"}, "is string; expected lists of words"),
        ({"classes": ["no", "perhaps"]}, "the label 'yes' is not in task.classes"),
        ({"client": "who"}, "task.client: got 'who', and each file of .* is a client's"),
        ({"min_examples": 16}, "no client has 16 training texts"),
    ],
)
def test_classes_that_cannot_be_are_refused(reviews, task, message):
    base = {**BERT, "max_position_embeddings": 24}
    with pytest.raises((ConfigError, DataError), match=message):
        build(_classes(reviews, **{"head": "sequence", "base": base, "rank": 2, **task}))


def _model(config: dict[str, Any]) -> Any:
    """Return a model of transformers without dropout and adapters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    options = json.loads(json.dumps(config))
    made = AutoConfig.for_model(options.pop("model_type"), **options)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(made, name, 0.0)
    return AutoModelForCausalLM.from_config(made)
