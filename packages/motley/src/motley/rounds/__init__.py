"""The round loop: the only package that imports selectors, algorithms, world and timing, and
engines."""
