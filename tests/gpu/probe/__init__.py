"""A probe of what a driver does with memory that several processes share, before anything relies on it.

``python -m tests.gpu.probe [--device cuda:0] [--json FILE]`` in the root of the project. Every check has processes
of its own, and a deadline; what one of them does to a context stays there.
"""
