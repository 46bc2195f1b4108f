#!/usr/bin/env bash
# verify.sh [STEP...]: everything that can be checked without running the product. Leaves the tree as it was, or
# says what it changed. Without arguments all steps run, in the order below.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

readonly steps="generated format scripts sizes dependencies purity chart clippy docs alone unchanged"
readonly longest_file=400

# Every file that git knows or would add, with a checksum.
tree() {
    git ls-files --cached --others --exclude-standard -z | sort -z |
        while IFS= read -r -d '' file; do [ ! -f "$file" ] || sha256sum "$file"; done
}

generated() {
    tree >"$work/generated-before"
    hack/generate.sh
    tree >"$work/generated-after"
    diff "$work/generated-before" "$work/generated-after" | sed -n 's/^[<>] [0-9a-f]*  /out of date: /p' | sort -u |
        { ! grep . || { echo "run hack/generate.sh and commit what it writes"; false; }; }
}

format() { cargo fmt --all --check; }

scripts() {
    local script
    for script in hack/*.sh .ci/run; do
        bash -n "$script"
    done
    python3 -m py_compile hack/*.py
    rm -rf hack/__pycache__
    make --no-print-directory help
}

sizes() {
    git ls-files --cached --others --exclude-standard '*.rs' | xargs wc -l |
        awk -v most=$longest_file '$2 != "total" && $1 > most { print $2 " has " $1 " lines, allowed are " most; bad = 1 } END { exit bad }'
}

dependencies() { python3 hack/dependencies.py; }

# The part that thinks can reach neither the network nor a runtime.
purity() {
    local found
    found=$(cargo tree --locked --package shared --edges normal --prefix none --format '{p}' |
        grep -E '^(tokio|hyper|tonic|tower|rustls|kube-client|kube-runtime|reqwest) ' || true)
    [ -z "$found" ] || { echo "shared depends on: $found"; return 1; }
}

chart() {
    local helm
    helm=$(helm_program)
    "$helm" lint --strict manifests/chart
    # the settings of the local cluster, and everything that is off by default
    "$helm" template migpool manifests/chart --namespace migpool-system --values e2e/cluster/values.yaml >/dev/null
    "$helm" template migpool manifests/chart --namespace elsewhere \
        --set podMonitor.create=true,scheduler.replicas=2,scheduler.config.bodyLimit=100000 \
        --set devicePlugin.config.idleSliceSeconds=5,devicePlugin.driverRoot=/run/nvidia/driver >/dev/null
    # a typing error is refused by name
    local refusal
    refusal=$("$helm" template migpool manifests/chart --set devicePlugin.migStrategi=single 2>&1 >/dev/null || true)
    grep -q migStrategi <<<"$refusal" || { echo "the schema lets an unknown value pass: $refusal"; return 1; }
}

clippy() { cargo clippy --workspace --all-targets --locked -- -D warnings; }

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }

# A package that only compiles because another one switched a feature on fails here.
alone() {
    local package
    for package in $(cargo metadata --no-deps --format-version=1 --locked |
        python3 -c 'import json, sys; print(*sorted(p["name"] for p in json.load(sys.stdin)["packages"]))'); do
        echo "alone: $package"
        cargo check --locked --package "$package"
    done
}

unchanged() {
    tree >"$work/after"
    diff "$work/before" "$work/after" | sed -n 's/^[<>] [0-9a-f]*  /changed while verifying: /p' | sort -u |
        { ! grep .; }
    if [ -z "$status_before" ]; then
        [ -z "$(git status --porcelain)" ] || { git status --short; return 1; }
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || hack/setup.sh
tree >"$work/before"
status_before=$(git status --porcelain)
began=$SECONDS
failed=()
for name in ${*:-$steps}; do
    case " $steps " in
    *" $name "*) ;;
    *) die "there is no step $name; there are: $steps" ;;
    esac
    # In a subshell of its own, for `set -e` does not reach into a function that is called under a condition.
    step "$name" bash -c "set -euo pipefail; $(declare -f "$name" tree helm_program die say); $(declare -p work cache longest_file status_before); $name" ||
        failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] || die "failed after $((SECONDS - began)) s: ${failed[*]}"
say "verify: ok after $((SECONDS - began)) s"
