"""Validation of batches: structure on the host, every element where the data are."""
