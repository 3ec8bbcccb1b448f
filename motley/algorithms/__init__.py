"""What is learned: loss, correction, aggregator, server."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["AGGREGATORS", "CATALOGUE", "LOSSES", "OPTIMIZERS", "SCHEDULES", "SERVERS"]

CATALOGUE = Catalogue(
    "algorithm",
    {"fedavg": "motley.algorithms.fedavg:FedAvg", "fedprox": "motley.algorithms.fedprox:FedProx"},
    planned=(
        "scaffold", "fednova", "fedbn", "moon", "qfedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "feddyn",
        "feddf", "fedbio", "rhfl", "flash_robust",
    ),
)  # fmt: skip
LOSSES = Catalogue(
    "loss",
    {
        "cross_entropy": "motley.algorithms.losses:CrossEntropy",
        "half_squared_error": "motley.algorithms.losses:HalfSquaredError",
    },
    planned=("flash_robust", "symmetric"),
)
AGGREGATORS = Catalogue(
    "aggregator",
    {"mean": "motley.algorithms.aggregators.mean:Mean"},
    planned=("median", "trimmed_mean", "krum", "multi_krum", "norm_bound"),
)
SERVERS = Catalogue("server", {"average": "motley.algorithms.fedavg:Average"}, planned=("momentum", "adam", "yogi"))
OPTIMIZERS = Catalogue("optimizer", {"sgd": "motley.algorithms.local:SGD"}, planned=("adam",))
SCHEDULES = Catalogue(
    "lr_schedule",
    {
        "constant": "motley.algorithms.schedules:Constant",
        "exponential": "motley.algorithms.schedules:Exponential",
        "linear": "motley.algorithms.schedules:Linear",
    },
)
