"""Heterogeneity: partitions, shifts, devices, networks, availability, failures. Pure functions of (key, ids, moment)."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = [
    "AVAILABILITY",
    "CONCEPT_SHIFT",
    "DEVICES",
    "DRIFT",
    "FAILURES",
    "FEATURE_SHIFT",
    "LABEL_NOISE",
    "NETWORKS",
    "PARTITIONS",
]

PARTITIONS = Catalogue(
    "partition",
    {
        "by_writer": "motley.world.partition.by_writer:ByWriter",
        "dirichlet": "motley.world.partition.dirichlet:Dirichlet",
        "iid": "motley.world.partition.iid:IID",
        "label_count": "motley.world.partition.label_count:LabelCount",
        "missing_classes": "motley.world.partition.missing_classes:MissingClasses",
        "psi": "motley.world.partition.psi:Psi",
        "quantity": "motley.world.partition.quantity:Quantity",
        "shards": "motley.world.partition.shards:Shards",
        "skewed_share": "motley.world.partition.skewed_share:SkewedShare",
    },
)
LABEL_NOISE = Catalogue(
    "label_noise",
    {
        "beta": "motley.world.shift.label_noise:Beta",
        "label_flip": "motley.world.shift.label_noise:LabelFlip",
        "none": "motley.world.shift.label_noise:Clean",
        "pair_flip": "motley.world.shift.label_noise:PairFlip",
        "symmetric": "motley.world.shift.label_noise:Symmetric",
    },
)
FEATURE_SHIFT = Catalogue(
    "feature_shift",
    {
        "domains": "motley.world.shift.feature_shift:Domains",
        "noise": "motley.world.shift.feature_shift:Noise",
        "none": "motley.world.shift.feature_shift:Plain",
        "transform": "motley.world.shift.feature_shift:Transform",
    },
)
CONCEPT_SHIFT = Catalogue(
    "concept_shift", {"none": "motley.world.shift.concept_shift:Same", "swap": "motley.world.shift.concept_shift:Swap"}
)
DRIFT = Catalogue(
    "drift",
    {
        "none": "motley.world.shift.drift:Still",
        "swap": "motley.world.shift.drift:SwapLater",
        "window": "motley.world.shift.drift:Window",
    },
)
DEVICES = Catalogue(
    "device",
    {
        "constant": "motley.world.devices:Constant",
        "log_normal": "motley.world.devices:LogNormal",
        "shifted_exponential": "motley.world.devices:ShiftedExponential",
        "trace": "motley.world.devices:Trace",
        "uniform": "motley.world.devices:Uniform",
    },
)
NETWORKS = Catalogue(
    "network",
    {
        "constant": "motley.world.network:Constant",
        "inverted": "motley.world.network:Inverted",
        "log_normal": "motley.world.network:LogNormal",
        "none": "motley.world.network:Free",
        "trace": "motley.world.network:Trace",
        "uniform": "motley.world.network:Uniform",
    },
)
AVAILABILITY = Catalogue(
    "availability",
    {
        "always": "motley.world.availability:Always",
        "bernoulli": "motley.world.availability:Bernoulli",
        "day_night": "motley.world.availability:DayNight",
        "markov": "motley.world.availability:Markov",
        "trace": "motley.world.availability:Trace",
    },
)
FAILURES = Catalogue(
    "failures",
    {
        "corrupted": "motley.world.failures:Corrupted",
        "crash": "motley.world.failures:Crash",
        "drop_out": "motley.world.failures:DropOut",
        "non_finite": "motley.world.failures:NonFinite",
        "none": "motley.world.failures:Never",
    },
)
