#!/bin/sh
# Builds Wane for aarch64 with a cross compiler and tries it under qemu-user: examples/first.lua prints what it prints on
# this machine, products and attention have the bits that they have here, and specs of numbers, plans and errors pass.
# (neon_spec tries the micro-kernels by themselves.) Says which tool is missing, and succeeds, where one is.
# The emulated LuaJIT and busted's C modules are Debian's own packages for arm64, unpacked into build/aarch64/root; nothing is installed.
# usage: spec/support/aarch64.sh [spec files]
cd "$(dirname "$0")/../.." || exit 1
make=${MAKE:-make}
cross=aarch64-linux-gnu-gcc
packages='luajit libluajit-5.1-2 lua-filesystem lua-system lua-term' # what is machine code of LuaJIT and busted
o=build/aarch64
echo "== aarch64"
for tool in $cross qemu-aarch64; do
    command -v $tool >/dev/null 2>&1 || { echo "   left out: there is no $tool (make deps)"; exit 0; }
done

# Unpacks LuaJIT for arm64, found through package lists of its own, so that this system's stay as they are.
unpack_luajit() {
    lists=$PWD/$o/apt
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial" $o/root
    set -- -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
        -o Dir::State::lists="$lists/lists" -o Dir::Cache="$lists/cache"
    (cd "$lists" && apt-get "$@" update && apt-get "$@" download $packages) >$o/apt.log 2>&1 || return 1
    for package in "$lists"/*.deb; do dpkg -x "$package" $o/root || return 1; done
    rm -rf "$lists"
}

mkdir -p $o
if [ ! -x $o/root/usr/bin/luajit ] && ! unpack_luajit; then
    echo "   left out: LuaJIT for arm64 cannot be had ($o/apt.log)"
    exit 0
fi
root=$PWD/$o/root
cat >$o/luajit <<END
#!/bin/sh
LUA_CPATH='$root/usr/lib/aarch64-linux-gnu/lua/5.1/?.so' exec qemu-aarch64 -L /usr/aarch64-linux-gnu \\
    -E LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu $root/usr/bin/luajit "\$@"
END
chmod 755 $o/luajit

$make --no-print-directory CC=$cross O=$o LIBRARY=$o/libwane.so $o/libwane.so || exit 1
export WANE_THREADS=2
there() { WANE_LIB="$PWD/$o" $o/luajit -joff "$@"; } # LuaJIT with the library for aarch64
${LUAJIT:-luajit} examples/first.lua >$o/first.here || exit 1
there examples/first.lua >$o/first.there || exit 1
cmp $o/first.here $o/first.there || exit 1
echo '   examples/first.lua prints the same'

class=$(export LUA_PATH='lua/?.lua;lua/?/init.lua' WANE_KERNELS=auto
    there -e 'print(require("ffi").string(require("wane.ffi").C.wn_kernels()))') || exit 1
[ "$class" = 'neon (NEON)' ] || { echo "   the class is $class"; exit 1; }

# Writes digests of products, of attention, of convolutions and of a training by one class to bits.CLASS.
bits() ( # class, LuaJIT
    export WANE_KERNELS="$1" WANE_COSTS=off WANE_ONEDNN=off OMP_WAIT_POLICY=passive
    "$2" spec/support/class_bits.lua matmul linear attention attention_grad conv2d conv2d_dx conv2d_dw >"$o/bits.$1" 2>$o/bits.log
)
bits plain there &
plain=$!
bits neon there || exit 1
wait $plain || exit 1
cmp $o/bits.neon $o/bits.plain || exit 1
echo "   neon has the bits of plain: $(wc -l <$o/bits.neon) results"
if grep -q ' avx2' /proc/cpuinfo 2>/dev/null; then
    bits avx2 "${LUAJIT:-luajit}" || exit 1
    diff $o/bits.neon $o/bits.avx2 || exit 1
    echo '   and of avx2'
fi

# Specs of numbers, plans and errors that take seconds under emulation; commands that they run are the native ones.
[ $# -gt 0 ] || set -- spec/bf16_spec.lua spec/cache_spec.lua \
    spec/data_spec.lua spec/errors_spec.lua spec/exact_spec.lua \
    spec/layout_spec.lua spec/microbatch_spec.lua spec/nn_spec.lua spec/optim_spec.lua spec/policy_spec.lua \
    spec/random_spec.lua spec/rewrite_spec.lua spec/rows_spec.lua \
    spec/runpoints_spec.lua spec/state_spec.lua spec/tensor_spec.lua spec/verify_spec.lua
exec sh spec/support/suite.sh aarch64 "$@"
