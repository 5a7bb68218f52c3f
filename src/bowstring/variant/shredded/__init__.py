"""Shredded Variants: columns whose values lie, wholly or in part, in typed columns beside ``value``."""
