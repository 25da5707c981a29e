#!/usr/bin/env bash
# Installs what is missing for one purpose: scripts/setup.sh serve | desktop | package | test
#   serve    the gateway and the command line
#   desktop  the same, with the tray and the window
#   package  the same, with what the Debian package is bundled with
#   test     all of it, with what the tests need
# System packages go through apt-get where it is there and may be used; else they are named, and this stops.
set -euo pipefail

purpose=${1:?"say for what: serve, desktop, package or test"}
missing=()

has() { command -v "$1" >/dev/null 2>&1; }
needs() { # needs <package> <command that succeeds when it is there…>
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
has_library() { { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q "$1"; }
has_venv() { python3 -c 'import ensurepip, venv'; }

needs build-essential has cc
if [ "$purpose" != serve ] && [ "$(uname -s)" = Linux ]; then
    needs libwebkit2gtk-4.1-dev pkg-config --exists webkit2gtk-4.1
    needs libayatana-appindicator3-1 has_library libayatana-appindicator3.so.1
fi
if [ "$purpose" = package ]; then
    needs libayatana-appindicator3-dev pkg-config --exists ayatana-appindicator3-0.1
fi
if [ "$purpose" = test ]; then
    needs python3-venv has_venv
    if [ "$(uname -s)" = Linux ]; then
        needs xvfb has Xvfb
        needs dbus has dbus-daemon
        needs webkit2gtk-driver has WebKitWebDriver
    fi
fi

if [ ${#missing[@]} -gt 0 ]; then
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    if ! has apt-get; then
        echo "Missing, by Debian's names: ${missing[*]}" >&2
        echo "Install them with your system's package manager, then try again." >&2
        exit 1
    elif [ "$(id -u)" = 0 ]; then
        as_root=()
    elif has sudo && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        echo "Missing system packages. Install them, then try again:" >&2
        echo "  sudo $install" >&2
        exit 1
    fi
    echo "Installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq
    # shellcheck disable=SC2086 # the words of the command
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install
fi

if ! has cargo; then
    echo "Rust is missing: install it as https://rustup.rs says, then try again." >&2
    exit 1
fi
if [ "$purpose" != serve ]; then
    if ! has node || ! has npm; then
        echo "Node.js 20.19 or later with npm is missing: see https://nodejs.org" >&2
        exit 1
    elif ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)'; then
        echo "Node.js $(node --version) is too old for the window's page; it takes 20.19 or later." >&2
        exit 1
    fi
fi
if [ "$purpose" = test ] && [ -x scripts/setup-sdk.sh ]; then
    scripts/setup-sdk.sh
fi
