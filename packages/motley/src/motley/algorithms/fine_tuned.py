"""Fine-tuning: any method, after which every client trains the resulting model on its own data
before the model is used.

Wang, Mathews, Kiddon, Eichner, Beaufays, Ramage: *Federated Evaluation of On-device
Personalization*, 2019 (arXiv:1910.10252).

    training  as the ``method`` says
    examined  w <- the model that client k would use;
              ``epochs`` and ``steps`` times:  w <- w - lr g(w), on its training samples

State, traffic and virtual time: those of the method. Fine-tuning belongs to the examination:
nothing goes on from it. FedAvg with fine-tuning, not FedAvg alone, is the fair rival of a
personalized method.

Deviations and readings
-----------------------
* All parameters move, with the run's own optimizer and learning rate (``lr`` overrides it), by
  plain steps without the method's correction of the gradient, on batches that no training uses.
* The shared model is examined, too, in the scopes ``global``, ``shared_mean`` and
  ``shared_client``.

Worked
------
Toy A (docs/methods/algorithms.md#personalisation): after one round x = .4; two steps of fine-tuning
with lr .5 give 2.2, 3.1.

>>> from motley.algorithms.fine_tuned import FineTuned
>>> FineTuned(method={"name": "fedprox", "mu": 0.1}, epochs=1).inner.mu
0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from typing_extensions import override

from motley.algorithms import CATALOGUE
from motley.algorithms.parts import Algorithm, Method, Tuning
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class FineTuned(Method):
    """Any ``method`` ("fedavg"), after which clients fine-tune its model on their own data before
    it is examined, for ``epochs`` (1) and ``steps`` (0)."""

    paper: ClassVar[Paper] = cite("wang2019evaluation")
    method: str | Mapping[str, Any] = "fedavg"
    epochs: int = 1
    steps: int = 0
    lr: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "steps"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)}; expected a whole number of at least 0"
                )
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise ConfigError(f"got lr = {self.lr}; expected a positive number")
        if isinstance(self.inner, FineTuned):
            raise ConfigError('got method = "fine_tuned"; expected another method, fine-tuned once')

    @cached_property
    def inner(self) -> Method:
        """The method that is fine-tuned."""
        method: Method = CATALOGUE.build(self.method, "algorithm.method")
        return method

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return self.inner.change(plain).replace(tuning=Tuning(self.epochs, self.steps, self.lr))
