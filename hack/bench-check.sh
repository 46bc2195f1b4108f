#!/usr/bin/env bash
# bench-check.sh: short runs of migpool-sim against the ranges in hack/bench_ranges.py, a line for each figure; exit
# code 1 where one is missed. `make test` runs it in tier 1. MIGPOOL_SIM=PROGRAM checks that one and builds none.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

sim="${MIGPOOL_SIM:-}"
if [ -z "$sim" ]; then
    say "bench-check: building"
    cargo build --package simulator --bin migpool-sim
    sim="${CARGO_TARGET_DIR:-target}/debug/migpool-sim"
fi
exec python3 hack/bench_ranges.py "$sim"
