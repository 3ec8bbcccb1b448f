"""Every sentence of the paragraph on methods is made from what the runs recorded."""

import pytest

import motley
from motley.results.labels import group_runs
from motley.results.load import Run
from motley.results.methods import methods_text
from tests.motley.results import fake

RATES = {"name": "sgd", "lr": 0.05}


def told(*runs):
    """The sentences of the paragraph."""
    return methods_text(group_runs(list(runs))).replace("\n", " ")


def recorded(
    config=None, seed=0, train=(60, 30), test=(6, 4), validation=(0, 0), selected=(2, 2), **more
):
    """A run of so many rounds, with these samples of its clients and clients sent out in each
    round."""
    clients = range(len(train))
    federation = fake.table(
        "federation", client=clients, num_train=train, num_test=test, num_validation=validation
    )
    count = range(1, len(selected) + 1)
    rounds = fake.table("rounds", round=count, selections=count, selected=selected)
    base = {
        "task": {"name": "image", "data": "digits"},
        "split": {"test": "client", "test_fraction": 0.2},
        "cohort": 10,
    }
    tables = {"federation": federation, "rounds": rounds} | more
    return fake.run(base | (config or {}), seed=seed, **tables)


def test_data_and_partition():
    text = told(recorded({"partition": {"name": "dirichlet", "alpha": 0.1}, "population": 7}))
    assert (
        r"We use \texttt{digits}. The data of 2 clients follow the partition \texttt{dirichlet} "
        r"(alpha 0.1)." in text
    )


def test_shares_are_those_of_the_samples_whatever_was_asked_for():
    """10 of 100 samples test though the file says a fifth; in another seed 12 of 100; a common test
    set counts as one."""
    assert r"Of the 100 samples, 10\,\% are for the test." in told(recorded())
    text = told(
        recorded(validation=(9, 1), train=(51, 29)), recorded(seed=1, train=(58, 30), test=(6, 6))
    )
    assert (
        r"Of the 100 samples, 10 to 12\,\% are for the test and 0 to 10\,\% for validation." in text
    )
    common = fake.table(
        "evaluations",
        round=[0, 1],
        scope=["global"] * 2,
        client=[-1] * 2,
        examples=[10, 10],
        accuracy=[0.1, 0.2],
    )
    assert r"Of the 100 samples, 10\,\% are for the test." in told(
        recorded(test=(0, 0), evaluations=common)
    )
    assert "samples, " not in told(recorded(train=(None, None)))  # as in a private run
    assert "samples, " not in told(recorded(test=(0, 0)))


def test_model():
    run = recorded({"task": {"name": "image", "data": "digits", "model": {"name": "mlp"}}})
    sized = Run(run.directory, {**run.meta, "parameters": 55050}, run.tables)
    assert r"The model is \texttt{mlp} with 55050 parameters." in told(sized)
    assert "The model" not in told(recorded())


def test_rounds_and_clients_of_a_server_that_waits():
    assert "The runs have 2 rounds; 2 clients a round are sent the model." in told(recorded())
    text = told(recorded(selected=[1]), recorded(seed=1, selected=[3, 2, 3]))
    assert "The runs have 1 to 3 rounds; 1 to 3 clients a round are sent the model." in text
    assert "The runs have 1 round; 1 client a round is sent the model." in told(
        recorded(selected=[1])
    )
    # nothing was recorded
    assert "rounds" not in told(fake.run({"task": {"name": "image"}, "stop": {"rounds": 60}}))


def test_rounds_of_a_server_that_does_not_wait():
    """A buffer of 5 of 10 clients: no round has a cohort of ten that trains."""
    buffered = recorded({"synchrony": {"name": "buffered", "buffer": 5}})
    text = (
        "The runs have 2 rounds; up to 10 clients train at a time, and the server steps on a "
        "buffer of 5 updates."
    )
    assert text in told(buffered)
    each = told(recorded({"synchrony": {"name": "asynchronous"}}))
    assert (
        "The runs have 2 rounds; up to 10 clients train at a time, and the server steps on every "
        "update." in each
    )
    assert "The runs have 2 rounds. " in told(
        buffered, recorded({"synchrony": {"name": "synchronous"}})
    )


