"""The work done on elements: one source for the CPU and the GPU. Imported as ``bowstring.kernels``.

A *kernel* is a plain Python function of one work item, ``def pack_flags(i, flags, out)``, that calls plain
functions of this room, computes with the types of :mod:`bowstring.kernels.types`, allocates nothing and raises
nothing. Its module says what an item is, and which types it takes::

    SIGNATURES = {pack_flags: ("u8[], u64[]!",)}

:func:`~bowstring.kernels.launch.launch` runs it where its arrays are: compiled by numba, in threads, on the host;
compiled by numba-cuda, on CuPy's current stream, on CUDA. :mod:`bowstring.kernels.checker` refuses what these could
do differently. What the array namespaces do well enough is not a kernel but a body for
:func:`~bowstring.kernels.launch.run_arrays`, which needs no compiler.

``BOWSTRING_KERNELS=interpret``
    calls the plain functions instead, slowly, so that a debugger can look at each step (on the host).
``BOWSTRING_KERNELS=checked``
    compiles them so that an index outside of its array raises `IndexError` (on the host): for tests.
``BOWSTRING_THREADS``
    is how many threads a launch may use; all processors unless it says otherwise, 1 inside a Spark task.
``BOWSTRING_CACHE_DIR``
    is where compiled code is kept (:mod:`bowstring.kernels.cache`); ``python -m bowstring.kernels.warm`` fills it.
"""
