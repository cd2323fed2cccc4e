#!/bin/sh
# run_units.sh PROGRAM...: runs each test program, as many at a time as there are cores. What one said comes in one piece
# when it ends; those that failed come last. Exit 1 if any failed.
set -u
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export logs

printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 sh -c '
    said=$(mktemp "$logs/passed.XXXXXX")
    begin=$(date +%s)
    "$0" > "$said" 2>&1
    code=$?
    echo "$0: $(($(date +%s) - begin)) s" >> "$said"
    [ $code != 0 ] || exec flock "$logs" cat "$said"
    echo "FAILED: $0 (exit $code)" >> "$said"
    mv "$said" "$logs/failed.${said##*.}"'
for said in "$logs"/failed.*; do
    [ ! -e "$said" ] || { cat "$said" >&2; bad=1; }
done
exit ${bad:-0}
