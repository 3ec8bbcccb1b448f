import copy
import warnings

import pytest
import torch
from torch import nn

from motley.core.errors import ModelError
from motley.core.keys import Key
from motley.tasks.flat import FlatModule, initial, layout_of
from motley.tasks.models import BasicBlock, factory
from motley.tasks.task import ModelState


def norms() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
        nn.LayerNorm(3),
    )


def test_layout_follows_named_parameters_and_knows_layers() -> None:
    module = norms()
    layout = layout_of(module)
    assert [entry.name for entry in layout] == [name for name, _ in module.named_parameters()]
    assert [entry.norm for entry in layout] == [False, False, True, True, False, False, True, True]
    assert [entry.linear for entry in layout] == [
        False,
        False,
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert layout.last_layer == slice(48, 48 + 51)  # 36 + 4 conv, 4 + 4 norm, then 48 + 3
    assert layout.size == sum(p.numel() for p in module.parameters())


def test_a_shortcut_norm_is_found_by_type_not_by_name() -> None:
    """ResNets call it ``shortcut.1``: the substring "bn" would miss it."""
    layout = layout_of(BasicBlock(4, 8, 2))
    assert layout["shortcut.1.weight"].norm
    assert not layout["shortcut.0.weight"].norm


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripted_layers_are_known_by_the_names_of_their_kinds() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))
    assert layout_of(torch.jit.script(module)) == layout_of(module)


@pytest.mark.parametrize("name", ["mlp", "leaf_cnn", "resnet18", "resnet9"])
def test_flat_gradients_and_state_equal_the_plain_module(name: str) -> None:
    """One forward and backward of the flat module against an untouched copy: same bits, in
    parameters, gradients and buffers."""
    torch.manual_seed(0)
    plain = factory(name, (1, 8, 8), 3)().double()
    flat = FlatModule(copy.deepcopy(plain), torch.float64)
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 1])
    plain.train(), flat.module.train()
    nn.functional.cross_entropy(plain(x), y).backward()
    g = flat.gradient(nn.functional.cross_entropy(flat.module(x), y))
    assert torch.equal(g, torch.cat([p.grad.flatten() for p in plain.parameters()]))
    state = flat.state()
    assert torch.equal(state.x, torch.cat([p.detach().flatten() for p in plain.parameters()]))
    floats = [b.flatten() for b in plain.buffers() if b.is_floating_point()]
    whole = [b.flatten() for b in plain.buffers() if not b.is_floating_point()]
    assert torch.equal(
        state.buffers, torch.cat(floats) if floats else torch.zeros(0, dtype=torch.float64)
    )
    assert torch.equal(
        state.counters, torch.cat(whole) if whole else torch.zeros(0, dtype=torch.int64)
    )


def test_load_and_state_round_trip_and_are_copies() -> None:
    flat = FlatModule(norms())
    other = FlatModule(norms())
    flat.module.train()(torch.randn(5, 1, 4, 4))
    state = flat.state()
    assert state.counters.tolist() == [1]
    other.load(state)
    x = torch.randn(2, 1, 4, 4)
    assert torch.equal(other.module.eval()(x), flat.module.eval()(x))
    flat.w.zero_()
    assert state.x.abs().sum() > 0
    assert other.w.abs().sum() > 0


def test_gradient_overwrites_what_was_there() -> None:
    flat = FlatModule(nn.Linear(2, 1, bias=False))
    for _ in range(2):
        g = flat.gradient(flat.module(torch.tensor([[1.0, 2.0]])).sum())
    assert g.tolist() == [1.0, 2.0]
    assert flat.module.weight.grad.data_ptr() == flat.g.data_ptr()


def test_moving_the_row_moves_the_module() -> None:
    flat = FlatModule(nn.Linear(2, 1))
    flat.w.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert flat.module(torch.tensor([[10.0, 100.0]])).item() == 213.0


def test_a_shared_parameter_is_there_once_and_stays_shared() -> None:
    first = nn.Linear(3, 3, bias=False)
    second = nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    flat = FlatModule(nn.Sequential(first, second), torch.float64)
    assert flat.layout.size == 9
    flat.w.copy_(2 * torch.eye(3, dtype=torch.float64).flatten())
    out = flat.module(torch.ones(1, 3, dtype=torch.float64))
    assert out.tolist() == [[4.0, 4.0, 4.0]]
    assert flat.gradient(out.sum())[0].item() == 4.0  # w^2 x through both uses: 2 w


def test_parameters_over_the_same_memory_are_refused() -> None:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = nn.Parameter(module[0].weight.data)
    with pytest.raises(ModelError, match=r"'0.weight' and '1.weight' lie over the same memory"):
        FlatModule(module)


