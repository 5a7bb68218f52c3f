"""Compressed bodies of Arrow IPC messages (LZ4 frames and ZSTD)."""
