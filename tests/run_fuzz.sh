#!/bin/sh
# run_fuzz.sh SECONDS BIN...: replays each target's corpus, then fuzzes it for SECONDS; as many targets at a time as there
# are cores. New inputs stay under build/fuzz/corpus. Of a target that failed comes what it said, and the input as text,
# so that a log is enough to have it again. Exit 1 if any failed.
set -u
export seconds="$1" inputs=build/fuzz/inputs failed=build/fuzz/failed
shift
rm -rf "$inputs"
mkdir -p "$inputs"
: > "$failed"

printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh -c '
    name=${0##*/fuzz_}
    mkdir -p "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
    if "$0" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="$inputs/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" \
        > "build/fuzz/$name.log" 2>&1
    then
        echo "fuzz $name: $seconds s"
    else
        echo "fuzz $name: FAILED"
        echo "$name" >> "$failed"
    fi'

while read -r name; do
    echo "---- fuzz $name: FAILED ----"
    cat "build/fuzz/$name.log"
    for input in "$inputs/$name"-*; do
        [ -e "$input" ] || continue
        echo "its input $input; elsewhere: echo TEXT | base64 -d | gunzip > FILE, with this TEXT:"
        gzip -9nc "$input" | base64 -w 0
        echo
    done
done < "$failed"
[ ! -s "$failed" ] || exit 1
echo "$# fuzz targets passed"
