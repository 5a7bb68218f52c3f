"""Cases of every kernel on numba's CUDA simulator, compared with the same compiled for the host.

``python -m tests.kernels.programs.simulate ITEMS``: of each kernel, cases of about so many work items together.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from numba import config

from bowstring.kernels.cubin import grid_function, numba_cuda
from bowstring.kernels.launch import launch
from bowstring.kernels.signature import match
from tests.kernels.cases import CASES, cases, written

THREADS = 32
cuda = numba_cuda()

assert config.ENABLE_CUDASIM
assert "simulator" in cuda.simulator.__name__

# Integers wrap, as they do where they are compiled; `numpy.errstate` does not reach the simulator's threads.
warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)

most = int(sys.argv[1])
for kernel in CASES:
    step = 1 + sum(items for items, _ in cases(kernel)) // most
    pairs = list(zip(cases(kernel), cases(kernel), strict=True))
    for (items, on_host), (_, simulated) in pairs[::step]:
        launch(kernel, items, *on_host)
        if items:
            signature, arguments = match(kernel, simulated)
            function = cuda.jit(grid_function(signature, cuda))
            there = [cuda.to_device(each) if each.ndim else each for each in arguments]
            threads = min(items + 1, THREADS)  # it is slow where many do nothing
            function[-(-items // threads), threads](np.int64(items), *there)
            for before, after, kind in zip(arguments, there, signature.parameters, strict=True):
                if kind.written:
                    after.copy_to_host(before)
        for one, other in zip(written(kernel, on_host), written(kernel, simulated), strict=True):
            assert np.array_equal(one, other), (kernel, items, one, other)
    print(kernel.__name__, flush=True)
