#!/bin/sh
# Installs, pinned, what the end-to-end tests drive: the official SDKs' clients, the real servers, and the
# protocol's conformance suite with the Node.js that it needs.
# Nothing is done where it is already in place.
set -eu
cd "$(dirname "$0")/../tests/sdk"

# An installation is in place when its stamp equals what it was made from.
fresh() { [ -f "$1" ] && cmp -s "$1" "$2"; }

if ! fresh ts/node_modules/.stamp ts/package-lock.json; then
    (cd ts && npm ci --silent --no-audit --no-fund --ignore-scripts)
    cp ts/package-lock.json ts/node_modules/.stamp
fi

if ! fresh conformance/node_modules/.stamp conformance/package-lock.json; then
    # The one package whose script is wanted fetches the Node.js of its own version for this machine.
    (cd conformance && npm ci --silent --no-audit --no-fund --ignore-scripts \
        && cd node_modules/node && node installArchSpecificPackage >/dev/null)
    cp conformance/package-lock.json conformance/node_modules/.stamp
fi

if ! fresh py/.venv/.stamp py/requirements.txt; then
    rm -rf py/.venv
    if ! python3 -m venv py/.venv 2>py/venv-error.txt; then
        cat py/venv-error.txt >&2
        echo "python3 can't make a virtual environment; on Debian: apt-get install python3-venv" >&2
        rm -rf py/.venv py/venv-error.txt
        exit 1
    fi
    rm -f py/venv-error.txt
    py/.venv/bin/pip install --quiet --disable-pip-version-check --no-deps -r py/requirements.txt
    cp py/requirements.txt py/.venv/.stamp
fi
