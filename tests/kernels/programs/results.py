"""What the library's kernels write for every case: the level of its code, then a hash for each kernel."""

from __future__ import annotations

import hashlib
import os

from bowstring.kernels.launch import launch
from bowstring.kernels.library import Library, load
from tests.kernels.cases import CASES, cases, written

os.environ["BOWSTRING_KERNELS"] = "library"
library = load()
assert isinstance(library, Library), library
print(library.level)
for kernel in CASES:
    total = hashlib.sha256()
    for items, arguments in cases(kernel):
        launch(kernel, items, *arguments)
        for each in written(kernel, arguments):
            total.update(each.tobytes())
    print(kernel.__name__, total.hexdigest())
