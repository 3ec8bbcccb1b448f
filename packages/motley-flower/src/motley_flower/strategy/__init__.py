"""A Motley selector inside a Flower strategy: what
:func:`~motley_flower.strategy.wrapper.with_selector` needs."""
