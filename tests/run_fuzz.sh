#!/bin/sh
# run_fuzz.sh SECONDS BIN...: replays each target's corpus, then fuzzes it for SECONDS. New inputs stay
# under build/fuzz/corpus; what crashes is printed by libFuzzer with its path.
set -eu
seconds=$1
shift
for bin in "$@"; do
    name=$(basename "$bin" | sed 's/^fuzz_//')
    mkdir -p "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
    echo "fuzz $name: ${seconds} s"
    "$bin" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
done
echo "$# fuzz targets passed"
