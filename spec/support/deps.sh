#!/bin/sh
# Sees to what a target needs: deps.sh demo|spec|doc|test|check|fuzz. What is there is not installed again, and when
# nothing is missing nothing is called and no network is touched. Otherwise the one apt line is printed, then run.
# Without apt, or without the right to use it, the names are printed and this fails; but specs can do without oneDNN, lint
# of `make test` without its tools, and the check without what builds and runs for aarch64, and without clang.
level=${1:-check}
missing=
optional=

need() { # package, then the command that succeeds when it is there
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

has_onednn() { luajit -e 'local f = require "ffi"; return pcall(f.load, "libdnnl.so.3") or f.load "libdnnl.so.2"'; }
has_zmq() { luajit -e 'require("ffi").load "libzmq.so.5"'; }
has_headers() { echo '#include <stdio.h>' | gcc -E -xc - >/dev/null; }
has_asan() { case $(gcc -print-file-name=libasan.so) in /*) return 0 ;; *) return 1 ;; esac }
lua_has() { "$1" -e "require '$2'"; }

has_fuzzer() { ls /usr/lib/llvm-*/lib/clang/*/lib/linux/ /usr/lib/clang/*/lib/linux/ | grep -q libclang_rt.fuzzer; }

if [ "$level" != doc ]; then
    need gcc command -v gcc
    need libc6-dev has_headers
    need luajit command -v luajit
fi
case $level in
    demo) ;;
    doc)
        need lua-ldoc command -v ldoc
        need lua-discount lua_has lua discount
        ;;
    fuzz)
        need clang command -v clang
        need libclang-rt-14-dev has_fuzzer
        ;;
    spec | test) need lua-busted lua_has luajit busted.core ;;
    check)
        need lua-busted lua_has luajit busted.core
        need lua-check command -v luacheck
        need lua-ldoc command -v ldoc
        need lua-discount lua_has lua discount
        need luarocks command -v luarocks
        need clang-format command -v clang-format
        has_asan 2>/dev/null || case $missing in *' gcc'*) ;; *) missing="$missing libgcc-12-dev" ;; esac
        ;;
    *)
        echo "deps.sh: demo, spec, doc, test, check or fuzz, not '$level'" >&2
        exit 2
        ;;
esac
may() { # package, then the command that succeeds when it is there
    package=$1
    shift
    "$@" >/dev/null 2>&1 || optional="$optional $package"
}

if [ "$level" = test ]; then
    may lua-check command -v luacheck
    may clang-format command -v clang-format
fi
if [ "$level" = check ]; then
    may libdnnl2 has_onednn
    may libzmq5 has_zmq
    may g++ command -v g++
    may parallel command -v parallel
    may openmpi-bin command -v mpirun.openmpi
    may libopenmpi-dev command -v mpicc.openmpi
    may mpich command -v mpirun.mpich
    may libmpich-dev command -v mpicc.mpich
    may slurmctld command -v slurmctld
    may slurmd command -v slurmd
    may slurm-client command -v srun
    may munge command -v munged
    may iproute2 command -v tc
    may gcc-aarch64-linux-gnu command -v aarch64-linux-gnu-gcc
    may libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/include/stdio.h
    may qemu-user command -v qemu-aarch64
    may clang command -v clang
    may libclang-rt-14-dev has_fuzzer
fi
[ -n "$missing$optional" ] || exit 0

fail() {
    [ -n "$missing" ] || exit 0
    echo "wane: needed and not here:$missing" >&2
    echo "wane: $1" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || fail "there is no apt-get; install them with what this system has, then again"
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || fail "not root and no sudo; ask for: apt-get install$missing"
    sudo=sudo
    if [ ! -t 0 ]; then
        sudo='sudo -n'
        sudo -n true 2>/dev/null || fail "sudo wants a password and there is no terminal; run: sudo apt-get install$missing"
    fi
fi

lock='-o DPkg::Lock::Timeout=300'
ls "${WANE_APT_LISTS:-/var/lib/apt/lists}"/*Packages* >/dev/null 2>&1 || $sudo apt-get $lock update -q || fail "apt-get update failed"
install() { # packages
    echo "wane: $sudo${sudo:+ }apt-get install -y --no-install-recommends $*"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get $lock install -y -q --no-install-recommends "$@"
}

# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing || fail "apt-get could not install them"
for package in $optional; do
    apt-cache show "$package" >/dev/null 2>&1 || continue
    install "$package" || echo "wane: without $package"
done
exit 0
