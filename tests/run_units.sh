#!/bin/sh
# Runs each test program; cmocka prints its own closing lines. Exit 1 if any failed.
set -u
failed=0
for t in "$@"; do
    "$t" || { echo "FAILED: $t" >&2; failed=1; }
done
exit $failed
