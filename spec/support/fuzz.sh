#!/bin/sh
# Runs the drivers of `make fuzz` one after the other, each from an empty corpus, and fails at the first that finds
# something. The seconds are of all together: programs and trainings get most of them.
# usage: spec/support/fuzz.sh SECONDS DRIVER...     FUZZ_SEED=n draws other inputs (1 unless given)
# What a driver found stays in build/fuzz/found, to be run again: build/fuzz/fuzz_api build/fuzz/found/crash-... (with
# WANE_FUZZ_SAY=1 fuzz_train prints the plans), or FUZZ_SEED=n luajit spec/fuzz/readers.lua SECONDS.
seconds=$1
seed=${FUZZ_SEED:-1}
shift
cd "$(dirname "$0")/../.." || exit 1
[ $# -gt 0 ] || { echo "fuzz.sh: no drivers" >&2; exit 2; }
mkdir -p build/fuzz/found
corpus=$(mktemp -d) || exit 1
trap 'rm -rf "$corpus"' EXIT
export WANE_THREADS=1 WANE_ONEDNN=off ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1

# Hundredths of the seconds.
weight() {
    case $1 in
        *fuzz_api | *fuzz_train) echo 35 ;;
        *) echo 10 ;;
    esac
}

all=0
for driver in "$@"; do all=$((all + $(weight "$driver"))); done
echo "fuzz: seed $seed"
for driver in "$@"; do
    share=$((seconds * $(weight "$driver") / all))
    [ "$share" -gt 0 ] || share=1
    log=$corpus/log
    case $driver in
        *.lua) FUZZ_SEED=$seed ${LUAJIT:-luajit} "$driver" "$share" > "$log" 2>&1 ;;
        *)
            rm -rf "$corpus/inputs" && mkdir -p "$corpus/inputs"
            "$driver" -seed="$seed" -max_len=4096 -len_control=20 -rss_limit_mb=4096 -timeout=60 \
                -max_total_time="$share" -artifact_prefix=build/fuzz/found/ "$corpus/inputs" > "$log" 2>&1
            ;;
    esac
    code=$?
    runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
    if [ $code -ne 0 ]; then
        tail -60 "$log"
        echo "fuzz: $driver found something with seed $seed (build/fuzz/found)"
        exit 1
    fi
    echo "fuzz: $driver: $runs runs in $share seconds, clean"
done
