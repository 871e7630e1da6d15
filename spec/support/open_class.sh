#!/bin/sh
# Prints the objects of the built library with the symbols of one class of kernels open, and the other classes as one
# object each, for specs and benches that call what is inside.
# usage: spec/support/open_class.sh plain|avx2|avx512|neon
cd "$(dirname "$0")/../.." || exit 1
o=build/release
tr ' ' '\n' <$o/objects | grep -v "^$o/[a-z0-9]*/kernels/cpu/" | tr '\n' ' '
find "$o/$1/kernels" -name '*.o' | sort | tr '\n' ' '
for class in "$o"/*/cpu.o; do
    [ "$class" = "$o/$1/cpu.o" ] || printf '%s ' "$class"
done
