"""An Arrow IPC file (or Feather, version 2), batch by batch."""

from __future__ import annotations

from bowstring import ipc
from bowstring.cli.inspection.facts import Facts, batch_facts, metadata_facts, schema_facts
from bowstring.errors import BowstringError

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
        with ipc.open_file(path) as reader:
            facts |= {"batches": reader.num_record_batches, "schema": schema_facts(reader.schema)}
            if reader.schema.metadata:
                facts["schema_metadata"] = metadata_facts(reader.schema.metadata)
            if reader.metadata:
                facts["file_metadata"] = metadata_facts(reader.metadata)
            opened: list[Facts] = []
            facts["opened_batches"] = opened
            for index in range(min(most, reader.num_record_batches)):
                batch = batch_facts(reader.get_batch(index))
                opened.append({"name": f"batch {index}", **batch})
            facts["dictionary_batches_read"] = reader.stats.num_dictionary_batches
    except BowstringError as error:
        return facts, error
    return facts, None
