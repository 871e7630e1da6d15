#!/bin/sh
# Runs the drivers of `make fuzz` for a short while, as `make check` does. Says which tool is missing, and succeeds, where
# one is.
# usage: spec/support/fuzz_short.sh [SECONDS]     of all drivers together; 24 unless given
cd "$(dirname "$0")/../.." || exit 1
echo "== fuzz"
command -v clang >/dev/null 2>&1 || { echo "   left out: there is no clang (make deps)"; exit 0; }
try=$(mktemp -d) || exit 1
trap 'rm -rf "$try"' EXIT
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n); int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }' >"$try/a.c"
clang -fsanitize=fuzzer,address,undefined -o "$try/a" "$try/a.c" >/dev/null 2>&1 ||
    { echo "   left out: clang has no libFuzzer (make deps)"; exit 0; }
${MAKE:-make} --no-print-directory fuzz FUZZ_SECONDS="${1:-24}"
