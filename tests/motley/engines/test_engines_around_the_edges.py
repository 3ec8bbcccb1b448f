"""What else every engine promises: order, thread counts, failures, unequal rates, shifts,
augmentation, the auto rule."""

import dataclasses
import re
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.fedprox import Proximal
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import GradientCorrection, LocalRule, Loss
from motley.core.errors import ContractError, EngineError
from motley.core.keys import Key
from motley.core.usable_cores import at_once, cores
from motley.core.work import LocalWork
from motley.engines import ENGINES, resolve_auto
from motley.engines.batched import Batched, Vmap, fastest_division
from motley.engines.cores import ThreadPool, torch_threads
from motley.engines.engine import Job
from motley.engines.local import Debug, Sequential, Threads
from motley.engines.stages import bounded
from motley.tasks.flat import initial
from motley.tasks.nn import Dropout

from .conftest import TwoProcesses

ALL = [Sequential, Threads, Batched, Vmap, TwoProcesses]


def mlp():
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))


class Varied(LocalRule):
    """A pull and a shift that differ from client to client."""

    def correction(self, ctx):
        return GradientCorrection(
            ctx.num_examples / 50,
            torch.linspace(-1, 1, len(ctx.x), dtype=ctx.x.dtype) * ctx.num_examples / 100,
        )


class Shifted(LocalRule):
    """A shift for everybody."""

    def correction(self, ctx):
        return GradientCorrection(0.2, torch.linspace(-1, 1, len(ctx.x), dtype=ctx.x.dtype))


class Drifting(LocalRule):
    """A step outside of the optimizer, which differs from client to client."""

    def correction(self, ctx):
        return GradientCorrection(
            drift=torch.linspace(-1, 1, len(ctx.x), dtype=ctx.x.dtype) * ctx.num_examples / 100
        )


def deltas(engine, jobs, sent):
    out = torch.stack([trained.parts["delta"].value for trained in engine.train(jobs, sent, {})])
    engine.close()
    return out


@pytest.mark.parametrize("correction", [Varied(), Shifted(), Drifting()])
@pytest.mark.parametrize("solver", [SGD(lr=0.1), SGD(lr=0.1, momentum=0.5)])
@pytest.mark.parametrize("engine", ALL[1:])
def test_rates_pulls_and_shifts_may_differ_between_clients(
    setting, jobs, download, engine, solver, correction
):
    s = setting(mlp, local=correction, solver=solver, threads=2)
    sent = download(s)
    varied = [Job(j.client, j.dispatch, j.steps, 0.02 * (1 + j.client)) for j in jobs(s)]
    for work in (jobs(s), varied):
        torch.testing.assert_close(
            deltas(engine(s), work, sent), deltas(Sequential(s), work, sent), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("engine", ALL)
def test_fedprox_at_zero_is_fedavg_bit_for_bit(setting, jobs, download, engine):
    plain = setting(mlp, dtype=torch.float32)
    prox = setting(mlp, local=Proximal(0.0), dtype=torch.float32)
    assert torch.equal(
        deltas(engine(plain), jobs(plain), download(plain)),
        deltas(engine(prox), jobs(prox), download(prox)),
    )


@pytest.mark.parametrize("engine", ALL)
def test_the_same_twice_bit_for_bit(setting, jobs, download, engine):
    s = setting(mlp, dtype=torch.float32)
    assert torch.equal(
        deltas(engine(s), jobs(s), download(s)), deltas(engine(s), jobs(s), download(s))
    )


@pytest.mark.parametrize("engine", [*ALL, Debug])
def test_torch_threads_are_left_as_they_were(setting, jobs, download, engine):
    before = torch.get_num_threads()
    s = setting(mlp, threads=1)
    run = engine(s)
    for _ in run.train(jobs(s), download(s), {}):
        assert torch.get_num_threads() == before
    run.measure(np.arange(8), download(s), {}, {"loss": 1}, s.streams.key("probe"))
    run.close()
    assert torch.get_num_threads() == before


def test_a_share_of_the_cores_bounds_what_runs_at_once_and_not_how_work_is_divided(monkeypatch):
    monkeypatch.setattr("motley.core.usable_cores._shared", (4, 2))
    assert (cores(), cores(3), at_once(1), at_once(4)) == (4, 3, 1, 2)
    before = torch.get_num_threads()
    with torch_threads(4):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("engine", "operations"), [(Batched, 2 * 103), (Vmap, 2 * (54 + 36))])
