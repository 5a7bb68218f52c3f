"""Reading: what a reader does with one stream."""
