"""Another user who tries to read; prints what it got."""

from __future__ import annotations

import os
import sys

import bowstring as bow
import bowstring.transport.unix  # another user may not be able to read its file

connect = bow.connect
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    with connect(sys.argv[1], limits=bow.Limits(connect_timeout=5.0, close_timeout=0.2)) as stream:
        print(stream.read_all().num_rows, flush=True)
except bow.BowstringError as error:
    print(type(error).__name__, flush=True)