@pytest.mark.parametrize(("batch", "width"), [(5, 5), (20, 9.625)])
def test_threads_take_part_whose_steps_are_worth_it(
    setting, monkeypatch, engine, operations, batch, width
):
    """With w the work of a client's step, 8 clients take 8 w + a alone, or on n threads
    8 w / n + n t, with a and t the overheads; sizes 7, 1, 23, ... have a mean of 9.625."""
    monkeypatch.setattr("motley.core.usable_cores._shared", (8, 2))
    groups = []
    work = operations * width
    for alone, together in ((0.0, 0.6), (0.0, 0.9), (0.0, 1.1), (0.0, 1.9), (0.0, 2.1), (0.3, 2.1)):
        monkeypatch.setattr("motley.engines.batched.OVERHEAD_ALONE", alone * work)
        monkeypatch.setattr("motley.engines.batched.OVERHEAD_TOGETHER", together * work)
        run = engine(setting(mlp, work=LocalWork(batch, epochs=2), threads=4))
        groups.append([len(group) for group in run._groups(list(range(8)))])
        run.close()
    # n = 1, 2, 3, 4: 8, 4 + 2 t, 8 / 3 + 3 t, 2 + 4 t
    assert groups == [[2] * 4, [3, 3, 2], [3, 3, 2], [4, 4], [8], [4, 4]]


@pytest.mark.parametrize(
    ("together", "threads"),
    [(1.4, (2, 2, 1)), (1.6, (1, 2, 1)), (2.2, (1, 2, 1)), (2.3, (1, 1, 1))],
)
def test_chunks_of_few_clients_count_each_step(monkeypatch, together, threads):
    """8 clients in chunks of 2 take 4 (2 + 0.5) = 10 on one thread, 2 (2 + 2 t) on two, with t the
    overhead together; in chunks of 8 they take 8.5, or 4 + 2 t; one client is not divided."""
    monkeypatch.setattr("motley.engines.batched.OVERHEAD_ALONE", 0.5)
    monkeypatch.setattr("motley.engines.batched.OVERHEAD_TOGETHER", together)
    divisions = [
        fastest_division(clients, largest, workers=2, operations=1.0)
        for clients, largest in ((8, 2), (8, 8), (1, 8))
    ]
    assert tuple(divisions) == threads


def test_a_single_task_of_a_pool_is_done_in_the_callers_thread():
    pool = ThreadPool(["first", "second"])
    caller = threading.current_thread()
    single = list(pool.map(lambda state, task: (task, threading.current_thread()), [7]))
    assert single == [(7, caller)]
    several = list(pool.map(lambda state, task: threading.current_thread(), [7, 8]))
    pool.close()
    assert caller not in several


def test_cores_are_at_most_what_is_allowed():
    assert cores(1) == 1
    assert cores(10**6) == cores() >= 1


