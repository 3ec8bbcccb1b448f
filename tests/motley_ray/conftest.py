"""The federations that engines are tried on, for the engine on a cluster."""

from tests.motley.engines.conftest import download, jobs, setting

__all__ = ["download", "jobs", "setting"]
