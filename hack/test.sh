#!/usr/bin/env bash
# test.sh [TIER...]: builds once, then runs the tiers (1 pure, 2 components, 3 real cluster; all without arguments).
# Logs of every test program are in target/test-logs. With CI=true a skipped tier 3 is a failure.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

hack/setup.sh
say "test: building"
# With the tests, so that the programs and libnvidia_ml.so which they start are built with the same features.
cargo build --workspace --all-targets
exec python3 hack/tiers.py "$@"
