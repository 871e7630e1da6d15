#!/bin/sh
# Checks the GPU without one: builds the simulated GPU, plainly and with a watch over its memory, which the specs of
# CUDA run on in the plain stage; runs specs that hold on any device with it as theirs; and where nvcc is, builds a
# library of its own for the two kinds of GPU that the files tell apart, sm_75 without and sm_90 with mma.sync of bf16:
# no register spills, and it opens without a driver and says why there is no GPU. Says in a word what it skips: the
# specs without a C++ compiler, the build without nvcc.
cd "$(dirname "$0")/../.." || exit 1
make=${MAKE:-make}
# Specs of one device at a time, whose numbers do not name the CPU. The others of spec/ compare texts or seconds.
specs='action attention autocast chain chunked exact explain file forward_effect fused_step fuzz gc image
image_networks microbatch nn offset oom optim planning policy random rewrite robust rows
save second slopes state verify ways'
bad=0

if command -v "${CXX:-g++}" >/dev/null 2>&1; then
    $make --no-print-directory cudasim cudasim-hooks || bad=1
    files=
    for name in $specs; do files="$files spec/${name}_spec.lua"; done
    # shellcheck disable=SC2086
    sh spec/support/suite.sh cuda $files || bad=1
else
    echo "cuda: the simulated GPU is skipped: no C++ compiler (${CXX:-g++})"
fi

if sh kernels/cuda/nvcc.sh find >/dev/null 2>&1; then
    arch=75,90
    $make --no-print-directory cuda WANE_CUDA_COMPRESS=speed WANE_CUDA_ARCH=$arch WANE_CUDA_OUT=build/cuda-check || bad=1
    if grep -h 'spill stores' build/cuda$arch/kernels/cuda/*.ptxas | grep -v ' 0 bytes spill stores, 0 bytes spill loads'; then
        echo 'cuda: a kernel spills registers' && bad=1
    fi
    WANE_CUDA_LIB=build/cuda-check build/wane version | grep '^CUDA' | grep -v 'cannot be opened' || bad=1
else
    echo 'cuda: the build for a GPU is skipped: no nvcc'
fi
exit $bad