@pytest.mark.parametrize("engine", ALL)
def test_a_client_that_diverges_is_marked_and_harms_nobody(setting, jobs, download, engine):
    s = setting(mlp, work=LocalWork(5, epochs=3))
    sent = download(s)
    good = jobs(s)
    bad = [Job(j.client, j.dispatch, j.steps, 1e300 if j.client == 5 else j.lr) for j in good]
    run = engine(s)
    found = {t.client: t for t in run.train(bad, sent, {})}
    run.close()
    assert [client for client, trained in found.items() if not trained.finite] == [5]
    for trained in Sequential(s).train(good, sent, {}):
        if trained.client != 5:
            mine = found[trained.client].parts["delta"].value
            torch.testing.assert_close(mine, trained.parts["delta"].value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("engine", ALL)
def test_no_jobs_and_no_steps(setting, download, engine):
    s = setting(mlp, sizes=(3, 0, 2))
    run = engine(s)
    assert list(run.train([], download(s), {})) == []
    (idle, busy) = run.train([Job(1, 0, 0, 0.1), Job(2, 1, 1, 0.1)], download(s), {})
    run.close()
    assert idle.steps == 0
    assert idle.finite
    assert np.isnan(idle.signals["loss"])
    assert not idle.parts["delta"].value.any()
    assert busy.steps == 1
    assert busy.parts["delta"].value.any()


@pytest.mark.parametrize("engine", [Threads, Batched])
def test_augmentation_belongs_to_the_job_not_to_the_engine(setting, jobs, download, engine):
    def jitter(x, key):
        return (
            x
            if key is None
            else x + 0.1 * torch.from_numpy(key.numpy().normal(size=x.shape)).float()
        )

    s = setting(mlp, threads=2, transform=jitter)
    torch.testing.assert_close(
        deltas(engine(s), jobs(s), download(s)),
        deltas(Sequential(s), jobs(s), download(s)),
        rtol=1e-10,
        atol=1e-12,
    )
    still = setting(mlp)
    assert not torch.allclose(
        deltas(Sequential(s), jobs(s), download(s)),
        deltas(Sequential(still), jobs(still), download(still)),
    )


def test_dropout_belongs_to_the_job(setting, jobs, download):
    s = setting(lambda: nn.Sequential(nn.Linear(6, 30), Dropout(0.5), nn.Linear(30, 4)), threads=2)
    work = jobs(s)
    whole = deltas(Sequential(s), work, download(s))
    assert torch.equal(deltas(Sequential(s), work[3:4], download(s))[0], whole[3])
    torch.testing.assert_close(deltas(Threads(s), work, download(s)), whole, rtol=1e-10, atol=1e-12)


def test_batchnorm_statistics_are_each_clients_own(setting, jobs, download):
    """Running mean after one step with momentum 0.1 from 0 is a tenth of the batch mean; a batch of
    one moves nothing."""
    s = setting(
        lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), work=LocalWork(50, epochs=1)
    )
    data = s.task.federation
    for trained in Sequential(s).train(jobs(s), download(s), {}):
        rows = torch.from_numpy(data.train[trained.client])
        alone = len(rows) == 1
        wanted = torch.zeros(6) if alone else data.x[rows].double().mean(0) / 10
        torch.testing.assert_close(
            trained.parts["buffers"].value[:6], wanted.double(), rtol=1e-10, atol=1e-12
        )
        assert trained.parts["counters"].value.tolist() == [0 if alone else 1]
        assert trained.finite


class Frozen(nn.BatchNorm1d):
    """Fine-tuning's habit: statistics that are never moved."""

    def train(self, mode=True):
        return super().train(False)


def test_a_frozen_normalisation_stays_frozen_after_a_batch_of_one(setting, jobs, download):
    """23 samples in batches of 11 and twice over: the third batch of each epoch is a single
    sample."""
    s = setting(lambda: nn.Sequential(Frozen(6), nn.Linear(6, 4)), work=LocalWork(11, epochs=2))
    (trained,) = Sequential(s).train(jobs(s, clients=(2,)), download(s), {})
    assert trained.steps == 6
    assert trained.parts["counters"].value.tolist() == [0]
    assert trained.parts["buffers"].value.tolist() == [0.0] * 6 + [1.0] * 6


class Prepared(CrossEntropy):
    """Weighs every sample by the received model's confidence in its label."""

    def prepare(self, context, forward, inputs, targets):
        return {
            "confidence": forward(inputs).softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        }

    def loss(self, outputs, targets, extra):
        return super().loss(outputs, targets, extra) * extra.get("confidence", torch.ones(()))

    gradient = Loss.gradient  # the plain loss's closed form would not know of the confidence


