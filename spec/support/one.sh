#!/bin/sh
# Runs one spec file in one of the ways of suite.sh, and leaves NAME.log, NAME.result (spec/support/output.lua) and
# NAME.code in WANE_SPEC_FOLDER/WAY. Prints one line when the file has ended.
# Specs of CUDA run on the simulated GPU where it was built, in the ways plain and asan; the way `cuda` runs any file with it as the device.
# Environment: WANE_SPEC_LONG_FILES, the files that run in their long form where WANE_SPEC_LONG does not say it of all.
# usage: spec/support/one.sh plain|nojit|stress|asan|aarch64|cuda spec/name_spec.lua
way=$1
file=$2
name=$(basename "$file" .lua)
folder=$WANE_SPEC_FOLDER/$way
# Plans must not depend on what was measured on this machine, nor layouts of weights on whether its processor has AMX.
export WANE_COSTS=off WANE_ONEDNN="${WANE_ONEDNN:-off}"
export WANE_SPEC_RESULT="$folder/$name.result"
case " $WANE_SPEC_LONG_FILES " in *" $file "*) export WANE_SPEC_LONG=1 ;; esac
jit=
preload=
case $way:$name in
    aarch64:*) ;;
    cuda:*) export WANE_CUDA_LIB="${WANE_CUDA_LIB:-$PWD/build/cudasim}" WANE_DEVICE=cuda ;;
    plain:cuda_library_spec | asan:cuda_library_spec) export WANE_CUDA_DNN=simulated WANE_CUDA_LT=simulated ;;
esac
case $way:$name in
    plain:cuda* | asan:cuda*) [ ! -e build/cudasim/libwane_cuda.so ] || export WANE_CUDA_LIB="$PWD/build/cudasim" ;;
esac
# Two ways use slower classes of kernels, so that with the plain way the specs run under each (backend/class.h).
slower=
case $way in
    nojit) jit=-joff slower=avx2 ;;
    stress) export WANE_SPEC_STRESS=1 slower=plain ;;
    asan)
        preload=$(${CC:-gcc} -print-file-name=libasan.so)
        export WANE_LIB="$PWD/build/asan" ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:exitcode=99"
        export LSAN_OPTIONS="print_suppressions=0${WANE_LSAN:+:suppressions=$WANE_LSAN}"
        ;;
    aarch64)
        # The emulator now and then runs machine code that LuaJIT has replaced meanwhile (SIGILL in 1 run of 60 files).
        jit=-joff
        export WANE_LIB="$PWD/build/aarch64" WANE_SPEC_CC=aarch64-linux-gnu-gcc
        ;;
esac
if [ -n "$slower" ] && [ "$(uname -m)" = x86_64 ]; then export WANE_KERNELS="${WANE_KERNELS:-$slower}"; fi
interpreter=$LUAJIT
[ "$way" != aarch64 ] || interpreter="$PWD/build/aarch64/luajit"
# shellcheck disable=SC2086
env ${preload:+LD_PRELOAD="$preload"} "$interpreter" $jit spec/run.lua "$file" $WANE_SPEC_OPTIONS \
    >"$folder/$name.log" 2>&1 </dev/null
echo $? >"$folder/$name.code"
times >"$folder/$name.cpu"
exec "$LUAJIT" spec/support/tally.lua line "$way" "$file"
