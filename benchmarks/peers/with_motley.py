"""Motley: own data and model, FedAvg, the engine that it takes by itself, checkpoints and tables as
in every run."""

from __future__ import annotations

from work import CLIENTS, network, parse


def main() -> None:
    run = parse()
    import motley
    from motley.tasks import from_clients, own_task

    parts = [run.client(k) for k in range(CLIENTS)]
    federation = from_clients(parts, test=[(x[:1], y[:1]) for x, y in parts])
    experiment = motley.Experiment(
        name="peers",
        task="own",
        cohort=CLIENTS,
        precision=run.precision,
        stop={"rounds": run.rounds},
        evaluate={"every": run.rounds},
        local={
            "epochs": run.epochs,
            "batch_size": run.batch,
            "optimizer": {"name": "sgd", "lr": run.lr},
        },
    )
    task = own_task(federation, lambda: network(run.load))
    done = motley.run(experiment, task=task, out=run.out / "run", on_round=lambda _: run.mark())
    run.finish(int(sum(done.column("clients", "local_steps"))), list(done.module().parameters()))


if __name__ == "__main__":
    main()
