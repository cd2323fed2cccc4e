#!/bin/sh
# run.sh BINARY: the engine alone (sluice bench), then the whole service under bench/load.py, on a stack of its
# own in a temporary folder. With the PyPI package llama-cpp-python in BENCH_PEERS (a venv), llama.cpp runs the same
# file beside it in the same run. Prints what bench/results/ holds.
set -eu
binary=$1
model=${MODEL:-${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/SmolLM2-135M-Instruct.Q4_1.gguf}
dir=$(mktemp -d /tmp/sluice-bench-XXXXXX)
chmod 755 "$dir"
trap 'kill -INT $up 2>/dev/null; wait $up 2>/dev/null; rm -rf "$dir"' EXIT
up=0

echo "## Engine alone"
"$binary" bench --model "$model" --prompt-tokens 256 --gen-tokens 32 --batch 1,8,32,64
if [ -n "${BENCH_PEERS:-}" ]; then
    echo "## llama.cpp, same file, same run"
    "$BENCH_PEERS/bin/python" bench/peer_llama_cpp.py "$model"
fi
echo "## Whole service"
"$binary" up --dir "$dir/var" --model "$model" --port 18990 --tls-port 18991 --admin-port 18992 > "$dir/up.log" 2>&1 &
up=$!
n=0
until curl -sf http://127.0.0.1:18990/readyz >/dev/null; do
    n=$((n + 1))
    [ $n -lt 300 ] || { cat "$dir/up.log"; exit 1; }
    sleep 0.1
done
.venv/bin/python bench/load.py --base http://127.0.0.1:18990/v1 --key "$(cat "$dir/var/demo.key")" --ignore-eos --requests 32
