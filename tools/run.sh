#!/bin/sh
# run.sh: what `make run` does: packages, build, model, then everything under DIR until Ctrl-C.
# Variables: DIR, MODEL, PORT, TLS_PORT, ADMIN_PORT, DEPS=skip.
set -eu
cd "$(dirname "$0")/.."

sh tools/deps.sh run
# Not the flags of the make that called us: its job server does not reach here.
unset MAKEFLAGS MFLAGS MAKELEVEL
make -s all
model=${MODEL:-}
if [ -z "$model" ]; then model=$(sh tools/fetch_model.sh); fi
exec build/release/sluice up --dir "${DIR:-var}" --model "$model" --port "${PORT:-8080}" \
    --tls-port "${TLS_PORT:-8443}" --admin-port "${ADMIN_PORT:-9090}"