def test_a_loss_may_prepare_itself_per_sample(setting, jobs, download):
    s = setting(mlp, loss=Prepared(), threads=2)
    sent = download(s)
    ours = deltas(Sequential(s), jobs(s), sent)
    plain = deltas(Sequential(setting(mlp)), jobs(s), sent)
    assert not torch.allclose(ours, plain)
    torch.testing.assert_close(deltas(Threads(s), jobs(s), sent), ours, rtol=1e-10, atol=1e-12)
    for engine in (Batched, Vmap):
        torch.testing.assert_close(deltas(engine(s), jobs(s), sent), ours, rtol=1e-10, atol=1e-12)
    assert resolve_auto(s) == "batched"


class WholeModel(Loss):
    whole_model = True

    def loss(self, outputs, targets, extra):
        return outputs.sum(-1)


def unlinear():
    return nn.Sequential(nn.Conv1d(1, 4, 6), nn.Flatten())


@pytest.mark.parametrize("engine", ALL)
def test_what_an_engine_refuses_it_does_not_run(setting, engine):
    """A loss over features: batched engines take none, the others want a linear layer."""
    s = (
        setting(mlp, loss=WholeModel())
        if engine in (Batched, Vmap)
        else setting(unlinear, (1, 6), loss=WholeModel())
    )
    assert "the loss WholeModel compares" in engine.refuses(s)
    with pytest.raises(ContractError, match="was given a setting it refuses"):
        engine(s)


def test_debug_says_where_a_number_stopped_being_finite(setting, jobs, download):
    s = setting(mlp)
    work = [Job(j.client, j.dispatch, j.steps, 1e300) for j in jobs(s)]
    with pytest.raises(EngineError, match="of step 1 of client 2 is not finite") as caught:
        list(Debug(s).train(work, download(s), {}))
    assert caught.value.context["client"] == 2
    assert caught.value.context["step"] == 1
    assert caught.value.context["inputs"].shape == (5, 6)


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 4)

    def forward(self, x):
        if len(x) == 3:
            raise ValueError("three is a crowd")
        return self.inner(x)


@pytest.mark.parametrize("engine", [Sequential, Threads])
def test_a_module_that_fails_names_the_client(setting, jobs, download, engine):
    s = setting(Broken, threads=2)
    run = engine(s)
    with pytest.raises(EngineError, match="client 2 failed: three is a crowd") as caught:
        list(run.train(jobs(s, clients=(2,)), download(s), {}))
    run.close()
    assert caught.value.context["step"] == 4  # 23 samples are four batches of five, and three
    assert len(caught.value.context["inputs"]) == 3


@pytest.mark.parametrize(
    ("model", "shape", "wanted"),
    [
        (mlp, (6,), "batched"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 4)), (2, 3), "batched"),
        (lambda: nn.Linear(6, 4), (6,), "batched"),
        (lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)), (6,), "vmap"),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU()), (6,), "vmap"),
        (lambda: nn.Sequential(nn.Linear(6, 400), nn.Tanh(), nn.Linear(400, 400)), (6,), "threads"),
        (
            lambda: nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Linear(9, 4)),
            (6,),
            "threads",
        ),
        (lambda: nn.Sequential(nn.Linear(6, 9), Dropout(0.1), nn.Linear(9, 4)), (6,), "threads"),
        (lambda: nn.Sequential(nn.Linear(6, 9), Dropout(0.0), nn.Linear(9, 4)), (6,), "batched"),
    ],
)
def test_the_auto_rule(setting, model, shape, wanted):
    assert resolve_auto(setting(model, shape)) == wanted


