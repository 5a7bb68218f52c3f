#!/bin/sh
# scripts/env.sh VENV CONSTRAINTS EXTRAS [ENOUGH...]
#
# Makes VENV and installs Bowstring (editable) with EXTRAS into it, once. A stamp in VENV says what was installed
# from which pyproject.toml and constraints; where it fits, or one for the larger sets ENOUGH does, nothing is
# done and the network is not touched.
set -eu
: "${PYTHON:=python3}"
venv=$1 constraints=$2 extras=$3
shift 3
python=$venv/bin/python

# The path is part of the stamp: an environment does not survive being moved.
print_state() { { pwd && cat pyproject.toml "$constraints"; } | sha256sum | cut -d' ' -f1; }
state=$(print_state)

for set in "$extras" "$@"; do
    stamp=$venv/.stamp-$(echo "$set" | tr ',' '-')
    if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] && "$python" -c '' 2>/dev/null; then
        exit 0
    fi
done

fail() { echo "bowstring: $1" >&2; exit 1; }
if ! { [ -x "$python" ] && "$python" -m pip --version >/dev/null 2>&1; }; then
    command -v "$PYTHON" >/dev/null || fail "no '$PYTHON' here: install Python 3.11 or later, or say PYTHON=/path/to/python3"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$("$PYTHON" --version) is too old: Python 3.11 or later is needed; say PYTHON=/path/to/python3"
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$PYTHON has no 'venv' module. On Debian and Ubuntu: apt-get install python3-venv"
    "$PYTHON" -m venv "$venv"
fi

rm -f "$venv"/.stamp-*
"$python" -m pip install --quiet --upgrade --constraint "$constraints" pip
# `make kernels` compiles them, with the numba that is installed here.
export HATCH_BUILD_NO_HOOKS=true
"$python" -m pip install --quiet --constraint "$constraints" --build-constraint "$constraints" --editable ".[$extras]"
echo "$state" >"$venv/.stamp-$(echo "$extras" | tr ',' '-')"
