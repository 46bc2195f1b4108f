#!/usr/bin/env bash
# Makes this machine ready for tests, the local cluster and the demo: Debian packages (as root only, and only those
# that are missing) and the Kubernetes, containerd and helm programs, built once from Go modules into
# ~/.cache/migpool. Does nothing the second time.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
export PATH="$PATH:/usr/local/go/bin:/usr/sbin:/sbin"

command -v cargo >/dev/null || die "no cargo: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer"

# program:package
readonly needed="
    etcd:etcd-server etcdctl:etcd-client runc:runc iptables:iptables conntrack:conntrack socat:socat
    busybox:busybox-static ip:iproute2 unshare:util-linux mount:mount kubectl:kubernetes-client python3:python3
"
missing=()
for pair in $needed; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
[ -e /usr/lib/cni/bridge ] || [ -e /opt/cni/bin/bridge ] || [ -e /usr/libexec/cni/bridge ] ||
    missing+=(containernetworking-plugins)
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

packages() {
    export DEBIAN_FRONTEND=noninteractive
    # Their services must not start: the local cluster runs its own copies in namespaces of its own.
    local policy=/usr/sbin/policy-rc.d made=false
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        made=true
    fi
    local result=0
    apt-get update -qq && apt-get install --yes --quiet --no-install-recommends "${missing[@]}" || result=$?
    if $made; then rm -f $policy; fi
    return $result
}

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        step "packages: ${missing[*]}" packages
    else
        say "setup: missing here: ${missing[*]}; as root on Debian this script installs them"
    fi
fi

# Shows its own progress: the first build takes about 15 minutes on two cores.
if ! cargo run --quiet --package cluster -- binaries >/dev/null; then
    say "setup: without those programs the tests against a real cluster are skipped"
fi
