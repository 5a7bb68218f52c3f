"""Variant columns from Python objects, and Python objects from Variant columns."""
