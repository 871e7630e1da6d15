#!/bin/sh
# Checks Wane on the GPU of this machine, from a bundle (make gpu-bundle) or a checkout: finds LuaJIT, cuBLASLt and
# cuDNN, then runs the checks of spec/gpu/run.lua. Needs no network, no root and no Python; where a Python with PyTorch
# is, it is compared with.
# usage: check.sh [--small] [--only NAME,NAME] [--caps FACTOR] [--minutes N]
#        --small: tiny sizes, those of the simulated device; --caps: every time cap times this; --minutes: after so many
#        no check is started
# Environment: WANE_CUDA_LIB (the bundle's own library), LUAJIT, PYTHON, REPORT (folder of the report, ./report here).
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P) || exit 1
case $here in */spec/gpu) here=${here%/spec/gpu} ;; esac
cd "$here" || exit 1

# The LuaJIT of the bundle, unless another one is named.
if [ -z "$LUAJIT" ] && [ -x "$here/luajit/luajit" ]; then
    LUAJIT="$here/luajit/luajit"
    LD_LIBRARY_PATH="$here/luajit${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    LUA_PATH="$here/luajit/?.lua;;"
fi
# Processes that a spec starts find luassert in the bundle, as spec/gpu/runner.lua does.
export LUA_PATH="$here/share/lua/?.lua;$here/share/lua/?/init.lua;${LUA_PATH:-;}"
LUAJIT=${LUAJIT:-luajit}
command -v "$LUAJIT" >/dev/null 2>&1 || { echo "check.sh: no LuaJIT ($LUAJIT)" >&2; exit 1; }

# Libraries that came along, where the loader has none of that name: an older one must not hide the system's.
is_known() { /sbin/ldconfig -p 2>/dev/null | grep -q "$1"; }
for library in "$here"/lib/*.so.*; do
    [ -e "$library" ] || continue
    is_known "$(basename "$library")" || LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/lib"
done

# A library of NVIDIA's: the loader's, else beside Python's packages, else of a toolkit. Prints its folder.
find_library() { # its name
    is_known "$1.so" && return
    folders=$("${PYTHON:-python3}" -c 'import sys; print("\n".join(sys.path))' 2>/dev/null)
    for folder in $folders; do
        for found in "$folder"/nvidia/*/lib/"$1".so.*; do
            [ -e "$found" ] && dirname "$found" && return
        done
    done
    for found in /usr/local/cuda*/lib64/"$1".so.* /usr/local/cuda*/targets/*/lib/"$1".so.*; do
        [ -e "$found" ] && dirname "$found" && return
    done
}
for library in libcublasLt libcudnn; do
    found=$(find_library $library)
    [ -z "$found" ] || LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found"
done

export LUAJIT LD_LIBRARY_PATH
export WANE_CUDA_LIB="${WANE_CUDA_LIB:-$here/build/libwane_cuda.so}"
# Plans must not depend on what was measured before; all kernels are loaded at once, so that bytes of the driver's own
# do not grow while the ledger is compared with it.
# Weights lie as on a CPU without a library, and specs that start processes find the LuaJIT of the bundle.
export PATH="$(dirname "$(command -v "$LUAJIT")"):$PATH" WANE_ONEDNN=off
export WANE_COSTS=off CUDA_MODULE_LOADING="${CUDA_MODULE_LOADING:-EAGER}"

version=$("$LUAJIT" lua/wane/cli/init.lua version 2>&1)
if ! echo "$version" | grep -q '^devices.*cuda'; then
    echo "check.sh: no GPU to check: $(echo "$version" | sed -n 's/^CUDA *//p')" >&2
    [ -n "$(echo "$version" | sed -n 's/^CUDA *//p')" ] || echo "$version" >&2
    exit 1
fi
exec "$LUAJIT" spec/gpu/run.lua "${REPORT:-$here/report}" "$@"
