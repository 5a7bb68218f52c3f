#!/bin/sh
# Everything that is to be known of a GPU that is lent for minutes, in one call of at most 540 s, on a host without a
# network or an environment of ours; what is worth most comes first, so that it stands whatever is cut off.
#
#     OUT=results BOWSTRING_COMMIT=$(git rev-parse HEAD) sh scripts/gpu_session.sh            everything
#     OUT=results BOWSTRING_COMMIT=$(git rev-parse HEAD) sh scripts/gpu_session.sh failures   what did not pass there
#     DEVICE=fake:0 OUT=/tmp/results sh scripts/gpu_session.sh                                  a rehearsal, without a GPU
#
# Python must have NumPy, pyarrow, CuPy, cuda-bindings, pytest, pytest-xdist and hypothesis; kernels/_native, which git
# ignores, must have travelled, since nothing is compiled there. $OUT holds eight files, each written as it comes:
# session.log has all that was printed, the texts what pytest says, the JSON files figures; summary.txt comes last.
# Each limit is about twice what a step should take; together they are 490 s.
set -u
PYTHON=${PYTHON:-python3} OUT=${OUT:-gpu-session} DEVICE=${DEVICE:-cuda:0} ALL=${ALL:-540}
KEPT=${KEPT:-/tmp/bowstring-gpu-session} # for `failures`, on a machine that is still warm
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
export BOWSTRING_KERNELS="${BOWSTRING_KERNELS-library}" # nothing is compiled
mkdir -p "$OUT" "$KEPT"
: >"$OUT/summary.txt"
began=$(date +%s)
again= only=
if [ "${1:-}" = failures ]; then again=yes; else rm -f "$KEPT"/*.rc "$KEPT"/*.json; fi
case $DEVICE in
fake:*) marked='not gpu and not slow and not peers' many=2 few=2 sanitizer='' patience=${PATIENCE:-4} ;;
*) marked='gpu and not slow' many=8 few=4 patience=${PATIENCE:-1}
    sanitizer='compute-sanitizer --tool memcheck --error-exitcode 9 --target-processes all' ;;
esac

step() { # step NAME SECONDS FILE COMMAND…: at most so long, its output into $OUT/FILE; a line of it into the summary
    name=$1 seconds=$(($2 * patience)) file=$OUT/$3 left=$((ALL * patience + began - $(date +%s)))
    shift 3
    echo "== $name" >>"$file"
    if [ "$left" -lt 5 ]; then
        echo "$name: no time was left" >>"$OUT/summary.txt"
        return
    fi
    [ "$seconds" -gt "$left" ] && seconds=$left
    from=$(date +%s)
    timeout -s INT -k 10 "$seconds" "$@" >>"$file" 2>&1
    rc=$?
    [ "$rc$only" = 5yes ] && rc=0 # no test had failed
    [ -n "$only" ] || echo "$rc" >"$KEPT/$name.rc"
    echo "== $name: rc $rc after $(($(date +%s) - from)) of $seconds s"
    grep -E '^(FAILED|ERROR|DOES NOT HOLD)' "$file" | cut -c1-200 | head -n 12
    echo "$name: rc $rc after $(($(date +%s) - from)) of $seconds s: $(tail -n 1 "$file" | cut -c1-120)" >>"$OUT/summary.txt"
}

checks() { # checks NAME SECONDS: those of tests/gpu/session, whose figures are kept for a second call
    step "$1" "$2" session.log "$PYTHON" -m tests.gpu.session "$1" --device "$DEVICE" --json "$OUT/$1.json" \
        ${again:+--failed "$KEPT/$1.json"}
    [ -f "$OUT/$1.json" ] && [ -z "$again" ] && cp "$OUT/$1.json" "$KEPT/"
    grep -E '^(holds|DOES)' "$OUT/session.log" | tail -n 7 | cut -c1-160
}

pytests() { # pytests NAME SECONDS ARGUMENT…
    name=$1 seconds=$2 only=
    shift 2
    # Of a step that was cut off, or never began, nobody knows what fails: it runs whole.
    case $again$(cat "$KEPT/$name.rc" 2>/dev/null) in yes0 | yes1) only=yes ;; esac
    # shellcheck disable=SC2086  several words
    step "$name" "$seconds" "$name.txt" $before "$PYTHON" -m pytest -q --tb=short -rfE -m "$marked" --durations=5 \
        -o cache_dir="$KEPT/$name" ${only:+--last-failed --last-failed-no-failures none} "$@"
}

# The driver stays initialised while this process lives, and every other one starts quicker.
"$PYTHON" - "$DEVICE" <<'PY' >>"$OUT/session.log" 2>&1 &
import sys, time
import bowstring.testing
from bowstring.memory.devices import device_by_name
device = device_by_name(sys.argv[1])
held = device.make_slab(1 << 21)
time.sleep(900)
PY
idle=$!
trap 'kill $idle 2>/dev/null' EXIT
before=

step facts 20 session.log "$PYTHON" - "$DEVICE" <<'PY'
import importlib.metadata as metadata, shutil, subprocess, sys
print(sys.version)
if shutil.which("nvidia-smi"):
    subprocess.run(["nvidia-smi"], timeout=8)
for each in ("numpy", "pyarrow", "cuda-bindings", "pytest", "pytest-xdist", "hypothesis", "numba", "numba-cuda"):
    try:
        print(each, metadata.version(each))
    except metadata.PackageNotFoundError:
        print(each, "MISSING")
print([each.name + " " + each.version for each in metadata.distributions() if each.name.startswith("cupy")])
import bowstring.kernels.bitmap, bowstring.testing  # links of the tree that did not travel show here
from bowstring.kernels import archive, library
print("kernels for the host:", getattr(library.load(), "level", library.load()))
print("kernels for GPUs:", archive.load())
from bowstring.memory.devices import device_by_name
device = device_by_name(sys.argv[1])
print(device, device.uuid.hex(), int(device.to_host(device.xp.arange(3).sum().reshape(1))[0]))
PY

# As where torch is installed, and CuPy is not.
step views 15 session.log "$PYTHON" - "$DEVICE" <<'PY'
import sys
sys.modules["cupy"] = None
import numpy as np, pyarrow as pa
import bowstring as bow, bowstring.testing
from bowstring.memory.devices import device_by_name
device = device_by_name(sys.argv[1])
table = pa.table({"n": np.arange(1 << 20), "text": [str(row) for row in range(1 << 20)]})
with bow.Server() as host, bow.connect(host.publish("t", table), device=device.name) as stream:
    batch = next(stream)
for mode in ("map", "copy"):
    with bow.Server(pool=bow.Pool(device)) as server, bow.connect(server.publish("t", batch), mode=mode) as stream:
        there = next(stream)
    assert there.device is device and pa.table(there.to_arrow()).equals(table), mode
    try:
        import torch
    except ImportError:
        print(mode, "holds; torch is MISSING")
    else:
        tensor = torch.from_dlpack(there["n"].values)
        print(mode, "holds; torch's sum is", int(tensor.sum()), "of", int(table["n"].to_numpy().sum()))
PY
checks pair 50
checks bandwidth 50
# A block of CuPy's pool holds what is read or written outside of an array; an allocation of its own does not.
export BOWSTRING_TESTS_POOL=none
pytests kernels 40 -n "$many" --max-worker-restart=30 tests/gpu/test_kernels.py
unset BOWSTRING_TESTS_POOL
pytests handovers 135 -n "$few" --max-worker-restart=30 -k 'not 8589934592' \
    tests/gpu/test_allocators.py tests/gpu/test_hand_over.py tests/gpu/test_in_place.py tests/gpu/test_exchange.py tests/gpu/test_sizes.py
pytests growth 60 -p no:xdist tests/gpu/test_growth.py
before=$sanitizer
export BOWSTRING_TESTS_POOL=none
pytests memcheck 120 -p no:xdist -k \
    'expand_bits or pack_flags or count_bits or and_bits or unpack_singles or copy_slots or gather_pieces' \
    tests/gpu/test_kernels.py
echo "== all, $(($(date +%s) - began)) s"
cat "$OUT/summary.txt"
! grep -qE 'rc [1-9]|no time' "$OUT/summary.txt"
