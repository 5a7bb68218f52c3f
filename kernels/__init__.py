"""The work done on elements: one source for the CPU and the GPU. Imported as ``bowstring.kernels``.

A *kernel* is a plain Python function of one work item, ``def expand_bits(i, bitmap, start, out)``, that calls plain
functions of this package, computes with the types of :mod:`bowstring.kernels.types`, allocates nothing and raises
nothing. Its module says what an item is, and which types it takes::

    SIGNATURES = {expand_bits: ("u8[], i64, u64[]!",)}

:func:`~bowstring.kernels.launch.launch` runs it where its arrays are: on the host in threads, out of the library
that the build compiled (:mod:`bowstring.kernels.build`); on CUDA on CuPy's current stream
(:mod:`bowstring.kernels.cuda`). The checker refuses what
these could do differently (:mod:`bowstring.kernels.checker`). What the array namespaces do well enough is not a
kernel but a body for :func:`~bowstring.kernels.launch.run_arrays`, which needs no compiler.

``BOWSTRING_KERNELS``
    says how kernels run on the host (:mod:`bowstring.kernels.host`): ``library``; ``jit``, compiled by numba when
    they are first used; ``checked``, the same with every index checked; or ``interpret``, for a debugger.
``BOWSTRING_THREADS``
    is how many threads a launch may use; all processors unless it says otherwise, 1 inside a Spark task.
``BOWSTRING_CACHE_DIR``
    is where code that numba compiles is kept (:mod:`bowstring.kernels.cache`).
"""
