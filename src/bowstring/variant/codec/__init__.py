"""One Variant value at a time on the host: decoded with every bound checked, and encoded."""
