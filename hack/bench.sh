#!/usr/bin/env bash
# Prints the tables of performance. Ratios within one run are what carries over to other machines.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

hack/setup.sh
say "bench: building with --release"
cargo build --release --workspace --exclude simulator --bins
for file in */benches/*.rs; do
    [ -e "$file" ] || continue
    cargo bench --package "${file%%/*}" --bench "$(basename "$file" .rs)"
done
"${CARGO_TARGET_DIR:-target}/release/migpool-bench"