def convolutions():
    """2 (16 x 16 x 8 x 9 + 8 x 8 x 16 x 72 + 256 x 10) = 189,440 operations forward a sample: 53 of
    them take more than 10 million."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


@pytest.mark.parametrize(
    ("batch_size", "held", "device", "wanted"),
    [
        (53, 80, "cpu", "threads"),
        (52, 80, "cpu", "vmap"),
        (1000, 52, "cpu", "vmap"),
        (1000, 53, "cpu", "threads"),
        (53, 80, "cuda", "vmap"),
    ],
)
def test_large_steps_of_convolutions_are_for_threads(
    setting, monkeypatch, batch_size, held, device, wanted
):
    monkeypatch.setattr(Vmap, "refuses", lambda _: None)  # it tries the model on the device
    s = setting(
        convolutions,
        (1, 16, 16),
        work=LocalWork(batch_size=batch_size, epochs=1),
        sizes=(held,) * 3,
    )
    assert s.forward_operations() == 189_440
    assert resolve_auto(dataclasses.replace(s, device=device)) == wanted


def tripled():
    module = nn.Sequential(nn.Linear(6, 4))
    module[0].register_forward_hook(lambda module, inputs, outputs: 3 * outputs)
    return module


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize(
    "model", [tripled, lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 4)))]
)
def test_layers_that_do_more_than_their_type_says_are_no_stack(setting, jobs, download, model):
    s = setting(model)
    assert "not a stack" in Batched.refuses(s)
    engine = ENGINES.get(resolve_auto(s))(s)
    torch.testing.assert_close(
        deltas(engine, jobs(s), download(s)), deltas(Sequential(s), jobs(s), download(s))
    )


def test_a_stack_whose_inputs_are_not_flat_is_no_stack(setting):
    assert "not flat" in Batched.refuses(setting(lambda: nn.Linear(3, 4), (2, 3)))


def test_engines_have_names():
    ours = sorted(ENGINES.builtin)
    assert ours == [
        "batched",
        "debug",
        "processes",
        "sequential",
        "threads",
        "vmap",
    ]
    assert all(ENGINES.get(name).name == name for name in ours)


def test_large_cohorts_are_worked_off_in_windows(setting, jobs, download, monkeypatch):
    s = setting(mlp, threads=2)
    whole = deltas(Batched(s), jobs(s), download(s))
    monkeypatch.setattr("motley.engines.local.WINDOW_WEIGHTS", 3 * whole.shape[1])
    monkeypatch.setattr("motley.engines.batched.CHUNK_WEIGHTS", whole.shape[1])
    torch.testing.assert_close(
        deltas(Batched(s), jobs(s), download(s)), whole, rtol=1e-10, atol=1e-12
    )


class Viewing(nn.Module):
    """Calls ``view`` on activations, which images stored channels last do not allow."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.out = nn.Linear(48, 4)

    def forward(self, x):
        x = self.conv(x)
        return self.out(x.view(len(x), -1))


def test_modules_that_view_their_activations_run_too(setting, jobs, download):
    viewing = setting(Viewing, (2, 6, 6))
    usual = setting(
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(48, 4)), (2, 6, 6)
    )
    sent = download(usual)
    torch.testing.assert_close(
        deltas(Sequential(viewing), jobs(usual), sent),
        deltas(Sequential(usual), jobs(usual), sent),
        rtol=1e-10,
        atol=1e-12,
    )


def test_one_long_job_does_not_make_a_long_schedule_for_everybody(
    setting, jobs, download, monkeypatch
):
    s = setting(mlp, threads=1)
    whole = deltas(Batched(s), jobs(s), download(s))
    monkeypatch.setattr("motley.engines.stages.SCHEDULE_PLACES", 60)
    engine = Batched(s)
    work = sorted(jobs(s), key=lambda job: -job.steps)
    parts = list(bounded(list(range(8)), [job.steps for job in work], batch_size=5))
    assert [i for part in parts for i in part] == list(range(8))
    assert all(len(part) == 1 or work[part[0]].steps * len(part) * 5 <= 60 for part in parts)
    torch.testing.assert_close(deltas(engine, jobs(s), download(s)), whole, rtol=1e-10, atol=1e-12)


class _Looked(nn.Module):
    """Adds row 1 of a table that is looked up with options."""

    def __init__(self, **options):
        super().__init__()
        self.table = nn.Parameter(torch.ones(9, 4))
        self.options = options

    def forward(self, x):
        rows = torch.ones(x.shape[:-1], dtype=torch.int64)
        return x + nn.functional.embedding(rows, self.table, **self.options)