def test_an_expanded_parameter_is_refused() -> None:
    module = nn.Linear(2, 3)
    module.bias = nn.Parameter(torch.ones(1).expand(3))
    with pytest.raises(ModelError, match=r"parameter 'bias' lie at one place .*value.clone\(\)"):
        layout_of(module)


def test_what_cannot_be_flat_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="no trainable parameters"):
        layout_of(nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of torch call lazy modules new
        lazy = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ModelError, match=r"'0.weight' has no shape yet"):
        layout_of(lazy)


class Odd(nn.Module):
    """Buffers of every sort: replaced instead of changed in place, boolean, not persistent; and a
    frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("constant", torch.full((7,), 5.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x.sum(0)
        self.mask = ~self.mask
        self.count += 1
        return x * self.w


def test_replaced_boolean_and_constant_buffers() -> None:
    flat = FlatModule(Odd())
    assert (flat.layout.size, len(flat.buffers), len(flat.counters)) == (2, 2, 3)
    flat.module(torch.tensor([[1.0, 2.0]]))
    state = flat.state()
    assert state.buffers.tolist() == [1.0, 2.0]
    assert state.counters.tolist() == [1, 0, 1]  # count, then the mask turned over
    flat.load(ModelState(state.x, state.buffers * 10, torch.tensor([7, 1, 1])))
    assert flat.module.seen.tolist() == [10.0, 20.0]
    assert flat.module.mask.tolist() == [True, True]
    flat.module(torch.tensor([[1.0, 2.0]]))
    assert flat.state().buffers.tolist() == [11.0, 22.0]


def test_buffers_keep_their_types_and_belong_to_one_module_alone() -> None:
    """float64 and float16 beside float32 weights; all modules are given the same tensor."""
    given = torch.ones(2, dtype=torch.float16)

    def make() -> nn.Module:
        module = nn.Linear(2, 1)
        module.register_buffer("small", given)
        module.register_buffer("large", torch.tensor([2.0**24 + 1], dtype=torch.float64))
        return module

    one, other = FlatModule(make()), FlatModule(make())
    assert one.buffers.dtype == torch.float64
    assert one.w.dtype == torch.float32
    one.load(ModelState(one.w, torch.tensor([3.0, 4.0, 5.0]).double(), one.counters))
    assert one.module.small.dtype == torch.float16
    assert one.state().buffers.tolist() == [3.0, 4.0, 5.0]
    assert other.state().buffers.tolist() == [1.0, 1.0, 2.0**24 + 1]
    assert given.tolist() == [1.0, 1.0]
    # weights of another type than the run's: all of the module becomes the run's
    assert FlatModule(make().half(), torch.float32).buffers.dtype == torch.float32


def test_frozen_parameters_are_the_same_in_every_module() -> None:
    assert torch.equal(FlatModule.of(Odd).module.frozen, FlatModule.of(Odd).module.frozen)


def test_initial_is_a_function_of_the_key_and_leaves_torchs_generator() -> None:
    make = factory("mlp", (4,), 3)
    before = torch.get_rng_state()
    one = initial(make, Key(0))
    two = initial(make, Key(0))
    other = initial(make, Key(1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.x, two.x)
    assert not torch.equal(one.x, other.x)
    assert torch.equal(initial(make, Key(0), torch.float64).x, one.x.double())


@pytest.mark.gpu
def test_on_an_accelerator() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no accelerator")
    state = initial(norms, Key(0))
    flat = FlatModule.of(norms, device="cuda")
    flat.load(state)
    flat.gradient(flat.module.train()(torch.randn(4, 1, 4, 4, device="cuda")).sum())
    assert flat.g.device.type == "cuda"
    assert flat.state().counters.tolist() == [1]


class Held(nn.Module):
    """Adds a buffer."""

    def __init__(self, held):
        super().__init__()
        self.register_buffer("held", held)

    def forward(self, x):
        return x + self.held


class Sharing(nn.Module):
    """Two layers hold one buffer, which training counts up in the first."""

    def __init__(self):
        super().__init__()
        held = torch.ones(1)
        self.first, self.second = Held(held), Held(held)
        self.o = nn.Linear(2, 1)

    def forward(self, x):
        if self.training:
            self.first.held += 1
        return self.o(self.second(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_buffer_of_two_layers_stays_one(dtype):
    flat = FlatModule(Sharing(), dtype)
    assert [entry.name for entry in flat.layout.buffers] == ["first.held"]
    flat.module.train()(torch.zeros(1, 2, dtype=dtype))
    assert flat.module.second.held.tolist() == [2.0]
    assert flat.state().buffers.tolist() == [2.0]
    flat.load(ModelState(flat.w, torch.tensor([7.0], dtype=dtype), flat.counters))
    assert flat.module.second.held.tolist() == [7.0]
