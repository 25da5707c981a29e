#!/usr/bin/env bash
# Builds target/release/bundle/deb/*.deb: the desktop, the command line, its manual pages and completions.
set -euo pipefail
cd "$(dirname "$0")/.."
# The package's files are named by paths below target/.
unset CARGO_TARGET_DIR

if ! cmp -s packaging/package-lock.json packaging/node_modules/.stamp; then
    (cd packaging && npm ci --silent --no-audit --no-fund)
    cp packaging/package-lock.json packaging/node_modules/.stamp
fi
make --no-print-directory ui
cargo build --locked --release -p traygate

files=target/package
rm -rf "$files"
mkdir -p "$files"
target/release/traygate man "$files/man1"
gzip --best --no-name "$files"/man1/*.1
target/release/traygate completions bash >"$files/traygate.bash"
target/release/traygate completions zsh >"$files/_traygate"
target/release/traygate completions fish >"$files/traygate.fish"

rm -rf target/release/bundle/deb
packaging/node_modules/.bin/tauri build --bundles deb -- --locked
ls -l target/release/bundle/deb/*.deb
