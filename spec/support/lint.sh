#!/bin/sh
# What can be said about the files without running them: luacheck, clang-format, shell syntax, and the rules of
# layers, sizes and comments (spec/layers_spec.lua, spec/sentences_spec.lua), which `lint.sh files` leaves to the run of
# specs that follows. `make format` mends what clang-format finds. A tool that is not here is named and left out.
cd "$(dirname "$0")/../.." || exit 1
bad=0
echo "== lint"
has() { # tool
    command -v "$1" >/dev/null 2>&1 || { echo "   left out: there is no $1 (make deps)"; return 1; }
}

! has luacheck || luacheck --quiet . || bad=1
# scalar.h is a table: one formula a line, which clang-format would spread over many.
! has clang-format || find runtime kernels spec/cudasim \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.cpp' \) ! -name scalar.h -exec clang-format --dry-run -Werror {} + 2>&1 |
    grep -m 20 'error:' && bad=1
for script in .ci/run spec/support/*.sh lua/wane/cli/*.sh kernels/cuda/*.sh spec/gpu/*.sh; do
    sh -n "$script" || bad=1
done
[ "$1" = files ] || sh spec/support/suite.sh plain spec/layers_spec.lua spec/sentences_spec.lua || bad=1
exit $bad
