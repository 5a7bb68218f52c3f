"""Bodies of Arrow IPC messages: layout, checks, and reading many messages at once."""
