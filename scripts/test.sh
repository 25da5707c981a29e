#!/usr/bin/env bash
# All tests. The whole workspace is built at once, so that the crates they share are built once.
set -euo pipefail
cd "$(dirname "$0")/.."

make --no-print-directory ui
(cd ui && npm run check)
# The tests drive the real programs.
cargo build --locked --workspace
if cargo nextest --version >/dev/null 2>&1; then
    # The one kind of test that nextest leaves out.
    cargo test --locked --workspace --doc --quiet
    cargo nextest run --locked --workspace
else
    cargo test --locked --workspace --no-fail-fast
fi
