#!/bin/sh
# Runs the whole fault suite of the log and prints its summary as a Markdown table.
#
#   fault-suite.sh [FILE]     the long run; the table goes to FILE as well
#   FETCHWISE_FAULTS=quick fault-suite.sh     the counts that `cargo test` has
#
# Rows 7 and 8 need root and loop devices; without them they are reported as skipped.
set -eu
cd "$(dirname "$0")"
out=${1:-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
: "${FETCHWISE_FAULTS:=full}"
export FETCHWISE_FAULTS
start=$(date +%s)

status=0
cargo test -p fetchwise-log --tests --no-fail-fast -- --nocapture >"$log" 2>&1 || status=$?
# Row 11: every interleaving of the acknowledgement protocol. A directory of its own, because of the flag.
RUSTFLAGS="--cfg loom" cargo test -p fetchwise-log --lib --release \
    --target-dir "${CARGO_TARGET_DIR:-../target}/loom" -- loom >"$log.loom" 2>&1 || status=$?
loom=$(grep -c '^test .*loom_.* ok$' "$log.loom" || true)
grep -E 'panicked|FAILED|^error' "$log" "$log.loom" >&2 || true

table() {
    echo "| row | what | tried | acknowledged records lost | silently wrong |"
    echo "|---|---|---:|---:|---:|"
    {
        sed -n 's/^FAULTS \(|.*|\)$/\1/p' "$log"
        echo "| 11 | protocol models checked by loom, every interleaving | $loom | 0 | 0 |"
    } | sort -t'|' -k2,2V
    sed -n 's/^SKIPPED /Skipped: /p' "$log"
    echo
    echo "Each sync call switched off in turn, and what noticed it:"
    echo
    echo "| sync call | what went wrong without it |"
    echo "|---|---|"
    sed -n 's/^MUTATION \(|.*|\)$/\1/p' "$log"
    echo
    echo "Took $(($(date +%s) - start)) s with FETCHWISE_FAULTS=$FETCHWISE_FAULTS."
}
if [ -n "$out" ]; then table | tee "$out"; else table; fi
rm -f "$log.loom"
if [ "$status" -ne 0 ]; then
    echo "the fault suite FAILED" >&2
fi
exit "$status"
