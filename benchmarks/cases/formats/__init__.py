"""Arrow IPC, Parquet, Vortex and WKB: bytes to columns and back."""
