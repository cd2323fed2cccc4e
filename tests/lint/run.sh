#!/bin/sh
# run.sh BINARY: all checks; each says what is wrong with file and line. Tools of one stated version:
# LLVM 14 and cppcheck 2.10 (Debian 12). Exit 1 if any failed.
set -u
binary=$1
failed=0
files=$(git ls-files '*.c' '*.h' '*.cu')
sources=$(git ls-files 'app/*.c' 'api/*.c' 'auth/*.c' 'quota/*.c' 'billing/*.c' 'engine/*.c' 'store/*.c' 'base/*.c')

step()
{
    name=$1
    begin=$(date +%s)
    shift
    if "$@"; then
        echo "lint $name: ok, $(($(date +%s) - begin)) s"
    else
        echo "lint $name: FAILED" >&2
        failed=1
    fi
}

need()
{
    "$1" --version 2>/dev/null | grep -q "version $2" || {
        echo "lint needs $1 of version $2 (Debian 12)" >&2
        exit 1
    }
}
need clang-format-14 14
clang-tidy-14 --version >/dev/null 2>&1 || { echo "lint needs clang-tidy-14 (Debian 12)" >&2; exit 1; }

# Two files at a time: what one core can check of a file is what the machine's cores do in parallel.
tidy()
{
    echo "$sources" | tr ' ' '\n' | xargs -P "$(nproc)" -n 4 sh -c '
        for f in "$@"; do
            extra=
            case $f in
            api/*) extra=-DH2O_USE_LIBUV=0 ;;
            store/*) extra=-isystem/usr/include/postgresql ;;
            *_avx2.c) extra="-mavx2 -mfma -mf16c" ;;
            *_avx512.c) extra="-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c" ;;
            esac
            clang-tidy-14 --quiet "$f" -- -std=gnu11 -D_GNU_SOURCE -I. $extra 2>/dev/null || bad=1
        done
        exit ${bad:-0}' tidy
}

step clang-format clang-format-14 --dry-run -Werror $files
step clang-tidy tidy
step cppcheck cppcheck --quiet --error-exitcode=1 --enable=warning,performance,portability --inline-suppr \
    --suppress=missingIncludeSystem --std=c11 -D_GNU_SOURCE -DH2O_USE_LIBUV=0 -I. -j "$(nproc)" \
    --suppress='*:/usr/include/*' $sources
step includes python3 tests/lint/includes.py
step banned python3 tests/lint/banned.py
step documents python3 tests/lint/documents.py "$binary"
exit $failed