def test_local_work():
    local = {"epochs": 1, "steps": None, "batch_size": 16, "optimizer": RATES}
    text = told(recorded({"local": local}))
    assert (
        r"A client trains for 1 epoch in batches of 16 samples by \texttt{sgd} (lr 0.05)." in text
    )
    assert "A client trains for 5 steps." in told(recorded({"local": {"epochs": None, "steps": 5}}))
    assert "A client trains" not in told(recorded())  # a Flower app does not tell


def test_algorithm_selection_and_world():
    text = told(
        recorded(
            {
                "algorithm": {"name": "fedprox", "mu": 0.1},
                "selector": {"name": "oort"},
                "device": {"name": "uniform", "low": 0.5},
                "availability": {"name": "always"},
                "synchrony": {"name": "deadline", "seconds": 30.0},
            }
        )
    )
    assert r"The algorithm is \texttt{fedprox} (mu 0.1)." in text
    assert r"Clients are selected by \texttt{oort}." in text
    conditions = (
        r"computing speed: \texttt{uniform} (low 0.5); synchrony: \texttt{deadline} (seconds 30)."
    )
    assert f"Simulated conditions: {conditions}" in text
    assert not {"The algorithm", "Clients are selected", "Simulated"} & set(
        told(recorded()).split(".")
    )


def test_evaluation_and_seeds():
    one = told(recorded({"evaluate": {"every": 10}}))
    assert (
        "The accuracy averaged over the clients' own test sets is evaluated every 10 rounds, with "
        "seed 0." in one
    )
    common = fake.table("evaluations", round=[1], scope=["global"], client=[-1], accuracy=[0.2])
    text = told(
        *(
            recorded(
                {"evaluate": {"every": 1}, "split": {"test": "global"}}, seed, evaluations=common
            )
            for seed in (0, 3)
        )
    )
    assert (
        "The accuracy on the global test set is evaluated after every round, with seeds 0 and 3. "
        "Numbers are means over" in text
    )


def test_versions():
    run = recorded()
    made = Run(
        run.directory, {**run.meta, "versions": {"motley": "0.1.0", "torch": "2.8.0"}}, run.tables
    )
    assert (
        r"All runs were made with Motley~0.1.0~\cite{motley} on "
        r"PyTorch~2.8.0~\cite{paszke2019pytorch}." in told(made)
    )
    assert "Motley~(version not recorded)" in told(run)


@pytest.mark.parametrize(
    ("share", "validation", "said"),
    [(0.25, 0.0, r"25\,\%"), (0.5, 0.25, r"50\,\% are for the test and 12.5\,\%")],
)
def test_the_record_says_how_objects_were_split(tmp_path, share, validation, said):
    """Eight samples for each of four clients, divided before the experiment was made, whose own
    share would be a fifth."""
    import torch

    clients = [([[float(k + i), 1.0] for i in range(8)], [0, 1] * 4) for k in range(4)]
    federation = motley.tasks.from_clients(clients, test_fraction=share, validation=validation)
    task = motley.tasks.own_task(federation, lambda: torch.nn.Linear(2, 2))
    run = motley.run(
        motley.Experiment(name="own", task=task, cohort=2, stop={"rounds": 1}),
        out=tmp_path / "run",
        progress=False,
    )
    assert {name: run.config["split"][name] for name in ("test_fraction", "validation")} == {
        "test_fraction": share,
        "validation": validation,
    }
    text = told(run)
    assert f"We use data of our own. They are those of 4 clients. Of the 32 samples, {said}" in text
    assert "partition" not in text


def test_the_record_says_no_share_where_the_data_has_its_own_test_samples(tmp_path):
    """Two test samples beside eight of each client: a fifth was asked of nobody."""
    import torch

    clients = [([[float(k + i), 1.0] for i in range(8)], [0, 1] * 4) for k in range(4)]
    federation = motley.tasks.from_clients(clients, test=[(x[:2], y[:2]) for x, y in clients])
    task = motley.tasks.own_task(federation, lambda: torch.nn.Linear(2, 2))
    run = motley.run(
        motley.Experiment(name="own", task=task, cohort=2, stop={"rounds": 1}),
        out=tmp_path / "run",
        progress=False,
    )
    assert "test_fraction" not in run.config["split"]
    assert r"Of the 40 samples, 20\,\% are for the test." in told(run)
