"""Flatbuffers metadata of Arrow IPC: bounded reading, and writing."""
