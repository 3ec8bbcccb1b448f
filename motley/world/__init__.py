"""Heterogeneity: partitions, shifts, devices, networks, availability, failures. Pure functions of (key, ids, moment)."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["AVAILABILITY", "DEVICES", "FAILURES", "LABEL_NOISE", "NETWORKS", "PARTITIONS"]

PARTITIONS = Catalogue(
    "partition",
    {
        "by_writer": "motley.world.partition.by_writer:ByWriter",
        "dirichlet": "motley.world.partition.dirichlet:Dirichlet",
        "iid": "motley.world.partition.iid:IID",
        "psi": "motley.world.partition.psi:Psi",
        "skewed_share": "motley.world.partition.skewed_share:SkewedShare",
    },
    planned=("missing_classes", "quantity", "shards"),
)
LABEL_NOISE = Catalogue(
    "label_noise",
    {
        "beta": "motley.world.shift.label_noise:Beta",
        "none": "motley.world.shift.label_noise:Clean",
        "pair_flip": "motley.world.shift.label_noise:PairFlip",
        "symmetric": "motley.world.shift.label_noise:Symmetric",
    },
)
DEVICES = Catalogue(
    "device",
    {
        "constant": "motley.world.devices:Constant",
        "log_normal": "motley.world.devices:LogNormal",
        "shifted_exponential": "motley.world.devices:ShiftedExponential",
        "uniform": "motley.world.devices:Uniform",
    },
)
NETWORKS = Catalogue(
    "network",
    {
        "constant": "motley.world.network:Constant",
        "log_normal": "motley.world.network:LogNormal",
        "none": "motley.world.network:Free",
        "uniform": "motley.world.network:Uniform",
    },
    planned=("inverted",),
)
AVAILABILITY = Catalogue(
    "availability",
    {"always": "motley.world.availability:Always"},
    planned=("bernoulli", "markov", "day_night", "trace"),
)
FAILURES = Catalogue("failures", {"none": "motley.world.failures:Never"}, planned=("drop_out", "crash"))
