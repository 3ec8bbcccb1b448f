"""A Motley selector inside a Flower strategy: what :func:`~motley.adapters.flower.strategy.wrapper.with_selector` needs."""
