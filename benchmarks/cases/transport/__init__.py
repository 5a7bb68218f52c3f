"""From one process to another."""
