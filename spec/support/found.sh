#!/bin/sh
# Says aloud what the build found on this machine, and what follows when something is not there.
# Only looks: installs nothing, fails for nothing but a missing compiler.
cc=$1
luajit=$2
# shellcheck disable=SC2086 # "ccache gcc" is two words
version=$($cc -dumpfullversion 2>/dev/null) || { echo "wane: no compiler ($cc): apt-get install gcc libc6-dev"; exit 1; }
line="wane: $cc $version"

if command -v "$luajit" >/dev/null 2>&1; then
    line="$line, $("$luajit" -v 2>/dev/null | cut -d' ' -f1,2)"
else
    line="$line, no LuaJIT (apt-get install luajit; the library builds without it)"
fi

dnnl=
for lib in /usr/lib/*/libdnnl.so.* /usr/lib/libdnnl.so.* /usr/local/lib/libdnnl.so.*; do
    [ -e "$lib" ] && dnnl=${lib##*libdnnl.so.}
done
[ -n "$dnnl" ] && line="$line, oneDNN $dnnl" || line="$line, no oneDNN (own kernels do all)"

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
if [ -n "$nvcc" ]; then
    line="$line, nvcc $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
    ls kernels/cuda/*.cu >/dev/null 2>&1 || line="$line (no CUDA kernels in this version)"
else
    line="$line, no nvcc (CPU only)"
fi
echo "$line"
