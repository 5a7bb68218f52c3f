"""Sparse tensors as single Arrow IPC messages (SparseTensor.fbs)."""
