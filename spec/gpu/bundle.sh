#!/bin/sh
# Packs what a machine with a GPU needs to check Wane, without a network, LuaJIT, busted or Python there:
# build/gpu/wane-gpu.tar, and the same unpacked in build/gpu/wane-gpu. check.sh in it runs everything.
# usage: spec/gpu/bundle.sh [LIBRARY [FOLDER]]
#        LIBRARY: the libwane_cuda.so that goes in (build/libwane_cuda.so); FOLDER: where the bundle is made (build/gpu)
# Environment: LUAJIT, the interpreter that goes in.
cd "$(dirname "$0")/../.." || exit 1
library=${1:-build/libwane_cuda.so}
[ ! -d "$library" ] || library=$library/libwane_cuda.so
folder=${2:-build/gpu}
out=$folder/wane-gpu
luajit=$(command -v "${LUAJIT:-luajit}") || { echo 'bundle.sh: no LuaJIT to pack' >&2; exit 1; }
for file in "$library" build/libwane.so build/wane; do
    [ -e "$file" ] || { echo "bundle.sh: there is no $file" >&2; exit 1; }
done
rm -rf "$out" "$out.tar" "$folder/wane-gpu.tar"
mkdir -p "$out/build" "$out/luajit" "$out/lib" "$out/share/lua" "$out/share/doc" "$out/spec/cudasim" || exit 1

# ---- Wane, and what the checks read -------------------------------------------------------------------------------
cp build/libwane.so build/wane "$library" "$out/build" || exit 1
cp LICENSE "$out"
cp -r lua examples "$out" || exit 1
cp spec/*.lua "$out/spec"
cp -r spec/cases spec/support spec/fixtures spec/gpu "$out/spec" || exit 1
cp spec/cudasim/control.h "$out/spec/cudasim"
mkdir -p "$out/runtime"
cp runtime/op.def runtime/status.def "$out/runtime"
cp spec/gpu/check.sh "$out/check.sh" && chmod 755 "$out/check.sh"

# ---- LuaJIT: the interpreter, the library that it links with, its modules jit.* -------------------------------------
cp -L "$luajit" "$out/luajit/luajit"
linked=$(ldd "$luajit" | sed -n 's/.*=> \(.*libluajit[^ ]*\) .*/\1/p')
[ -z "$linked" ] || cp -L "$linked" "$out/luajit/$(basename "$linked")"
modules=$("$luajit" -e 'for p in package.path:gmatch "[^;]+" do
    local f = io.open((p:gsub("%?", "jit/bc")))
    if f then print((p:gsub("/%?.*", ""))) break end
end')
[ -z "$modules" ] || cp -rL "$modules/jit" "$out/luajit"

# ---- luassert and say, which are Lua alone ----------------------------------------------------------------------------
for module in luassert say; do
    found=$("$luajit" -e "for p in package.path:gmatch '[^;]+' do
        local f = io.open((p:gsub('%?', '$module')))
        if f then print((p:gsub('%?.*', '$module'))) break end
    end")
    [ -n "$found" ] || { echo "bundle.sh: no $module to pack: install lua-busted (make deps)" >&2; exit 1; }
    cp -rL "$found" "$out/share/lua"
done

# ---- libraries of the compiler, where the other machine has none; licences -------------------------------------------
for name in libstdc++ libgcc_s; do
    for file in $(ldd build/libwane.so "$library" | sed -n "s/.*=> \(.*$name[^ ]*\) .*/\1/p" | sort -u); do
        cp -L "$file" "$out/lib"
    done
done
for package in luajit lua-luassert lua-say libstdc++6; do
    [ ! -e "/usr/share/doc/$package/copyright" ] || cp -L "/usr/share/doc/$package/copyright" "$out/share/doc/$package"
done

# The newest glibc that a symbol of what always runs asks for; lib/ is for machines that lack it altogether.
needs=$(cat "$out"/build/*.so "$out/luajit/luajit" | grep -ao 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
tar -C "$folder" -cf "$folder/wane-gpu.tar" wane-gpu || exit 1
echo "$folder/wane-gpu.tar: $(($(wc -c <"$folder/wane-gpu.tar") >> 20)) MiB, needs ${needs:-an unknown glibc}; unpack it" \
    'on the machine with the GPU and run wane-gpu/check.sh'
