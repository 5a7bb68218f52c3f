#!/bin/sh
# scripts/test_install.sh [WHEEL]
#
# Installs Bowstring as users do, and runs the README there: plain `pip wheel .` builds the files of the last commit in
# an isolated build, and the wheel goes into an environment of $PYTHON with nothing else. Objects that build/kernels has
# are not compiled again, if PIP_CONSTRAINT brings the versions that compiled them. With a WHEEL, that one is installed;
# a pure one with Numba.
set -eu
: "${PYTHON:=python3}"
wheel=${1:-}
[ -z "$wheel" ] || wheel=$(realpath "$wheel")
cd "$(dirname "$0")/.."
say() { echo "test-install: $1"; }
fail() { say "$1" >&2; exit 1; }
# pip 26 asks for the second name where earlier ones take the first for the isolated build, too.
[ -z "${PIP_CONSTRAINT:-}" ] || export PIP_BUILD_CONSTRAINT="${PIP_BUILD_CONSTRAINT:-$PIP_CONSTRAINT}"
unset PYTHONPATH PYTHONHOME HATCH_BUILD_NO_HOOKS
for name in $(env | sed -n 's/^\(BOWSTRING_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=$folder/venv/bin/python
mkdir "$folder/clone" "$folder/readme" "$folder/work"
# The owner of the checkout may be another than who tests; `git -c safe.directory` has no effect before 2.38.
printf '[safe]\n\tdirectory = *\n' >"$folder/gitconfig"
export GIT_CONFIG_GLOBAL="$folder/gitconfig"
git archive --output "$folder/clone.tar" HEAD || fail "it needs a clone of the repository, by git"
tar -x -f "$folder/clone.tar" -C "$folder/clone"
[ -z "$(git status --porcelain)" ] || say "the last commit is tested; what was changed since is not"
if [ -d build/kernels/host ]; then
    mkdir -p "$folder/clone/build/kernels"
    cp -R build/kernels/host "$folder/clone/build/kernels/"
fi
"$PYTHON" -m venv "$folder/venv"

cd "$folder/clone"
if [ -z "$wheel" ]; then
    say "pip wheel ."
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$folder" .
    wheel=$(echo "$folder"/bowstring-*.whl)
fi
kernels=ok extra=
case $wheel in *-none-any.whl) [ $# = 1 ] || fail "the wheel has no compiled kernels: $(basename "$wheel")"
    kernels=broken extra='[kernels]' ;; esac
# Nothing of the checkout is left but the README, and what runs it.
mkdir -p "$folder/readme/tests"
cp README.md "$folder/readme/"
cp -R tests/docs "$folder/readme/tests/"
cd "$folder/work"
rm -rf "$folder/clone"

say "pip install $(basename "$wheel")$extra"
"$python" -m pip install --quiet "$wheel$extra"
say "the README: doctor, two processes, and what else it does"
"$folder/venv/bin/bowstring" doctor --json >doctor.json || fail "doctor: the default path does not work"
"$python" -c '
import json, sys
[kernels] = [check for check in json.load(open("doctor.json"))["checks"] if check["name"] == "kernels"]
assert kernels["state"] == sys.argv[1], kernels
' "$kernels"
"$python" "$folder/readme/tests/docs/two_processes.py"
"$python" "$folder/readme/tests/docs/pages.py" README.md
say "passed"
