"""Variants: by path, to and from JSON and Python, shredded."""
