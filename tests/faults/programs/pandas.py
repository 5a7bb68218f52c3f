"""Stands in for pandas: pyarrow imports pandas where it can, which is half of what such a program takes."""

raise ImportError("programs of the fault tests do not use pandas")
