#!/usr/bin/env bash
# Takes the pictures of docs/screenshots, on a display of its own: the tray's menu as a real panel shows it, and a
# notification as a real service does. Needs xfce4-panel, openbox, dunst, xdotool and imagemagick besides what the tests need.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
for program in Xvfb dbus-daemon xfce4-panel openbox dunst xdotool import node; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -gt 0 ]; then
    echo "Missing: ${missing[*]}. On Debian: apt-get install xvfb dbus xfce4-panel openbox dunst xdotool imagemagick fonts-dejavu-core adwaita-icon-theme" >&2
    exit 1
fi

bin=${CARGO_TARGET_DIR:-$PWD/target}/debug
servers=$PWD/tests/sdk/ts/node_modules/@modelcontextprotocol
out=$PWD/docs/screenshots
home=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$home"
}
trap finish EXIT
mkdir -p "$out" "$home/files"

until_so() { # until_so <what> <command…>
    local what=$1
    shift
    for _ in $(seq 100); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    echo "$what: not in time" >&2
    exit 1
}

export HOME=$home XDG_RUNTIME_DIR=$home TRAYGATE_HOME=$home/traygate NO_AT_BRIDGE=1 SHELL=/bin/sh
unset WAYLAND_DISPLAY XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME
chmod 700 "$home"

Xvfb -displayfd 3 -screen 0 900x640x24 -nolisten tcp 3>"$home/display" 2>/dev/null &
pids+=($!)
until_so "a display" test -s "$home/display"
DISPLAY=:$(cat "$home/display")
export DISPLAY
dbus-daemon --session --nofork --nopidfile --print-address=3 3>"$home/bus" 2>/dev/null &
pids+=($!)
until_so "a session bus" test -s "$home/bus"
DBUS_SESSION_BUS_ADDRESS=$(cat "$home/bus")
export DBUS_SESSION_BUS_ADDRESS

openbox >/dev/null 2>&1 &
pids+=($!)
XFCE_PANEL_MIGRATE_DEFAULT=1 xfce4-panel --disable-wm-check >/dev/null 2>&1 &
pids+=($!)
"$bin/traygate-desktop" --hidden --port 0 >"$home/log" 2>&1 &
pids+=($!)
until_so "Traygate" grep -q "on the desktop" "$home/log"

traygate=$bin/traygate
"$traygate" add files -- node "$servers/server-filesystem/dist/index.js" "$home/files" >/dev/null
"$traygate" add everything -- node "$servers/server-everything/dist/index.js" >/dev/null
"$traygate" add memory -- node "$servers/server-memory/dist/index.js" >/dev/null
for name in files everything memory; do "$traygate" refresh "$name" >/dev/null; done
"$traygate" disable files/tool/write_file >/dev/null
"$traygate" pin files/tool/write_file >/dev/null
"$traygate" pin everything/tool/echo >/dev/null

# Nothing says when a panel has drawn: wait until the picture stays the same.
picture() { import -window root "$home/now.png" && cksum <"$home/now.png"; }
settled() {
    local before now
    sleep 1
    before=$(picture)
    for _ in $(seq 50); do
        sleep 0.5
        now=$(picture)
        [ "$now" = "$before" ] && return
        before=$now
    done
}
panel_is_up() {
    dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.NameHasOwner \
        string:org.kde.StatusNotifierWatcher | grep -q "boolean true"
}
until_so "a panel" panel_is_up
settled
# Where this panel has its tray.
xdotool mousemove 775 13 click 3
settled
for key in Down Right Right; do
    xdotool key "$key"
    settled
done
import -window root -crop 820x600+80+0 +repage "$out/tray.png"
xdotool key Escape Escape Escape Escape mousemove 300 300
settled

dunst -conf <(printf '[global]\nfont = DejaVu Sans 10\nwidth = (360, 420)\norigin = top-right\noffset = 20x40\nicon_position = off\nframe_width = 1\nframe_color = "#555555"\nactions = true\n') >/dev/null 2>&1 &
pids+=($!)
PORT=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')
PORT=$PORT node "$servers/server-everything/dist/index.js" streamableHttp >/dev/null 2>&1 &
web=$!
until_so "a server behind a URL" "$traygate" add --no-test web "http://127.0.0.1:$PORT/mcp"
until_so "its first connection" "$traygate" refresh web
kill "$web"
"$traygate" refresh web >/dev/null 2>&1 || true
told() { [ "$(dunstctl count displayed)" -gt 0 ]; }
until_so "a notification" told
settled
import -window root -crop 400x80+485+36 +repage "$out/notification.png"
