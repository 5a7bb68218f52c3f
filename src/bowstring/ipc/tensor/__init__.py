"""Tensors as single Arrow IPC messages (Tensor.fbs)."""
