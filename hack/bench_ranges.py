"""Runs migpool-sim with few seeds and holds its figures against ranges: the full run's figure and how far a short run
may be from it. A seed names one result, so a figure that leaves its range is a change of behaviour, not chance.
"""

import csv
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

MIXES = ["uniform", "skew-small", "skew-big", "bimodal"]
PLACE = "place --list default,gpuspec33 --policy bestfit,fgd,ours --seeds 1"
MIG = "mig --load 1 --seeds 2 --arrivals 6000 --policy first-fit,ef,ef/m,ours,ours/m"
DRIFT = "mig --drift --mix skew-small --seeds 2 --arrivals 6000 --policy static:skew-big,static,ours,ours/m"
NEED = "pool --only c2,c5 --seeds 1 --arrivals 4000"
FORECAST = "forecast --set earth,philly --without-lstm"

# By run: figure, what the full run gives, how far below and above it this run may be.
RANGES = {
    PLACE: [
        # one seed: the standard deviation of a run is 0.1 to 0.3
        ("allocated %, default, bestfit", 92.86, 0.8, 0.8),
        ("allocated %, default, fgd", 95.23, 0.5, 0.5),
        # never below the best figure known before, 95.85 and 95.14
        ("allocated %, default, ours", 96.16, 0.31, 0.4),
        ("allocated %, gpuspec33, fgd", 87.84, 0.8, 0.8),
        ("allocated %, gpuspec33, ours", 95.50, 0.36, 0.6),
    ],
    MIG: [
        # two short runs are off by some points, all policies in the same direction: differences are steadier
        *((f"used, {mix}, ours/m", used, 0.025, 0.025) for mix, used in zip(MIXES, [0.926, 0.933, 0.919, 0.916])),
        *((f"used more than first-fit, {mix}, ours", gain, 0.012, 0.012) for mix, gain in zip(MIXES, [0.039, 0.014, 0.032, 0.021])),
        *((f"used more than ef, {mix}, ours", gain, 0.006, 0.010) for mix, gain in zip(MIXES, [0.000, 0.008, 0.000, 0.001])),
        *((f"used more than ef/m, {mix}, ours/m", gain, 0.006, 0.010) for mix, gain in zip(MIXES, [-0.001, 0.002, -0.001, 0.000])),
        *((f"moves per 100, {mix}, ours/m", moves, 1.0, 0.8) for mix, moves in zip(MIXES, [3.2, 2.0, 3.8, 2.5])),
    ],
    DRIFT: [
        ("used, skew-small, static:skew-big", 0.400, 0.02, 0.02),
        ("used, skew-small, ours", 0.844, 0.025, 0.025),
        ("used, switching, static", 0.712, 0.05, 0.05),
        ("used, switching, ours/m", 0.841, 0.03, 0.03),
    ],
    NEED: [
        # one short run needs some GPUs more or fewer, all arms in the same direction
        ("GPUs, C2, one whole GPU each", 311, 25, 25),
        ("GPUs, C2, best layout for the mean mix", 137, 15, 15),
        ("GPUs, C2, dynamic", 97, 7, 7),
        # counts of a trace, no chance in them
        ("held targets of C5", 3, 0, 0),
    ],
    FORECAST: [
        # the full run has the LSTM among the members
        ("MASE, earth, ensemble", 0.737, 0.02, 0.02),
        ("MASE, philly, ensemble", 0.932, 0.02, 0.02),
        ("MAE over the best member's, earth", 1.00, 0.10, 0.02),
        ("MAE over the best member's, philly", 1.00, 0.10, 0.02),
        ("at or below the 0.9 quantile %, philly", 89.9, 1.9, 2.1),
    ],
}


def place(rows, _text):
    """Allocation at 100 % asked for."""
    at_hundred = [row for row in rows if row["asked_percent"] == "100"]
    return {f"allocated %, {row['list']}, {row['policy']}": float(row["allocated_percent"]) for row in at_hundred}


def mig(rows, _text):
    """Utilisation and moves, and differences between policies that saw the same requests."""
    used, moves = defaultdict(list), defaultdict(list)
    for row in rows:
        used[row["mix"], row["policy"]].append(float(row["utilisation"]))
        moves[row["mix"], row["policy"]].append(float(row["moves_per_100"]))
    figures = {}
    for (mix, policy), values in used.items():
        figures[f"used, {mix}, {policy}"] = statistics.fmean(values)
        figures[f"moves per 100, {mix}, {policy}"] = statistics.fmean(moves[mix, policy])
        for other in {other for _, other in used}:
            gain = statistics.fmean(values) - statistics.fmean(used[mix, other])
            figures[f"used more than {other}, {mix}, {policy}"] = gain
    return figures


def pool(rows, text):
    """GPUs needed, and how many targets of C5 are held."""
    figures = {"held targets of C5": len(re.findall(r"^C5: .*: held$", text, re.M))}
    for row in rows:
        if row["column"] == "GPUs" and (number := re.match(r"\d+", row["value"])):
            figures[f"GPUs, {row['section']}, {row['row']}"] = int(number[0])
    return figures


def forecast(rows, text):
    """Of the ensemble: error against persistence and against the best member, and coverage."""
    figures = {}
    for row in rows:
        if row["series"] == "all" and row["method"] == "ensemble":
            figures[f"MASE, {row['set']}, ensemble"] = float(row["mase"])
            figures[f"at or below the 0.9 quantile %, {row['set']}"] = float(row["at_or_below_upper_percent"])
    for name, ratio in re.findall(r"(\w+): MAE ([\d.]+) times that of the best single member", text):
        figures[f"MAE over the best member's, {name}"] = float(ratio)
    return figures


READERS = {"place": place, "mig": mig, "pool": pool, "forecast": forecast}


def measure(sim, command):
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        run = [sim, *command.split(), "--threads", "2", "--csv", str(path)]
        done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"bench-check: `migpool-sim {command}` ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        with open(path) as file:
            rows = list(csv.DictReader(file))
    return READERS[command.split()[0]](rows, done.stdout)


def shown(value):
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.3f}"


def main():
    began, missed, count = time.monotonic(), 0, 0
    for command, ranges in RANGES.items():
        start = time.monotonic()
        print(f"migpool-sim {command}", flush=True)
        figures = measure(sys.argv[1], command)
        for what, full, below, above in ranges:
            # a figure that is not there is missed too
            found = figures.get(what, float("nan"))
            held = full - below - 1e-9 <= found <= full + above + 1e-9
            missed, count = missed + (not held), count + 1
            print(f"  {'ok' if held else 'MISS':4}  {what:44} {shown(found):>7}  full run {shown(full)}, -{shown(below)} to +{shown(above)}")
        print(f"        {time.monotonic() - start:.0f} s", flush=True)
    print(f"bench-check: {count - missed} of {count} in range, {time.monotonic() - began:.0f} s")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
