#!/bin/sh
# fetch_templates.sh: puts chat templates of real models into the cache and prints their folder. They
# travel in the source distribution of a Python package, which is checked against a pinned SHA-256 sum
# and never built. The cache is $SLUICE_CACHE, else sluice/ under XDG_CACHE_HOME or ~/.cache. What
# jinja2 makes of them is in tests/data/templates/real.json (tools/oracle_template.py --real FOLDER).
set -eu
cd "$(dirname "$0")/.."

name=llama-cpp-python
version=0.3.36
sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
members=vendor/llama.cpp/models/templates
need_mb=100

cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
folder=$cache/templates-$version

say()
{
    echo "templates: $*" >&2
}

die()
{
    say "$*"
    exit 1
}

venv()
{
    [ -x .venv/bin/pip ] && .venv/bin/python -c '' 2>/dev/null && return
    say "making .venv for Python tools"
    python3 -m venv --clear .venv || die "python3 -m venv failed: is the package python3-venv installed?"
}

# pip asks the build backend of a source distribution for its metadata even when it only downloads. This
# one stands in for the package's own, so that nothing of the package is run.
stand_in()
{
    mkdir -p "$1/scikit_build_core"
    : > "$1/scikit_build_core/__init__.py"
    cat > "$1/scikit_build_core/build.py" << PYTHON
import pathlib


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = "llama_cpp_python-$version.dist-info"
    folder = pathlib.Path(metadata_directory) / name
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: $name\nVersion: $version\n")
    return name


def build_wheel(*arguments, **more):
    raise NotImplementedError
PYTHON
}

fetch()
{
    work=$cache/fetch-templates.$$
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$work/folder"
    free_mb=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1024) }')
    [ "$free_mb" -ge "$need_mb" ] || die "not enough space in $cache: $need_mb MB are needed, $free_mb MB are free"
    venv
    stand_in "$work/backend"
    say "downloading the sources of $name $version"
    echo "$name==$version --hash=sha256:$sdist_sha256" > "$work/requirements.txt"
    PYTHONPATH="$work/backend" .venv/bin/pip download -q --disable-pip-version-check --no-deps --no-cache-dir \
        --require-hashes --no-binary :all: --no-build-isolation -d "$work" -r "$work/requirements.txt" 2> "$work/log" || {
        die "they can't be downloaded; is there a network? ($(grep -i error "$work/log" | tail -n 1))"
    }
    tar -xzf "$work"/*.tar.gz -C "$work/folder" --strip-components=5 --wildcards "*/$members/*.jinja" ||
        die "the sources hold no templates"
    mv "$work/folder" "$folder"
    say "ready: $(find "$folder" -name '*.jinja' | wc -l) in $folder"
}

mkdir -p "$cache" || die "$cache can't be made"
if [ ! -d "$folder" ]; then
    exec 9> "$cache/lock-templates"
    flock 9
    [ -d "$folder" ] || fetch
fi
echo "$folder"
