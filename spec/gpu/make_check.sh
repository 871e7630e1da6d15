#!/bin/sh
# Makes the bundle and runs its checks on this machine, for `make gpu-check`. Without a GPU says so in one line and fails.
# usage: spec/gpu/make_check.sh [LIBRARY [options of check.sh]]
#        LIBRARY: a libwane_cuda.so or its folder instead of the one that nvcc builds, such as build/cudasim, which
#        `make cudasim` builds
# Environment: MAKE; REPORT, where the report goes (build/gpu, of the simulated device build/gpu-simulated).
cd "$(dirname "$0")/../.." || exit 1
library=$1
[ $# = 0 ] || shift
make=${MAKE:-make}
unset WANE_CUDA_LIB # the bundle's own is checked

if [ -n "$library" ]; then
    [ "$library" != build/cudasim ] || $make --no-print-directory cudasim || exit 1
    folder=build/gpu-simulated
    sh spec/gpu/bundle.sh "$library" $folder || exit 1
else
    folder=build/gpu
    if ! ls /dev/nvidia[0-9]* /dev/dxg >/dev/null 2>&1; then
        echo 'gpu-check: no GPU here (no /dev/nvidia0): make gpu-bundle packs the checks for a machine that has one, and' \
            'make gpu-check WANE_CUDA_LIB=build/cudasim runs them on the simulated one' >&2
        exit 1
    fi
    $make --no-print-directory gpu-bundle || exit 1
fi
REPORT="${REPORT:-$PWD/$folder}" exec $folder/wane-gpu/check.sh "$@"
