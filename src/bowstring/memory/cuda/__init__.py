"""CUDA: the driver, its devices and events, and memory shared by IPC handles."""
