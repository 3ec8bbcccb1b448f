"""``make gpu``: everything that waits for a GPU, in one command that can be killed and goes on
where it was.

    python -m benchmarks.gpu [--out DIR] [--minutes 40] [--only STAGE ...] [--again STAGE ...] \\
        [--dry-run]
    python -m benchmarks.gpu --smoke --device cpu

from the checkout's root with ``PYTHONPATH=.``; nothing needs to be installed but the packages that
``pyproject.toml`` lists. The stages are those of :mod:`benchmarks.gpu.stages`, each a process of
its own with a limit of its own. Everything known is in the folder: a JSON file for each stage,
written after every row, the runs with their checkpoints, ``state.json``, and ``summary.md``.
"""
