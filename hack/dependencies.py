"""Checks what we depend on, by cargo's own account: licences, sources, banned crates, duplicate versions."""

import json
import re
import subprocess
import sys

TARGET = "x86_64-unknown-linux-gnu"
# None of these asks anything of our users' code.
LICENCES = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
}
# One TLS: rustls with ring. The others need a C tool chain or the machine's own library.
BANNED = {"openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys", "boring", "serde_yaml"}
# Two incompatible versions of one of these cannot talk to each other.
SINGLE = {
    "axum", "h2", "http", "hyper", "k8s-openapi", "kube", "prost", "rustls", "schemars", "serde", "tokio",
    "tonic", "tower", "tracing",
}


def accepted(expression):
    """Whether an SPDX expression leaves us a choice that is allowed."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def any_of():
        value = all_of()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value = all_of() or value
        return value

    def all_of():
        value = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value = one() and value
        return value

    def one():
        token = tokens.pop(0)
        if token == "(":
            value = any_of()
            tokens.pop(0)
            return value
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in LICENCES

    return any_of()


def compatible(version):
    """The part of a version within which Cargo takes one for another."""
    parts = version.split("+")[0].split("-")[0].split(".")
    if parts[0] != "0":
        return parts[0]
    return ".".join(parts[:2]) if parts[1] != "0" else ".".join(parts)


def main():
    metadata = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={TARGET}"]
    answer = subprocess.run(metadata, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if answer.returncode != 0:
        sys.exit(answer.stderr)
    found = json.loads(answer.stdout)
    used = {node["id"] for node in found["resolve"]["nodes"]}
    ours = set(found["workspace_members"])
    packages = [package for package in found["packages"] if package["id"] in used]
    faults, versions = [], {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        licence = package["license"]
        versions.setdefault(package["name"], set()).add(compatible(package["version"]))
        if package["name"] in BANNED:
            faults.append(f"{name} is banned; see `cargo tree -i {package['name']}`")
        if not licence:
            faults.append(f"{name} names no licence")
        elif not accepted(licence):
            faults.append(f"{name} has licence {licence}, which is not on the list in hack/dependencies.py")
        if package["id"] in ours:
            continue
        if not (package["source"] or "").startswith("registry+"):
            faults.append(f"{name} comes from {package['source'] or package['manifest_path']}, not from the registry")
    twice = {name: sorted(seen) for name, seen in versions.items() if len(seen) > 1}
    for name in sorted(SINGLE & twice.keys()):
        faults.append(f"{name} is there in versions {', '.join(twice[name])}; see `cargo tree -d`")
    print(f"{len(packages)} packages; in several versions: {', '.join(sorted(twice)) or 'none'}")
    for fault in faults:
        print(f"FAULT: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
