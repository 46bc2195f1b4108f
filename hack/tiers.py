"""Runs the test programs that cargo built, tier by tier, and counts: passed, failed, skipped and why.

A test that cannot run here prints a line `skipped: why` and returns; libtest calls that passed, this does not.
"""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LOGS = TARGET / "test-logs"
TIERS = {1: "pure", 2: "components", 3: "real cluster"}
LIMIT_S = {1: 900, 2: 1200, 3: 3000}
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
RANGES = re.compile(r"^bench-check: (\d+) of (\d+) in range")


@dataclass
class Count:
    programs: int = 0
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    skipped: list = field(default_factory=list)
    faults: list = field(default_factory=list)


@dataclass
class Program:
    name: str
    tier: int
    command: list
    folder: Path


def test_programs():
    """What `cargo test` would run, from its own account."""
    build = ["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit("test: the tests do not compile")
    programs = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message.get("executable"):
            continue
        target, kind = message["target"], message["target"]["kind"]
        if not message["profile"]["test"] or "bench" in kind:
            continue
        folder = Path(message["manifest_path"]).parent
        package = message["package_id"].rsplit("#", 1)[-1].split("@")[0]
        package = folder.name if package[0].isdigit() else package
        tier = 1 if "test" not in kind else 3 if package == "e2e" else 2
        inner = "" if "test" not in kind and target["name"].replace("_", "-") == package else f" {target['name']}"
        programs.append(Program(f"{package}{inner}", tier, [message["executable"], "--show-output"], folder))
    documentation = ["cargo", "test", "--workspace", "--doc", "--quiet", "--", "--show-output"]
    programs.append(Program("documentation", 1, documentation, ROOT))
    ranges = [sys.executable, "hack/bench_ranges.py", str(TARGET / "debug" / "migpool-sim")]
    programs.append(Program("benchmark ranges", 1, ranges, ROOT))
    return sorted(programs, key=lambda program: (program.tier, program.name))


def run(program, count):
    """One test program: its output goes to a log, its verdicts to the screen."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{program.tier}-{program.name.replace(' ', '-')}.log"
    environment = os.environ | {
        "CARGO_MANIFEST_DIR": str(program.folder), "RUST_BACKTRACE": "1", "MIGPOOL_EVIDENCE": str(LOGS / "cluster"),
    }
    began, results, skipped = time.monotonic(), [], []
    with open(log, "w") as out:
        process = subprocess.Popen(
            ["timeout", "--kill-after=20", str(LIMIT_S[program.tier]), *program.command],
            cwd=program.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )
        for line in process.stdout:
            out.write(line)
            out.flush()
            if found := RESULT.match(line):
                results.append([int(number) for number in found.groups()])
            elif found := RANGES.match(line):
                # all figures together are one test
                results.append([int(found[1] == found[2]), int(found[1] != found[2]), 0])
            elif line.startswith("skipped:"):
                skipped.append(line.removeprefix("skipped:").strip())
            elif program.tier == 3 and line.startswith("test ") and " ... " in line:
                print(f"      {time.monotonic() - began:5.0f} s  {line.strip()}", flush=True)
        code = process.wait()
    passed, failed, ignored = (sum(row[at] for row in results) for at in range(3))
    # Ignored tests are not among the passed, those that only said `skipped:` are.
    passed -= max(0, len(skipped) - ignored)
    skipped += [skipped[-1] if skipped else "marked ignored"] * (ignored - len(skipped))
    seconds = time.monotonic() - began
    count.programs += 1
    count.passed += passed
    count.failed += failed
    count.seconds += seconds
    count.skipped += skipped
    verdict = "ok"
    if code == 124 or code == 137:
        count.faults.append(f"{program.name}: ended after {LIMIT_S[program.tier]} s")
        verdict = "TIME"
    elif code != 0 and failed == 0:
        count.faults.append(f"{program.name}: ended with status {code} and no verdict")
        verdict = "CRASH"
    elif code != 0:
        verdict = "FAIL"
    if passed or failed or skipped or verdict != "ok":
        print(f"  {verdict:5} {program.name:34} {passed:4} passed {failed:3} failed {len(skipped):3} skipped {seconds:6.1f} s", flush=True)
    if verdict != "ok":
        print(f"\n--- end of {log}")
        print("\n".join(log.read_text(errors="replace").splitlines()[-80:]))
        print("---\n", flush=True)


def main():
    wanted = [int(argument) for argument in sys.argv[1:]] or list(TIERS)
    if unknown := [tier for tier in wanted if tier not in TIERS]:
        sys.exit(f"test: there is no tier {unknown[0]}; say 1, 2 or 3")
    programs = test_programs()
    counts = {tier: Count() for tier in wanted}
    for tier in wanted:
        print(f"\ntier {tier}, {TIERS[tier]}", flush=True)
        for program in programs:
            if program.tier == tier:
                run(program, counts[tier])
    ci = os.environ.get("CI") == "true"
    faults = [fault for count in counts.values() for fault in count.faults]
    for tier, count in counts.items():
        if tier == 3 and count.skipped and ci:
            faults.append(f"tier 3 was skipped where it must run (CI=true): {count.skipped[0]}")
        elif count.passed == 0 and not (tier == 3 and count.skipped):
            faults.append(f"tier {tier} has no test that passed")
    print(f"\n{'tier':22} {'programs':>8} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for tier, count in counts.items():
        row = f"{count.programs:8} {count.passed:7} {count.failed:7} {len(count.skipped):8} {count.seconds:8.0f}"
        print(f"{tier} {TIERS[tier]:20} {row}")
    for why in sorted({why for count in counts.values() for why in count.skipped}):
        print(f"skipped: {why}")
    for fault in faults:
        print(f"FAULT: {fault}")
    total = [sum(getattr(count, what) for count in counts.values()) for what in ("passed", "failed")]
    skipped = sum(len(count.skipped) for count in counts.values())
    print(f"{total[0]} passed, {total[1]} failed, {skipped} skipped")
    sys.exit(1 if total[1] or faults else 0)


if __name__ == "__main__":
    main()
