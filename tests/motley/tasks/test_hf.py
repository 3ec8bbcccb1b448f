"""The task ``hf``: windows and padding by hand, what is billed, figures against torch's own, and
adapters that ``peft`` loads. Models are made here; nothing is downloaded."""

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
from motley.tasks.flat import FlatModule
from motley.tasks.hf import AdaptedLanguageModel
from motley.tasks.narrow_models import narrowed
from motley.tasks.task import IGNORED
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
    task = AdaptedLanguageModel(base=TINY, window=4)
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
        ({"rank": 0}, "rank: got 0; expected at least 1"),
        ({"alpha": 0.0}, "alpha: got 0.0; expected a positive number"),
        ({"dropout": 1.0}, "dropout: got 1.0; expected a share"),
        ({"base": {"n_layer": 2}}, "without model_type; write base = "),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        AdaptedLanguageModel(**{"base": TINY, **options})


def test_without_the_extra_the_message_says_what_to_install(texts, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ConfigError, match=r"needs transformers and peft .* pip install .*\[hf\]"):
        AdaptedLanguageModel(str(texts), TINY).load(Key(0), 0)


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


def _model(config: dict[str, Any]) -> Any:
    """Return a model of transformers without dropout and adapters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    options = json.loads(json.dumps(config))
    made = AutoConfig.for_model(options.pop("model_type"), **options)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(made, name, 0.0)
    return AutoModelForCausalLM.from_config(made)
