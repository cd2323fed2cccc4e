#!/bin/sh
# run.sh: what `make run` does: packages, build, model, then everything under DIR until Ctrl-C.
# Variables: DIR, MODEL, PORT, TLS_PORT, ADMIN_PORT, DEPS=skip.
set -eu
cd "$(dirname "$0")/.."

sh tools/deps.sh run
# Not the flags of the make that called us: its job server does not reach here.
unset MAKEFLAGS MFLAGS MAKELEVEL
make -s all
dir=${DIR:-var}
model=${MODEL:-}
# What is not given is as the last start's configuration says.
if [ -z "$model" ] && [ ! -e "$dir/sluice.yaml" ]; then model=$(sh tools/fetch_model.sh); fi
exec build/release/sluice up --dir "$dir" ${model:+--model "$model"} ${PORT:+--port "$PORT"} \
    ${TLS_PORT:+--tls-port "$TLS_PORT"} ${ADMIN_PORT:+--admin-port "$ADMIN_PORT"}
