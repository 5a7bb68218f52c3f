"""JSON text as nodes, and nodes as Variant bytes: the kernels of ``variant.from_json``."""
