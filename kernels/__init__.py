"""The work done on elements: one source for the CPU and the GPU. Imported as ``bowstring.kernels``.

A *kernel* is a plain Python function of one work item, ``def expand_bits(i, bitmap, start, out)``, that allocates
and raises nothing; ``SIGNATURES = {expand_bits: ("u8[], i64, u64[]!",)}`` in its module names its types.
:func:`~bowstring.kernels.launch.launch` runs it where its arrays are, :mod:`bowstring.kernels.checker` checks it.
``BOWSTRING_KERNELS`` (:mod:`bowstring.kernels.host`), ``BOWSTRING_THREADS`` and ``BOWSTRING_CACHE_DIR`` set how.
"""
