"""Batches to and from other libraries: the Arrow C interfaces, DLPack, NumPy, RAPIDS."""
