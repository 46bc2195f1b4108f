# Sourced by the other scripts: where the repository is, and steps that say what they do and how long it took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache="${MIGPOOL_CACHE:-$HOME/.cache/migpool}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$(basename "$0"): $*"
    exit 1
}

# step NAME COMMAND...: runs it, quietly unless it fails.
step() {
    local name=$1 began=$SECONDS log
    shift
    log=$(mktemp)
    printf '  %-44s' "$name" >&2
    if "$@" >"$log" 2>&1; then
        printf 'ok   %4d s\n' $((SECONDS - began)) >&2
        rm -f "$log"
    else
        printf 'FAIL %4d s\n\n' $((SECONDS - began)) >&2
        tail -n "${STEP_LINES:-60}" "$log" >&2
        rm -f "$log"
        return 1
    fi
}

# The helm that the local cluster uses, else the machine's own: `helm template` writes the same with both.
helm_program() {
    local found
    found=$(ls -d "$cache"/bin/helm-*/helm 2>/dev/null | tail -n 1)
    found=${HELM:-${found:-$(command -v helm || true)}}
    [ -n "$found" ] || die "no helm: run hack/setup.sh once, or set HELM to the program"
    printf '%s' "$found"
}
