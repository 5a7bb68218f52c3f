"""Launch over the pool, then fork again and again while other threads launch; every child launches too."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np

from bowstring.kernels.bitmap import with_words
from bowstring.kernels.launch import launch
from bowstring.kernels.validity import pack_flags

DEADLINE = 30
SIZE = 1 << 20


def launched() -> bool:
    """Whether a launch over the pool gives the right answer."""
    flags = np.ones(SIZE, np.uint8)
    packed = np.zeros(SIZE // 32, np.uint32)
    launch(pack_flags, len(packed), *with_words(flags), packed)
    return bool((packed == np.uint32(2**32 - 1)).all())


signal.alarm(DEADLINE)  # ends what hangs
assert launched()
over = threading.Event()


def keep_busy() -> None:
    while not over.is_set():
        assert launched()


busy = [threading.Thread(target=keep_busy) for _ in range(2)]
for thread in busy:
    thread.start()
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if not child:
        signal.alarm(DEADLINE)  # ends what hangs
        right = launched() and launched()
        print("child", flush=True)
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
over.set()
for thread in busy:
    thread.join(DEADLINE)
assert launched()
print("parent")
