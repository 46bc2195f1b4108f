#!/usr/bin/env bash
# Writes everything that is generated: the custom resource definitions from shared/src/api, and
# manifests/install.yaml from the chart. `hack/verify.sh` fails when that changes anything.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

readonly mark="# Written by hack/generate.sh from shared/src/api. Do not edit."
helm=$(helm_program)

cargo build --quiet --package shared --example crds
crds=${CARGO_TARGET_DIR:-target}/debug/examples/crds
rm -f manifests/crds/*.yaml manifests/chart/crds/*.yaml
mkdir -p manifests/crds manifests/chart/crds
for name in $("$crds" --names); do
    { echo "$mark"; "$crds" "$name"; } >"manifests/crds/$name.yaml"
    # helm follows no links, so the chart has copies
    cp "manifests/crds/$name.yaml" manifests/chart/crds/
done

{
    cat <<'HEAD'
# Everything migpool needs, for clusters without Helm:
#
#   kubectl apply --server-side -f manifests/install.yaml
#
# Written by hack/generate.sh from manifests/chart with its default values. Do not edit: change the chart, or render
# it with values of your own. It has no GpuPool, because its definition must be known first; without one the
# defaults hold. manifests/samples/gpupool.yaml is one to start from.
---
apiVersion: v1
kind: Namespace
metadata:
  name: migpool-system
  labels:
    # The agent makes device nodes and talks to the driver: it runs privileged.
    pod-security.kubernetes.io/enforce: privileged
HEAD
    # Nothing here is Helm's to manage.
    "$helm" template migpool manifests/chart --namespace migpool-system --include-crds --set pool.create=false |
        grep -v 'app.kubernetes.io/managed-by: Helm'
} >manifests/install.yaml
