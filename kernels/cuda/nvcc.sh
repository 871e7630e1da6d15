#!/bin/sh
# Finds nvcc and says which architectures it can build for.
# usage: kernels/cuda/nvcc.sh find              prints the path of nvcc; fails with a word where there is none
#        kernels/cuda/nvcc.sh gencode NVCC [N,..]  prints its options for all GPUs that Wane knows, or for sm_N alone
# Environment: WANE_CUDA_COMPRESS, how nvcc compresses code (size); NVCC, CUDA_HOME, CUDA_PATH; then PATH,
# /usr/local/cuda and the newest /usr/local/cuda-*.

find_nvcc() {
    for path in "$NVCC" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" \
        "$(command -v nvcc 2>/dev/null)" /usr/local/cuda/bin/nvcc \
        "$(ls -d /usr/local/cuda-*/bin/nvcc 2>/dev/null | sort -V | tail -n 1)"; do
        [ -n "$path" ] && [ -x "$path" ] && echo "$path" && return 0
    done
    echo "no nvcc: set NVCC or CUDA_HOME, or install a CUDA toolkit (11.8 or later); everything else builds without" >&2
    return 1
}

# Prints options for machine code of every architecture, and PTX of the newest for the GPUs to come. The front end takes
# most of the time, and the files tell two kinds of GPU apart, those with mma.sync and cp.async for bf16 and older ones:
# it runs for sm_75, for sm_80 and, for the PTX, for the newest. WN_CUDA_ARCHES lists them, ascending.
gencode() { # nvcc, architectures with commas between them or nothing
    archs=
    for arch in $(echo "${2:-75,80,86,89,90,100,110,120}" | tr ',' ' '); do
        "$1" --list-gpu-arch | grep -qx "compute_$arch" && archs="$archs $arch"
    done
    newest=${archs##* }
    [ -n "$newest" ] || { echo "this nvcc knows none of the architectures ${2:-75 to 120}" >&2; return 1; }
    for arch in $archs; do
        front=$arch
        if [ "$arch" -ge 80 ] && { [ -n "$2" ] || [ "$arch" != "$newest" ]; }; then front=80; fi
        printf -- '-gencode arch=compute_%s,code=sm_%s ' "$front" "$arch"
    done
    # A library of an eighth of the size: in CUDA 12 it would need a newer driver than the rest (550.54), so from 13 on
    # alone. It takes a quarter of the time of building.
    if "$1" --version | grep -Eq 'release (1[3-9]|[2-9][0-9])\.'; then
        printf -- '--compress-mode=%s ' "${WANE_CUDA_COMPRESS:-size}"
    fi
    printf -- "'-DWN_CUDA_ARCHES=%s' " "$(echo "${archs# }" | sed 's/ /\\,/g')"
    printf -- '-gencode arch=compute_%s,code=compute_%s\n' "$front" "$front"
}

case $1 in
    find) find_nvcc ;;
    gencode) gencode "$2" "$3" ;;
    *) echo "nvcc.sh: find or gencode, not '$1'" >&2; exit 2 ;;
esac
