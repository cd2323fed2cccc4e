#!/bin/sh
# fetch_vocabs.sh: puts real vocabularies into the cache and prints their folder. They are GGUF files without
# tensors, each with texts and the ids that the model's own tokenizer gives them, and travel in the source
# distribution of the PyPI package llama-cpp-python, which is checked against a pinned SHA-256 sum. The cache is
# $SLUICE_CACHE, else sluice/ under XDG_CACHE_HOME or ~/.cache. What was unpacked once is fetched again only when
# a file's size or time changed.
set -eu
cd "$(dirname "$0")/.."

package=llama-cpp-python==0.3.36
sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
members='*/vendor/llama.cpp/models/ggml-vocab-*'
# The archive (77 MB), what pip unpacks of it to read its metadata, and the vocabularies.
need_mb=900

cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
vocabs=$cache/vocabs
marker=$cache/vocabs.checked

say()
{
    echo "vocabularies: $*" >&2
}

die()
{
    say "$*"
    exit 1
}

stamp()
{
    echo "$sdist_sha256"
    (cd "$vocabs" && stat -c '%n %s %Y' ./*)
}

is_good()
{
    [ -d "$vocabs" ] && [ -f "$marker" ] && [ "$(stamp)" = "$(cat "$marker")" ]
}

venv()
{
    [ -x .venv/bin/pip ] && .venv/bin/python -c '' 2>/dev/null && return
    say "making .venv for Python tools"
    python3 -m venv --clear .venv || die "python3 -m venv failed: is the package python3-venv installed?"
}

fetch()
{
    work=$cache/fetch-vocabs.$$
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$work/tmp" "$work/new"
    free_mb=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free_mb" -ge "$need_mb" ] || die "not enough space in $cache: $need_mb MB are needed, $free_mb MB are free"
    venv
    say "downloading the source of $package (77 MB)"
    echo "$package --hash=sha256:$sdist_sha256" > "$work/requirements.txt"
    TMPDIR=$work/tmp .venv/bin/pip download -q --disable-pip-version-check --no-deps --no-cache-dir --require-hashes \
        --no-binary llama-cpp-python -d "$work" -r "$work/requirements.txt" 2> "$work/log" || {
        die "the vocabularies can't be downloaded; is there a network? ($(grep -i error "$work/log" | tail -n 1))"
    }
    say "unpacking"
    tar -xzf "$work"/llama_cpp_python-*.tar.gz -C "$work/new" --wildcards --strip-components=4 "$members" ||
        die "the archive can't be unpacked"
    rm -rf "$vocabs" "$marker"
    mv "$work/new" "$vocabs"
    stamp > "$marker"
    say "ready: $vocabs"
}

mkdir -p "$cache" || die "$cache can't be made"
if ! is_good; then
    exec 9> "$cache/vocabs.lock"
    if flock -n 9; then
        fetch
    else
        say "another start fetches them: waiting"
        flock 9
        is_good || fetch
    fi
fi
echo "$vocabs"
