"""Encodings of Vortex: kernels that decode and encode their elements, and the functions that launch them."""
