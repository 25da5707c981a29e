#!/usr/bin/env bash
# Builds Traygate, starts it, and says what to do next. Ctrl-C ends it.
# Without a display (or with HEADLESS=1) only the gateway is built and served.
set -euo pipefail
cd "$(dirname "$0")/.."

has_display() {
    [ -z "${HEADLESS:-}" ] || return 1
    [ "$(uname -s)" = Darwin ] || [ -n "${WAYLAND_DISPLAY:-}" ] || [ -n "${DISPLAY:-}" ]
}

bin=${CARGO_TARGET_DIR:-$PWD/target}/debug
traygate=$bin/traygate

say_path() {
    printf '\nFor the commands below, in another terminal:\n  export PATH="%s:$PATH"\n' "$bin"
}

if ! has_display; then
    scripts/setup.sh serve
    cargo build --locked -p traygate
    if [ -n "${HEADLESS:-}" ]; then
        echo "Serving headless, as HEADLESS=$HEADLESS asks"
    else
        echo "No display here: serving headless, without a tray and a window"
    fi
    say_path
    exec "$traygate" serve
fi

scripts/setup.sh desktop
make --no-print-directory ui
cargo build --locked -p traygate -p traygate-desktop

"$bin/traygate-desktop" &
desktop=$!
# Ctrl-C reaches the desktop by itself; a signal to this script is passed on.
trap 'kill -TERM "$desktop" 2>/dev/null || true' TERM INT

for _ in $(seq 150); do
    "$traygate" status >/dev/null 2>&1 && break
    # It has ended: it said why, or who runs already.
    kill -0 "$desktop" 2>/dev/null || break
    sleep 0.2
done

if "$traygate" status >/dev/null 2>&1; then
    say_path
    echo
    if [ "$("$traygate" --json token list | tr -d '[:space:]')" = "[]" ]; then
        "$traygate" token new "first app"
        printf '\nNext, in another terminal:\n  traygate add everything -- npx -y @modelcontextprotocol/server-everything\n'
    else
        "$traygate" status
    fi
fi

code=0
wait "$desktop" || code=$?
# A trapped signal ends the first wait early: the desktop still has its own end to make.
if kill -0 "$desktop" 2>/dev/null; then
    code=0
    wait "$desktop" || code=$?
fi
exit "$code"
