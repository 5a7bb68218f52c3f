"""What the cases of a GPU have in common, and what their results say of it."""
