"""The example of docs/fine-tuning.md: models of ``transformers`` on Flower, of which clients hold
fewer ranks."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from motley.experiments.config import Experiment
from motley_flower.deployed.client_app import Node
from tests.motley_flower.client_runtimes import deploy
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.test_ranks import logged, trained

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fine-tuning.md"
pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("transformers", "peft")),
        reason="needs the extra hf; run by make test-hf",
    ),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]


@pytest.mark.parametrize("algorithm", ["lora_fedavg", "flexlora"])
def test_the_page_s_clients_train_and_send_the_ranks_that_they_hold(
    algorithm, tmp_path, monkeypatch
):
    """Of two layers of 32 inputs and 96 outputs, 8 ranks have 2 x 8 x 128 = 2048 numbers."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    for block in blocks[:2]:  # the base model and the clients' texts
        exec(block, names)  # noqa: S102 - the page's own
    (block,) = (block for block in blocks if block.startswith("# tuned.py"))
    exec(block, names)  # noqa: S102
    experiment = Experiment(
        task="own",
        population=4,
        cohort=4,
        algorithm=algorithm,
        stop={"rounds": 2},
        local={"epochs": 1, "batch_size": 8, "optimizer": {"name": "adamw", "lr": 0.003}},
        engine="sequential",
    )
    log = []
    nodes = {}
    for client, (text, share) in enumerate(
        zip(sorted(Path("letters").iterdir()), (1.0, 0.5, 0.25, 1.0), strict=True)
    ):
        node = Node(experiment, None, names["mine"])
        config = {"partition-id": client, "folder": str(tmp_path / f"site-{client}")}
        nodes[100 + client] = FakeNode(
            logged(node, log), {**config, "text": str(text), "share": share}
        )
    test = names["served"](str(text))
    done = deploy(FakeGrid(nodes), experiment, tmp_path / "real", task=test)
    assert done.column("rounds", "accepted").tolist() == [4, 4]
    found = {order.client: (order.width, answer) for order, answer, *_ in trained(log)}
    whole = len(found[0][1].upload)
    for client, width in enumerate((1.0, 0.5, 0.25, 1.0)):
        assert found[client][0] == width
        assert len(found[client][1].upload) == whole - 4 * round(2048 * (1 - width))
