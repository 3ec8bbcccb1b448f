"""Federations of the partitioners of ``flwr_datasets``: a Flower user's clients as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from motley.core.errors import DataError
from motley.tasks.task import Federation
from motley_data.own_federation import from_clients


def from_flower(partitioner: Any, **options: Any) -> Federation:
    """Return a federation whose client k holds ``partitioner.load_partition(k)``.

    Natural ids become the clients' names, and their column is no input.

    Parameters
    ----------
    partitioner: of ``flwr_datasets``, with its data set assigned: ``partitioner.dataset = ...``.
    options: those of :func:`~motley_data.own_federation.from_clients`, such as ``label`` and
    ``inputs``; ``test`` may also be a ``Dataset`` on which the common model tests.

    Raises
    ------
    DataError: no partitioner, or one without data; as in ``from_clients``.
    """
    needed = ("load_partition", "num_partitions")
    if isinstance(partitioner, type) or not all(hasattr(partitioner, name) for name in needed):
        kind = partitioner if isinstance(partitioner, type) else type(partitioner)
        raise DataError(
            f"got {kind.__name__}; expected a partitioner of flwr_datasets, e.g. "
            "IidPartitioner(num_partitions=10); of a FederatedDataset give fds.partitioners"
            '["train"]'
        )
    if hasattr(partitioner, "is_dataset_assigned") and not partitioner.is_dataset_assigned():
        raise DataError(
            "the partitioner has no data set; write partitioner.dataset = dataset, e.g. of "
            "datasets.load_from_disk"
        )
    count = int(partitioner.num_partitions)
    ids = _natural_ids(partitioner)
    column = getattr(partitioner, "_partition_by", None) if ids else None

    def partitions() -> Iterator[Any]:
        for number in range(count):
            part = partitioner.load_partition(number)
            yield part.remove_columns([column]) if column in part.column_names else part

    clients: Any = partitions()
    if ids:
        clients = {str(ids[number]): part for number, part in enumerate(partitions())}
    return from_clients(clients, **options)


def _natural_ids(partitioner: Any) -> dict[int, Any]:
    """Return the natural id, or the list of them, of each partition; empty where there are none."""
    for name in ("partition_id_to_natural_id", "partition_id_to_natural_ids"):
        ids = getattr(partitioner, name, None)
        if ids:
            return {
                number: ", ".join(map(str, natural)) if isinstance(natural, list) else natural
                for number, natural in ids.items()
            }
    return {}
