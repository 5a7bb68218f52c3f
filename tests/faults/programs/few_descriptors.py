"""A process that publishes, connects and reads with ever more descriptors to spare, from none to enough.

Called with an address. Says ``ok``, or what went wrong.
"""

from __future__ import annotations

import gc
import itertools
import os
import resource
import sys
import time

import pyarrow as pa

import bowstring as bow
from bowstring.memory import default_pool, mappings

ADDRESS = sys.argv[1]
TLS = bow.TlsConfig(cert=os.environ["TESTS_TLS_CERT"]) if ADDRESS.startswith("tls:") else None
TABLE = pa.table({"n": list(range(1000)), "text": [str(number) for number in range(1000)]})
LIMITS = bow.Limits(connect_timeout=0.3, reply_timeout=0.3, close_timeout=0.5)
MOST = 24
ROUNDS_THAT_WORK = 3


def held() -> int:
    gc.collect()
    mappings().clear()
    default_pool().trim()
    return len(os.listdir("/proc/self/fd"))


def limit_that_spares(spare: int) -> int:
    """Return the limit below which so many numbers of descriptors are free."""
    used = {int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
    free = (number for number in itertools.count() if number not in used)
    return next(itertools.islice(free, spare, None))


def round_trip(spare: int) -> str:
    server = None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit_that_spares(spare), hard))
    try:
        server = bow.Server(ADDRESS, tls=TLS, limits=LIMITS)
        endpoint = server.publish("t", TABLE)
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert stream.read_all().equals(TABLE)
        refused = server.stats.refused
        if refused:
            return f"{refused} refused, though all were read"
    except bow.LimitExceeded as error:
        return "refused" if "ulimit -n" in str(error) else repr(error)
    except bow.DeadlineExceeded:
        return "late"  # the server, which is this process, could not take the connection
    except Exception as error:  # noqa: BLE001  each is told
        return f"{spare} to spare: {error!r}"
    else:
        return "read"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        if server is not None:
            server.close()


def main() -> str:
    round_trip(MOST)
    time.sleep(0.2)
    before, found = held(), []
    for spare in range(MOST):
        found.append(round_trip(spare))
        if found[-ROUNDS_THAT_WORK:] == ["read"] * ROUNDS_THAT_WORK:
            break
    wrong = set(found) - {"refused", "late", "read"}
    if wrong or found[0] == "read" or found[-1] != "read":
        return f"{found}"
    end = time.monotonic() + 5.0
    while held() > before and time.monotonic() < end:
        time.sleep(0.05)
    return "ok" if held() <= before else f"{before} descriptors became {held()}"


print(main(), flush=True)
