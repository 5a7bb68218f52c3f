"""Kernels that write Variant values as JSON text."""