class _Tokens(nn.Module):
    """A model of whole numbers: an embedding, a layer, and the output at the last position."""

    def __init__(self, name):
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.kind = SEQUENCES[name][0]()
        self.out = nn.Linear(4, 4)

    def forward(self, x):
        h = self.embed(x)
        h = self.kind(h, h, h)[0] if isinstance(self.kind, nn.MultiheadAttention) else self.kind(h)
        h = h[0] if isinstance(h, tuple) else h
        return self.out(h[:, -1])


class _FlashAttention(nn.Module):
    def forward(self, x):
        h = x[:, None]
        return nn.functional.scaled_dot_product_attention(h, h, h)[:, 0]


class _Steered(nn.Module):
    def forward(self, x):
        return x if float(x.detach().sum()) > 0 else -x


class _Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x):
        return self.cell(x[:, 0])[:, None]


SEQUENCES = {
    "LSTM": (
        lambda: nn.LSTM(4, 4, batch_first=True),
        r"layer 'kind' \(LSTM\) would be computed client by client",
    ),
    "GRU": (
        lambda: nn.GRU(4, 4, batch_first=True),
        r"layer 'kind' \(GRU\) would be computed client by client",
    ),
    "attention": (
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        r"layer 'kind' \(MultiheadAttention\)",
    ),
    "cell": (_Cell, r"layer 'kind.cell' \(GRUCell\)"),
    "padding": (partial(_Looked, padding_idx=0), r"an embedding with padding_idx"),
    "counted": (partial(_Looked, scale_grad_by_freq=True), r"an embedding with scale_grad_by_freq"),
    "fallback": (
        _FlashAttention,
        r"torch has no batching rule for aten::_scaled_dot_product_flash_attention",
    ),
    "control flow": (_Steered, r"torch cannot batch it over clients \("),
    "linear": (nn.Identity, None),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_vmap_gets_no_model_that_torch_computes_client_by_client(setting, jobs, download, name):
    """Layers of a table, and what only a gradient shows. Whole numbers reach the embedding in every
    engine."""
    reason = SEQUENCES[name][1]
    s = setting(partial(_Tokens, name), (6,), threads=2)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 9, s.task.federation.x.shape))
    s = dataclasses.replace(
        s,
        task=dataclasses.replace(
            s.task, federation=dataclasses.replace(s.task.federation, x=tokens)
        ),
    )
    for _ in range(2):  # the warning is not given once alone
        assert resolve_auto(s) == ("vmap" if reason is None else "threads")
    if reason is not None:
        assert re.search(reason, Vmap.refuses(s))
    reference = deltas(Sequential(s), jobs(s), download(s))
    for engine in [Threads, TwoProcesses, *([Vmap] if reason is None else [])]:
        torch.testing.assert_close(
            deltas(engine(s), jobs(s), download(s)), reference, rtol=1e-10, atol=1e-12
        )
    assert next(iter(Debug(s).train(jobs(s, (1,)), download(s), {}))).finite
    losses = Sequential(s).evaluate(initial(s.task.model, Key(0), s.dtype), np.arange(5))["loss"]
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("size", [1, 2])
def test_a_pool_trains_on_one_torch_thread_whatever_the_caller_has_switched_off(size: int) -> None:
    """A pool of one thread is the caller's own; its modes of torch are not the pool's."""

    def work(state: int, task: float) -> tuple[float, int, bool]:
        weight = torch.tensor(task, requires_grad=True)
        (weight * weight).backward()
        own = threading.current_thread() is threading.main_thread()
        assert weight.grad is not None
        return float(weight.grad), torch.get_num_threads(), own

    pool = ThreadPool(list(range(size)))
    with torch.no_grad(), torch_threads(2):
        results = list(pool.map(work, [1.0, 2.0]))
        assert torch.get_num_threads() == at_once(2)
        assert not torch.is_grad_enabled()
    pool.close()
    assert results == [(2.0, 1, size == 1), (4.0, 1, size == 1)]
