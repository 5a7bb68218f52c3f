"""Read the table that producer.py publishes, without copying it: python examples/consumer.py."""

import bowstring as bow

with bow.connect("unix:tables.sock", "trips", columns=["fare"]) as stream:
    for batch in stream:
        fares = batch["fare"].to_numpy()  # a read-only view of the producer's memory
        print(f"{len(fares):,} fares, {fares.mean():.2f} on average; a copy: {fares.flags.owndata}")
    print(f"path: {stream.stats.path}")
