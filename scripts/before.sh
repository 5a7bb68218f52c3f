#!/bin/sh
# scripts/before.sh [COMMIT]
#
# Makes build/before/COMMIT, an environment with the wheel of an earlier commit, once, and prints its Python:
# tests/wire lets the build of today talk to it. Exits with 3, and says why, where the history does not have the commit.
set -eu
: "${PYTHON:=python3}"
cd "$(dirname "$0")/.."
commit=${1:-6da4e3a}
folder=build/before/$commit
python=$folder/venv/bin/python

if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
    echo "the git history here does not have commit $commit (a shallow clone, or a source archive)" >&2
    exit 3
fi
# The path is part of the stamp: an environment does not survive being moved.
if [ "$(cat "$folder/stamp" 2>/dev/null)" != "$PWD" ]; then
    rm -rf "$folder"
    mkdir -p "$folder/source"
    git archive "$commit" | tar -x -C "$folder/source"
    "$PYTHON" -m venv "$folder/venv"
    "$python" -m pip install --quiet --upgrade --constraint constraints.txt pip
    "$python" -m pip wheel --quiet --no-deps --build-constraint constraints.txt --wheel-dir "$folder" "$folder/source"
    "$python" -m pip install --quiet --constraint constraints.txt "$folder"/bowstring-*.whl
    rm -rf "$folder/source"
    pwd >"$folder/stamp"
fi
echo "$python"
