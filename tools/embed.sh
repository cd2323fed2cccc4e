#!/bin/sh
# Writes C that embeds the named files: a table of {name, data, size} declared in base/embedded.h.
set -eu
echo '#include "base/embedded.h"'
n=0
for f in "$@"; do
    printf '__asm__(".section .rodata\\nembedded_%d:\\n.incbin \\"%s\\"\\nembedded_%d_end:\\n.byte 0\\n.previous\\n");\n' $n "$f" $n
    printf 'extern const char embedded_%d[], embedded_%d_end[];\n' $n $n
    n=$((n + 1))
done
echo 'const struct embedded_file embedded_files[] = {'
n=0
for f in "$@"; do
    printf '    {"%s", embedded_%d, embedded_%d_end},\n' "$f" $n $n
    n=$((n + 1))
done
echo '    {0, 0, 0},'
echo '};'
