"""A selector without the simulator: a federation written by hand that lets a selector choose its
clients.

python examples/selector_alone.py
"""

import numpy as np

import motley

TARGETS = np.random.default_rng(0).normal(size=(20, 3))  # the minimum of client k's loss
TARGETS[16:] += 4.0  # four clients differ from the others


def loss(model: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """Half the squared distance to each client's target."""
    return 0.5 * ((model - TARGETS[clients]) ** 2).sum(axis=1)


def main(name: str, rounds: int = 60) -> np.ndarray:
    """Train for some rounds with four clients each and return the model."""
    selector = motley.selectors.build(name, seed=0)
    model = np.zeros(3)
    for t in range(1, rounds + 1):
        available = np.arange(20)[np.arange(20) % 7 != t % 7]  # some clients are always away
        candidates = selector.probe(t, available, m=4)
        losses = {"loss": loss(model, candidates)}
        selector.observe(t, motley.Reports(candidates, motley.Outcome.PROBED, signals=losses))
        cohort = selector.select(t, available, m=4)
        model = model + 0.1 * (TARGETS[cohort.ids] - model).mean(axis=0)
        selector.observe(t, motley.Reports(cohort.ids, motley.Outcome.ACCEPTED))
    return model


if __name__ == "__main__":
    for name in ("uniform", "power_of_choice"):
        losses = loss(main(name), np.arange(20))
        print(f"{name}: mean loss {losses.mean():.2f}, largest {losses.max():.2f}")
