"""How many functions of Bowstring a hand-over enters, warm: counted, not timed, so that it does not creep up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow as pa

import bowstring as bow

PACKAGE = f"{Path(bow.__file__).parent}/"
KERNELS = f"{(Path(bow.__file__).parent / 'kernels').resolve()}/"
# Wanted are 60, 110, 70 and 25. What is left of a reader's are dialling, mapping, metadata and threads.
MOST = {"publish": 135, "reader": 262, "server": 76, "to_arrow": 25}


class Entered:
    """Which functions are entered while it is on, by any thread that began after `everywhere`."""

    def __init__(self) -> None:
        self._on = False
        self._found: set[tuple[str, str, int]] = set()

    def everywhere(self) -> None:
        """Look at this thread and all that begin from now on."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Take note of a call."""
        if self._on and event == "call":
            code = frame.f_code
            if code.co_filename.startswith((PACKAGE, KERNELS)):
                self._found.add((code.co_filename, code.co_name, code.co_firstlineno))

    def begin(self) -> None:
        """Count from here on."""
        self._found.clear()
        self._on = True

    def end(self) -> int:
        """Return how many there were."""
        self._on = False
        return len(self._found)


def table() -> pa.Table:
    """Return 1 MiB in 8 columns."""
    return pa.table({f"c{number}": np.random.default_rng(number).random(1 << 14) for number in range(8)})


def serve() -> None:
    """Publish; then, as it is told by lines, count while a reader comes."""
    entered = Entered()
    entered.everywhere()
    with bow.Server() as server:
        for number in range(4):
            server.publish(f"{number}", table())
        data = table()
        entered.begin()
        endpoint = server.publish("t", data)
        print(json.dumps([str(endpoint), entered.end()]), flush=True)
        for line in sys.stdin:
            if line == "begin\n":
                entered.begin()
                print("null", flush=True)
            else:
                print(entered.end(), flush=True)


def test_a_hand_over_enters_few_functions() -> None:
    """Publishing a table, connecting up to the first batch in both processes, and the batch as pyarrow's."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        uri, published = json.loads(program.stdout.readline())
        found = {"publish": published, "reader": 1 << 20, "server": 1 << 20, "to_arrow": 1 << 20}
        entered = Entered()
        try:
            for turn in range(8):
                print("begin", file=program.stdin, flush=True)
                program.stdout.readline()
                sys.setprofile(entered.note)
                entered.begin()
                stream = bow.connect(uri)
                batch = stream.read_next_batch()
                reader = entered.end()
                sys.setprofile(None)
                time.sleep(0.1)  # until the server has done what follows
                print("end", file=program.stdin, flush=True)
                served = json.loads(program.stdout.readline())
                sys.setprofile(entered.note)
                entered.begin()
                taken = batch.to_arrow()
                arrow = entered.end()
                sys.setprofile(None)
                assert taken.num_rows == 1 << 14
                del batch, taken
                stream.close()
                if turn > 2:  # warm
                    found["reader"] = min(found["reader"], reader)
                    found["server"] = min(found["server"], served)
                    found["to_arrow"] = min(found["to_arrow"], arrow)
        finally:
            sys.setprofile(None)
            program.stdin.close()
    assert all(found[name] <= most for name, most in MOST.items()), found


if __name__ == "__main__":
    serve()
