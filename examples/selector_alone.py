"""A selector without the simulator: a federation written by hand, which asks a selector whom to ask.

python examples/selector_alone.py
"""

import numpy as np

import motley

TARGETS = np.random.default_rng(0).normal(size=(20, 3))  # client k wants the model to be TARGETS[k]
TARGETS[16:] += 4.0  # and four of them want something else


def loss(model: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """Half the squared distance to each client's target."""
    return 0.5 * ((model - TARGETS[clients]) ** 2).sum(axis=1)


def main(name: str, rounds: int = 60) -> np.ndarray:
    """The model after so many rounds of four clients."""
    selector = motley.selectors.build(name, seed=0)
    model = np.zeros(3)
    for t in range(1, rounds + 1):
        available = np.arange(20)[np.arange(20) % 7 != t % 7]  # somebody is always away
        asked = selector.probe(t, available, m=4)
        selector.observe(t, motley.Reports(asked, motley.Outcome.PROBED, signals={"loss": loss(model, asked)}))
        cohort = selector.select(t, available, m=4)
        model = model + 0.1 * (TARGETS[cohort.ids] - model).mean(axis=0)
        selector.observe(t, motley.Reports(cohort.ids, motley.Outcome.ACCEPTED))
    return model


if __name__ == "__main__":
    for name in ("uniform", "power_of_choice"):
        losses = loss(main(name), np.arange(20))
        print(f"{name}: mean loss {losses.mean():.2f}, largest {losses.max():.2f}")
