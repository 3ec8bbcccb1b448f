"""Models of sequences: sizes by hand, that later characters change no earlier scores, and dropout
from keys."""

import pytest
import torch

from motley.core.keys import Key
from motley.tasks.models import factory
from motley.tasks.nn import set_stream
from motley.tasks.sequence_models import LeafLSTM, Transformer

SMALL = {
    "lstm": LeafLSTM(hidden=5, embedding=3),
    "transformer": Transformer(width=8, heads=2, layers=2),
}


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_sizes_by_hand() -> None:
    """LSTM: 76*8 + 4*256*(8+256) + 2*4*256 + 4*256*512 + 2*4*256 + 256*76 + 76. Transformer of
    width w = 128 with 2 blocks: (76+80) w
    + 2 (4 w + 3 w w + 3 w + w w + w + 8 w w + 5 w) + 2 w + 76 w + 76."""
    lstm = 76 * 8 + 1024 * 264 + 2048 + 1024 * 512 + 2048 + 256 * 76 + 76
    assert count(LeafLSTM().build((80,), 76)) == lstm == 818_860
    w = 128
    transformer = 156 * w + 2 * (12 * w * w + 13 * w) + 2 * w + 76 * w + 76
    assert count(Transformer().build((80,), 76)) == transformer == 426_572


@pytest.mark.parametrize("name", SMALL)
def test_a_later_character_changes_no_earlier_scores(name: str) -> None:
    torch.manual_seed(0)
    module = SMALL[name].build((6,), 9).double().eval()
    x = torch.tensor([[1, 2, 3, 4, 5, 6]])
    before = module(x)
    assert before.shape == (1, 6, 9)
    for changed in range(6):
        y = x.clone()
        y[0, changed] = 0
        after = module(y)
        assert torch.equal(after[:, :changed], before[:, :changed])
        assert not torch.isclose(after[:, changed:], before[:, changed:]).all(-1).any()


@pytest.mark.parametrize("name", SMALL)
def test_the_last_score_alone_is_the_last_of_all(name: str) -> None:
    options = SMALL[name]
    torch.manual_seed(0)
    every = options.build((6,), 9).eval()
    last = type(options)(**{**vars(options), "targets": "last"}).build((6,), 9).eval()
    last.load_state_dict(every.state_dict())
    x = torch.tensor([[1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 2, 2]])
    torch.testing.assert_close(last(x), every(x)[:, -1])


@pytest.mark.parametrize("name", SMALL)
def test_dropout_comes_from_the_key(name: str) -> None:
    module = factory(
        type(SMALL[name])(**{**vars(SMALL[name]), "dropout": 0.5}), (6,), 9, sequences=True
    )().train()
    x = torch.zeros(2, 6, dtype=torch.int64)
    before = torch.get_rng_state()
    outs = []
    for seed in (0, 0, 1):
        set_stream(module, Key(seed))
        outs.append(module(x))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    assert torch.equal(torch.get_rng_state(), before)
