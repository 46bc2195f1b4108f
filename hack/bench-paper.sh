#!/usr/bin/env bash
# bench-paper.sh [STEP...]: makes the runs behind docs/benchmarks.md, then writes that page and its pictures anew.
# A step whose command and program are those of its last run is not run again, so a run that was broken off goes on
# where it was; `rm -r target/bench-paper` starts from nothing.
#
#   SEEDS=N        seeds of mig and pool; place takes at most the 10 of the paper (20)
#   THREADS=N      threads (all cores)
#   MIGPOOL_SIM=P  runs this program instead of building one
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

seeds="${SEEDS:-20}"
threads="${THREADS:-$(nproc)}"
filled=$((seeds < 10 ? seeds : 10))
readonly seeds threads filled
readonly results="${CARGO_TARGET_DIR:-target}/bench-paper"
# The LSTM trains in half the time so, and says the same.
export RAYON_NUM_THREADS=1

# What each step runs, in the order in which they are run: name, then the arguments of migpool-sim. `decision` is a
# bench of cargo's own.
readonly steps="
place      place --seeds $filled
ties       place --policy fgd,ours --ties both --list default,cpu250,gpuspec33,multigpu50 --seeds $filled
mig-0.7    mig --load 0.7 --seeds $seeds --against ef/m
mig-0.85   mig --load 0.85 --seeds $seeds --against ef/m
mig-1      mig --load 1 --seeds $seeds --against ef/m
mig-1.2    mig --load 1.2 --seeds $seeds --against ef/m
drift      mig --drift --seeds $seeds
c1         pool --only c1 --seeds $seeds
c2         pool --only c2 --seeds $seeds
recorded   pool --only c3,c4,c5,speed
curve      pool --only curve --seeds $seeds
forecast   forecast
decision   -
"

known() { awk -v name="$1" '$1 == name { $1 = ""; sub(/^ */, ""); print; found = 1 } END { exit !found }' <<<"$steps"; }

# One step: its table, CSV and pictures go to a folder of its own.
paper_step() {
    local name=$1 command shown began stamp folder="$results/$1"
    if [ "$name" = decision ]; then
        # it tells of this machine as it is now, and takes seconds
        command="cargo bench --package scheduler-plugin --bench decision"
        stamp="$command, $(date +%s)"
    else
        command="migpool-sim $(known "$name") --threads $threads"
        stamp="$(sha256sum <"$sim") $command"
    fi
    if [ "$name" = forecast ]; then
        shown="RAYON_NUM_THREADS=1 $command"
    else
        shown=$command
    fi
    if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ]; then
        say "  $name: already there"
        return
    fi
    say "  $name: $shown"
    rm -rf "$folder"
    mkdir -p "$folder"
    began=$SECONDS
    # shellcheck disable=SC2086 # a command is words
    if [ "$name" = decision ]; then
        $command >"$folder/table.txt"
    else
        "$sim" ${command#* } --csv "$folder/runs.csv" --html "$folder/page" >"$folder/table.txt"
    fi
    printf '%s\n' "$shown" >"$folder/command"
    date -u +%F >"$folder/date"
    printf '%s\n' $((SECONDS - began)) >"$folder/seconds"
    # last, so that a step that was broken off is run again
    printf '%s\n' "$stamp" >"$folder/stamp"
    say "  $name: $((SECONDS - began)) s"
}

sim="${MIGPOOL_SIM:-}"
if [ -z "$sim" ]; then
    say "bench-paper: building with --release"
    cargo build --release --package simulator --bin migpool-sim
    sim="${CARGO_TARGET_DIR:-target}/release/migpool-sim"
fi
names=${*:-$(awk '{ print $1 }' <<<"$steps")}
for name in $names; do
    known "$name" >/dev/null || die "there is no step $name; there are: $(awk '{ print $1 }' <<<"$steps" | xargs)"
done
count=$(wc -w <<<"$names")
say "bench-paper: $count steps, $seeds seeds, $threads threads; some 10 minutes in all with 20 seeds on two cores"
at=0
for name in $names; do
    at=$((at + 1))
    say "bench-paper: step $at of $count, $((SECONDS / 60)) min gone"
    paper_step "$name"
done
for name in $(awk '{ print $1 }' <<<"$steps"); do
    [ -e "$results/$name/stamp" ] || { say "bench-paper: the page is written when step $name was run too"; exit 0; }
done
python3 hack/bench_page.py "$results"
say "bench-paper: wrote docs/benchmarks.md after $SECONDS s"
