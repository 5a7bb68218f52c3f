"""Kernels that cast Variant values as Spark's ``try_variant_get`` does."""
