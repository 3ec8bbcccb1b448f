"""A federated loop as a textbook writes it: client after client on one torch module, then the mean
of the models."""

from __future__ import annotations

from work import CLIENTS, model_of, parse, set_threads, train


def main() -> None:
    run = parse()
    import torch

    set_threads(run)
    model = model_of(run)
    steps = 0
    parts = [run.client(k) for k in range(CLIENTS)]
    server = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(run.rounds):
        total = [torch.zeros_like(value) for value in server]
        for x, y in parts:
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), server, strict=True):
                    parameter.copy_(value)
            steps += train(model, x, y, run)
            with torch.no_grad():
                for value, parameter in zip(total, model.parameters(), strict=True):
                    value.add_(parameter)
        server = [value / CLIENTS for value in total]
        run.mark()
    run.finish(steps, server)


if __name__ == "__main__":
    main()
