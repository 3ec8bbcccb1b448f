"""The catalogue of selection rules: the name in an experiment file, and the class behind it."""

from __future__ import annotations

from motley.core.components import Catalogue

CATALOGUE = Catalogue(
    "selector",
    {
        "active_fl": "motley.selectors.active_fl:ActiveFL",
        "adasample": "motley.selectors.adasample:AdaSample",
        "clustered_sampling": "motley.selectors.clustered_sampling:ClusteredSampling",
        "delta": "motley.selectors.delta:DELTA",
        "divfl": "motley.selectors.divfl:DivFL",
        "fedcbs": "motley.selectors.fedcbs:FedCBS",
        "fedcg": "motley.selectors.fedcg:FedCG",
        "fedcor": "motley.selectors.fedcor:FedCor",
        "fedcs": "motley.selectors.fedcs:FedCS",
        "fedcvr_bolt": "motley.selectors.fedcvr_bolt:FedCvrBolt",
        "fedstas": "motley.selectors.fedstas:FedSTaS",
        "feel": "motley.selectors.feel:FEEL",
        "flash": "motley.selectors.flash:FLASH",
        "greedyfed": "motley.selectors.greedyfed:GreedyFed",
        "hetero_select": "motley.selectors.hetero_select:HeteroSelect",
        "hetero_select_v1": "motley.selectors.hetero_select_v1:HeteroSelectV1",
        "hics_fl": "motley.selectors.hics_fl:HiCSFL",
        "linucb": "motley.selectors.linucb:LinUCB",
        "neural_bandit": "motley.selectors.neural_bandit:NeuralBandit",
        "oort": "motley.selectors.oort:Oort",
        "poisson": "motley.selectors.poisson:Poisson",
        "power_of_choice": "motley.selectors.power_of_choice:PowerOfChoice",
        "pyramidfl": "motley.selectors.pyramidfl:PyramidFL",
        "restless_bandit": "motley.selectors.restless_bandit:RestlessBandit",
        "tifl": "motley.selectors.tifl:TiFL",
        "ucb1": "motley.selectors.ucb1:UCB1",
        "uniform": "motley.selectors.uniform:Uniform",
    },
    base="motley.selectors.selector:SelectionRule",
)
