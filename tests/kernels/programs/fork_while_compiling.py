"""Fork while another thread compiles kernels; every child compiles and launches one itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np

from bowstring.kernels import jit
from bowstring.kernels.bitmap import with_words
from bowstring.kernels.launch import launch
from bowstring.kernels.signature import signatures
from bowstring.kernels.validity import pack_flags

DEADLINE = 240

signal.alarm(DEADLINE)  # ends what hangs
over = threading.Event()
others = [each for each in signatures() if each.kernel is not pack_flags]


def compile_on() -> None:
    for signature in others:
        if not over.is_set():
            jit.compiled(signature)


compiler = threading.Thread(target=compile_on)
compiler.start()
for _ in range(int(sys.argv[1])):
    time.sleep(0.05)  # the compiler is somewhere in the middle; wherever that is, the child must work
    child = os.fork()
    if not child:
        signal.alarm(DEADLINE)  # ends what hangs
        packed = np.zeros(1, np.uint32)
        launch(pack_flags, 1, *with_words(np.ones(3, np.uint8)), packed)
        print("child", flush=True)
        os._exit(0 if packed.tolist() == [7] else 1)
    assert os.waitpid(child, 0)[1] == 0
over.set()
compiler.join(DEADLINE)
print("parent")
