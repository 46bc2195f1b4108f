#!/usr/bin/env bash
# A real cluster of two nodes with four H100 each, our chart, a dozen pods, and what becomes of them.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

say "demo: a first run builds Kubernetes, containerd and migpool itself, about 25 minutes on two cores; a second takes two"
hack/cluster.sh up --nodes 2 --gpus-per-node 4 --board H100-80GB
target=${CARGO_TARGET_DIR:-target}/debug
"$target/migpool-demo" --kubeconfig "$("$target/migpool-cluster" kubeconfig)"
