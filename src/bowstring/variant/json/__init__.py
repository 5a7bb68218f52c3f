"""Variant columns from JSON text, and JSON text from Variant columns."""
