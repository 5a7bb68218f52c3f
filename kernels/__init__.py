"""The work done on elements: one source for the CPU and the GPU. Imported as ``bowstring.kernels``."""
