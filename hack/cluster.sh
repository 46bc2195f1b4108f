#!/usr/bin/env bash
# cluster.sh up|down [OPTION...]: the local cluster, with what it needs built first. Options are those of
# `migpool-cluster up --help`.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

program=${CARGO_TARGET_DIR:-target}/debug/migpool-cluster
case "${1:-}" in
up)
    shift
    hack/setup.sh
    cargo build --workspace
    "$program" up "$@"
    say ""
    say "export KUBECONFIG=$("$program" kubeconfig)"
    ;;
down)
    shift
    [ -x "$program" ] || cargo build --package cluster
    "$program" down "$@"
    ;;
*) die "say up or down" ;;
esac
