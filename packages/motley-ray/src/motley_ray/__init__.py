"""Motley on a Ray cluster: the engine ``ray``, and runs that are spread over nodes. See
:mod:`motley_ray.cluster` and :mod:`motley_ray.spread_runs`."""
