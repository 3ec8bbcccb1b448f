"""What is learned: loss, local rule, aggregator, server."""

from __future__ import annotations

from typing import Any

from motley.core.components import Catalogue, class_named

__all__ = ["AGGREGATORS", "CATALOGUE", "LOSSES", "OPTIMIZERS", "SCHEDULES", "SERVERS"]

CATALOGUE = Catalogue(
    "algorithm",
    {
        "apfl": "motley.algorithms.apfl:APFL",
        "ca2fl": "motley.algorithms.ca2fl:CA2FL",
        "ditto": "motley.algorithms.ditto:Ditto",
        "fedadagrad": "motley.algorithms.fedopt:FedAdagrad",
        "fedadam": "motley.algorithms.fedopt:FedAdam",
        "fedadamw": "motley.algorithms.fedadamw:FedAdamW",
        "fedala": "motley.algorithms.fedala:FedALA",
        "fedas": "motley.algorithms.fedas:FedAS",
        "fedau": "motley.algorithms.fedau:FedAU",
        "fedavg": "motley.algorithms.fedavg:FedAvg",
        "fedavgm": "motley.algorithms.fedavgm:FedAvgM",
        "fedawe": "motley.algorithms.fedawe:FedAWE",
        "fedbabu": "motley.algorithms.fedbabu:FedBABU",
        "fedbio": "motley.algorithms.fedbio:FedBiO",
        "fedbn": "motley.algorithms.fedbn:FedBN",
        "feddf": "motley.algorithms.feddf:FedDF",
        "feddyn": "motley.algorithms.feddyn:FedDyn",
        "fedex_lora": "motley.algorithms.fedex_lora:FedExLoRA",
        "fedexp": "motley.algorithms.fedexp:FedExP",
        "fedgh": "motley.algorithms.fedgh:FedGH",
        "fedkd": "motley.algorithms.fedkd:FedKD",
        "fedlc": "motley.algorithms.fedlc:FedLC",
        "fedlesam": "motley.algorithms.fedsam:FedLESAM",
        "fedmd": "motley.algorithms.fedmd:FedMD",
        "fedmoswa": "motley.algorithms.fedswa:FedMoSWA",
        "fedmuon": "motley.algorithms.fedmuon:FedMuon",
        "fednova": "motley.algorithms.fednova:FedNova",
        "fedpac": "motley.algorithms.fedpac:FedPAC",
        "fedper": "motley.algorithms.fedper:FedPer",
        "fedproto": "motley.algorithms.fedproto:FedProto",
        "fedprox": "motley.algorithms.fedprox:FedProx",
        "fedrep": "motley.algorithms.fedrep:FedRep",
        "fedrod": "motley.algorithms.fedrod:FedRoD",
        "fedrolex": "motley.algorithms.fedrolex:FedRolex",
        "fedsa_lora": "motley.algorithms.fedsa_lora:FedSALoRA",
        "fedsam": "motley.algorithms.fedsam:FedSAM",
        "fedswa": "motley.algorithms.fedswa:FedSWA",
        "fedvarp": "motley.algorithms.mifa:FedVARP",
        "fedyogi": "motley.algorithms.fedopt:FedYogi",
        "ffa_lora": "motley.algorithms.ffa_lora:FFALoRA",
        "fiarse": "motley.algorithms.fiarse:FIARSE",
        "fine_tuned": "motley.algorithms.fine_tuned:FineTuned",
        "fjord": "motley.algorithms.fjord:FjORD",
        "flash_robust": "motley.algorithms.flash_robust:RobustTraining",
        "flexlora": "motley.algorithms.flexlora:FlexLoRA",
        "flora": "motley.algorithms.flora:FLoRA",
        "fml": "motley.algorithms.fml:FML",
        "heterofl": "motley.algorithms.heterofl:HeteroFL",
        "hetlora": "motley.algorithms.hetlora:HetLoRA",
        "ifca": "motley.algorithms.ifca:IFCA",
        "lg_fedavg": "motley.algorithms.lg_fedavg:LGFedAvg",
        "local_only": "motley.algorithms.local_only:LocalOnly",
        "lora_fedavg": "motley.algorithms.lora_fedavg:LoRAFedAvg",
        "mifa": "motley.algorithms.mifa:MIFA",
        "moon": "motley.algorithms.moon:Moon",
        "moon_fednova": "motley.algorithms.moon_fednova:MoonFedNova",
        "per_fedavg": "motley.algorithms.per_fedavg:PerFedAvg",
        "pfedfda": "motley.algorithms.pfedfda:PFedFDA",
        "pfedme": "motley.algorithms.pfedme:PFedMe",
        "qfedavg": "motley.algorithms.qfedavg:QFedAvg",
        "rhfl": "motley.algorithms.rhfl:RHFL",
        "scaffold": "motley.algorithms.scaffold:Scaffold",
    },
    base="motley.algorithms.parts:Method",
)
LOSSES = Catalogue(
    "loss",
    {
        "bce": "motley.algorithms.losses:BinaryCrossEntropy",
        "cross_entropy": "motley.algorithms.losses:CrossEntropy",
        "half_squared_error": "motley.algorithms.losses:HalfSquaredError",
        "flash_robust": "motley.algorithms.flash_robust:FlashRobust",
        "huber": "motley.algorithms.losses:Huber",
        "symmetric": "motley.algorithms.symmetric:SymmetricLoss",
    },
    base="motley.algorithms.parts:Loss",
)
AGGREGATORS = Catalogue(
    "aggregator",
    {
        "krum": "motley.algorithms.aggregators.robust:Krum",
        "mean": "motley.algorithms.aggregators.mean:Mean",
        "median": "motley.algorithms.aggregators.robust:Median",
        "multi_krum": "motley.algorithms.aggregators.robust:MultiKrum",
        "norm_bound": "motley.algorithms.aggregators.robust:NormBound",
        "trimmed_mean": "motley.algorithms.aggregators.robust:TrimmedMean",
    },
    base="motley.algorithms.parts:Aggregator",
)
SERVERS = Catalogue(
    "server",
    {
        "adagrad": "motley.algorithms.fedopt:ServerAdagrad",
        "adam": "motley.algorithms.fedopt:ServerAdam",
        "average": "motley.algorithms.fedavg:Average",
        "momentum": "motley.algorithms.fedavgm:Momentum",
        "yogi": "motley.algorithms.fedopt:ServerYogi",
    },
    base="motley.algorithms.parts:Server",
)
OPTIMIZERS = Catalogue(
    "optimizer",
    {
        "adam": "motley.algorithms.local_optimisers:Adam",
        "adamw": "motley.algorithms.local_optimisers:AdamW",
        "sgd": "motley.algorithms.local_optimisers:SGD",
    },
    base="motley.algorithms.local_optimisers:Solver",
)
SCHEDULES = Catalogue(
    "lr_schedule",
    {
        "constant": "motley.algorithms.schedules:ConstantSchedule",
        "cosine": "motley.algorithms.schedules:CosineSchedule",
        "exponential": "motley.algorithms.schedules:ExponentialSchedule",
        "linear": "motley.algorithms.schedules:LinearSchedule",
        "milestones": "motley.algorithms.schedules:MilestoneSchedule",
    },
    base="motley.algorithms.schedules:Schedule",
)


def __getattr__(name: str) -> Any:
    return class_named((CATALOGUE, LOSSES, AGGREGATORS, SERVERS, OPTIMIZERS, SCHEDULES), name)
