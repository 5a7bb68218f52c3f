"""An Arrow IPC file (or Feather, version 2), as pyarrow reads it."""

from __future__ import annotations

import pyarrow as pa

from bowstring.cli.inspection.facts import Facts, batch_facts, metadata_facts, schema_facts
from bowstring.columnar import Batch
from bowstring.errors import BowstringError, InvalidData

__all__ = ["inspect_arrow_file"]


def inspect_arrow_file(path: str, most: int) -> tuple[Facts, BowstringError | None]:
    """Return what a file holds, and the error that ended the look at it, if one did.

    Parameters
    ----------
    path
        The file.
    most
        How many record batches are opened.
    """
    facts: Facts = {}
    try:
        with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as reader:
            facts |= {"batches": reader.num_record_batches, "schema": schema_facts(reader.schema)}
            if reader.schema.metadata:
                facts["schema_metadata"] = metadata_facts(reader.schema.metadata)
            opened: list[Facts] = []
            facts["opened_batches"] = opened
            for index in range(min(most, reader.num_record_batches)):
                batch = batch_facts(Batch.from_arrow(reader.get_batch(index)))
                opened.append({"name": f"batch {index}", **batch})
            facts["dictionary_batches_read"] = reader.stats.num_dictionary_batches
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, BowstringError):
            return facts, error
        return facts, InvalidData("the file cannot be read", found=str(error).partition("\n")[0], where=path)
    return facts, None
