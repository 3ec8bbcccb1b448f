"""Heterogeneity of clients: data partitions and shifts, devices, networks, availability, capacity,
failures and lies."""

from __future__ import annotations

from typing import Any

from motley.core.components import Catalogue, class_named

__all__ = [
    "AVAILABILITY",
    "CAPACITY",
    "CONCEPT_SHIFT",
    "DEVICES",
    "DISHONEST",
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
        "by_writer": "motley.world.partition.basic:ByWriter",
        "dirichlet": "motley.world.partition.dirichlet:Dirichlet",
        "flower_niid_bench": "motley.world.partition.niid_bench:FlowerNiidBench",
        "flwr_dirichlet": "motley.world.partition.flwr_datasets:FlwrDirichlet",
        "flwr_pathological": "motley.world.partition.flwr_datasets:FlwrPathological",
        "heterofl_shards": "motley.world.partition.heterofl_shards:HeteroFLShards",
        "iid": "motley.world.partition.basic:IID",
        "ji_shards": "motley.world.partition.ji_shards:JiShards",
        "label_count": "motley.world.partition.class_subsets:LabelCount",
        "missing_classes": "motley.world.partition.class_subsets:MissingClasses",
        "niid_bench": "motley.world.partition.niid_bench:NiidBench",
        "psi": "motley.world.partition.psi:Psi",
        "quantity": "motley.world.partition.quantity:Quantity",
        "shards": "motley.world.partition.basic:Shards",
        "skewed_share": "motley.world.partition.skewed_share:SkewedShare",
    },
    base="motley.world.interfaces:Partition",
)
LABEL_NOISE = Catalogue(
    "label_noise",
    {
        "beta": "motley.world.shift.label_noise:BetaNoise",
        "label_flip": "motley.world.shift.label_noise:LabelFlip",
        "none": "motley.world.shift.label_noise:CleanLabels",
        "pair_flip": "motley.world.shift.label_noise:PairFlip",
        "symmetric": "motley.world.shift.label_noise:SymmetricNoise",
    },
    base="motley.world.interfaces:LabelNoise",
)
FEATURE_SHIFT = Catalogue(
    "feature_shift",
    {
        "domains": "motley.world.shift.feature_shift:Domains",
        "niid_bench": "motley.world.shift.feature_shift:NiidBenchNoise",
        "noise": "motley.world.shift.feature_shift:PixelNoise",
        "none": "motley.world.shift.feature_shift:NoFeatureShift",
        "transform": "motley.world.shift.feature_shift:ImageTransforms",
    },
    base="motley.world.interfaces:FeatureShift",
)
CONCEPT_SHIFT = Catalogue(
    "concept_shift",
    {
        "none": "motley.world.shift.concept_shift:NoConceptShift",
        "swap": "motley.world.shift.concept_shift:ClassSwap",
    },
    base="motley.world.interfaces:ConceptShift",
)
DRIFT = Catalogue(
    "drift",
    {
        "none": "motley.world.shift.drift:NoDrift",
        "swap": "motley.world.shift.drift:SwapDrift",
        "window": "motley.world.shift.drift:WindowDrift",
    },
    base="motley.world.interfaces:Drift",
)
DEVICES = Catalogue(
    "device",
    {
        "constant": "motley.world.devices:ConstantDevice",
        "log_normal": "motley.world.devices:LogNormalDevice",
        "measured": "motley.world.measured:MeasuredDevice",
        "recorded": "motley.world.recorded:RecordedDevice",
        "shifted_exponential": "motley.world.devices:ShiftedExponential",
        "trace": "motley.world.devices:TraceDevice",
        "uniform": "motley.world.devices:UniformDevice",
    },
    base="motley.world.interfaces:Device",
)
NETWORKS = Catalogue(
    "network",
    {
        "constant": "motley.world.network:ConstantNetwork",
        "inverted": "motley.world.network:InvertedNetwork",
        "log_normal": "motley.world.network:LogNormalNetwork",
        "measured": "motley.world.measured:MeasuredNetwork",
        "none": "motley.world.network:NoDelay",
        "recorded": "motley.world.recorded:RecordedNetwork",
        "trace": "motley.world.network:TraceNetwork",
        "uniform": "motley.world.network:UniformNetwork",
    },
    base="motley.world.interfaces:Network",
)
AVAILABILITY = Catalogue(
    "availability",
    {
        "always": "motley.world.availability:AlwaysOnline",
        "bernoulli": "motley.world.availability:BernoulliAvailability",
        "day_night": "motley.world.availability:DayNight",
        "markov": "motley.world.availability:MarkovAvailability",
        "measured": "motley.world.measured:MeasuredAvailability",
        "recorded": "motley.world.recorded:RecordedAvailability",
        "trace": "motley.world.availability:TraceAvailability",
    },
    base="motley.world.interfaces:Availability",
)
CAPACITY = Catalogue(
    "capacity",
    {
        "by_deadline": "motley.world.capacity:CapacityByDeadline",
        "by_memory": "motley.world.capacity:CapacityByMemory",
        "by_score": "motley.world.capacity:CapacityByScore",
        "by_speed": "motley.world.capacity:CapacityBySpeed",
        "constant": "motley.world.capacity:ConstantCapacity",
        "levels": "motley.world.capacity:CapacityLevels",
    },
    base="motley.world.interfaces:Capacity",
)
FAILURES = Catalogue(
    "failures",
    {
        "corrupted": "motley.world.failures:Corrupted",
        "crash": "motley.world.failures:Crash",
        "drop_out": "motley.world.failures:DropOut",
        "non_finite": "motley.world.failures:NonFinite",
        "none": "motley.world.failures:NoFailures",
        "recorded": "motley.world.recorded:RecordedFailures",
    },
    base="motley.world.interfaces:Failures",
)
DISHONEST = Catalogue(
    "dishonest",
    {
        "coalition": "motley.world.dishonest:Coalition",
        "constant": "motley.world.dishonest:ConstantClaim",
        "copy_best": "motley.world.dishonest:CopiedBest",
        "none": "motley.world.dishonest:NoLies",
        "scaled": "motley.world.dishonest:ScaledClaim",
    },
    base="motley.world.interfaces:Dishonest",
)


def __getattr__(name: str) -> Any:
    kinds = (
        PARTITIONS,
        LABEL_NOISE,
        FEATURE_SHIFT,
        CONCEPT_SHIFT,
        DRIFT,
        DEVICES,
        NETWORKS,
        AVAILABILITY,
        CAPACITY,
        FAILURES,
    )
    return class_named((*kinds, DISHONEST), name)
