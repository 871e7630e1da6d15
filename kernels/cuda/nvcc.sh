#!/bin/sh
# Finds nvcc and says which architectures it can build for.
# usage: kernels/cuda/nvcc.sh find              prints the path of nvcc; fails with a word where there is none
#        kernels/cuda/nvcc.sh gencode NVCC [N]  prints its options for all GPUs that Wane knows, or for sm_N alone
# Environment: NVCC, CUDA_HOME, CUDA_PATH; then PATH, /usr/local/cuda and the newest /usr/local/cuda-*.

find_nvcc() {
    for path in "$NVCC" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" \
        "$(command -v nvcc 2>/dev/null)" /usr/local/cuda/bin/nvcc \
        "$(ls -d /usr/local/cuda-*/bin/nvcc 2>/dev/null | sort -V | tail -n 1)"; do
        [ -n "$path" ] && [ -x "$path" ] && echo "$path" && return 0
    done
    echo "no nvcc: set NVCC or CUDA_HOME, or install a CUDA toolkit (11.8 or later); everything else builds without" >&2
    return 1
}

# Machine code of every architecture, and PTX of the newest for the GPUs to come.
gencode() { # nvcc, one architecture or nothing
    newest=
    for arch in ${2:-75 80 86 89 90 100 120}; do
        "$1" --list-gpu-arch | grep -qx "compute_$arch" || continue
        printf -- '-gencode arch=compute_%s,code=sm_%s ' "$arch" "$arch"
        newest=$arch
    done
    [ -n "$newest" ] || { echo "this nvcc knows none of the architectures ${2:-75 to 120}" >&2; return 1; }
    ! "$1" --help | grep -q -- '--compress-mode' || printf -- '--compress-mode=size '
    printf -- '-gencode arch=compute_%s,code=compute_%s\n' "$newest" "$newest"
}

case $1 in
    find) find_nvcc ;;
    gencode) gencode "$2" "$3" ;;
    *) echo "nvcc.sh: find or gencode, not '$1'" >&2; exit 2 ;;
esac
