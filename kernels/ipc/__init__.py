"""Kernels of record batch messages, and of the structs of Arrow's C data interface."""
