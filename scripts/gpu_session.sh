#!/bin/sh
# What is to be done on a GPU that is lent for minutes, on a host without a network or an environment of ours: the
# steps that are named, in that order, each with a limit, one after the other whatever becomes of them.
#
#     OUT=results BOWSTRING_COMMIT=$(git rev-parse HEAD) sh scripts/gpu_session.sh facts probe tests
#
# Python must have NumPy, pyarrow, CuPy, cuda-bindings, pytest and hypothesis, and kernels that `make kernels` compiled
# (kernels/_native, which git ignores: take it along) or numba and numba-cuda; the step `build` compiles them there.
# `BOWSTRING_KERNELS=library` before it makes sure that none is compiled. Everything that is printed is in
# $OUT/session.log too; the JSON files beside it are few. A table of the steps comes last.
set -u
PYTHON=${PYTHON:-python3}
OUT=${OUT:-gpu-session}
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$OUT"
done_so_far=

step() { # step NAME SECONDS COMMAND…
    name=$1 seconds=$2 began=$(date +%s)
    shift 2
    echo "== $name: at most $seconds s"
    timeout -k 10 "$seconds" "$@" 2>&1
    rc=$?
    done_so_far="$done_so_far
$name: rc $rc after $(($(date +%s) - began)) s"
}

facts() {
    step driver 20 nvidia-smi
    step packages 60 "$PYTHON" - <<'PY'
import importlib.metadata as metadata, os, sys
print(sys.version)
for name in ("numpy", "pyarrow", "numba", "numba-cuda", "llvmlite", "cuda-bindings", "cuda-core", "pytest", "nvidia-ml-py"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "MISSING")
print([each.name + " " + each.version for each in metadata.distributions() if each.name.startswith("cupy")])
from cuda.pathfinder import load_nvidia_dynamic_lib
for name in ("nvrtc", "nvvm", "nvJitLink"):  # what numba-cuda and CuPy compile with
    try:
        print(name, load_nvidia_dynamic_lib(name).abs_path)
    except Exception as error:
        print(name, "MISSING:", str(error).splitlines()[0])
import cupy
print("cupy", cupy.__version__, (cupy.arange(3) + 1).sum())
import bowstring.kernels.bitmap, bowstring.testing  # links of the tree that did not travel show here
from bowstring.memory.device import device_by_name
print(device_by_name("cuda:0"), device_by_name("cuda:0").uuid.hex())
from bowstring.kernels import archive, library
print("kernels for the host:", getattr(library.load(), "level", library.load()))
print("kernels for GPUs:", archive.load())
PY
}

build() { step build 540 "$PYTHON" -m bowstring.kernels.build --objects build/kernels; }
probe() { step probe 240 "$PYTHON" -m tests.gpu.probe --json "$OUT/probe.json" --most $((2 << 30)); }
probe_large() { step probe-large 240 "$PYTHON" -m tests.gpu.probe times memory_comes_back --json "$OUT/probe-large.json"; }
doctor() { step doctor 120 sh -c "$PYTHON -m bowstring doctor --json >$OUT/doctor.json; rc=\$?; cat $OUT/doctor.json; exit \$rc"; }
pytests() { # pytests NAME SECONDS EXPRESSION FILE…
    name=$1 seconds=$2 only=$3
    shift 3
    step "$name" "$seconds" "$PYTHON" -m pytest -q -p no:cacheprovider -m "$only" --durations=10 "$@"
}
tests() { pytests tests 420 "gpu and not slow" tests/gpu --ignore tests/gpu/test_kernels.py --deselect tests/gpu/test_probe.py; }
kernels() { pytests kernels 420 "gpu and not slow" tests/gpu/test_kernels.py; }
slow() { pytests slow 480 "gpu and slow" tests/gpu; }
bench_quick() { step bench-quick 240 "$PYTHON" -m bowstring bench gpu --quick --json "$OUT/bench-quick.json"; }
bench() { step bench 540 "$PYTHON" -m bowstring bench gpu --full --json "$OUT/bench.json"; }
sanitized() {
    step memcheck 480 compute-sanitizer --tool memcheck --error-exitcode 9 --target-processes all \
        "$PYTHON" -m pytest -q -m gpu -p no:faulthandler -p no:cacheprovider -k "not ten_million" tests/gpu/test_kernels.py
}

{
    for wanted in "$@"; do
        case $wanted in
            facts | build | probe | probe_large | doctor | tests | kernels | slow | bench_quick | bench | sanitized) "$wanted" ;;
            *) echo "no such step: $wanted" ;;
        esac
    done
    echo "== steps$done_so_far"
} | tee "$OUT/session.log"
