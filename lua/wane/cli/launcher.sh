#!/bin/sh
# The `wane` command. `make` copies it to build/wane, `make install` to PREFIX/bin/wane. It finds Wane's Lua files from
# its own place, through symbolic links, so it works from any folder without environment variables; `make install` fills
# in the folder that it was told.
installed=
self=$0
while [ -L "$self" ]; do
    link=$(readlink "$self")
    case $link in
        /*) self=$link ;;
        *) self=$(dirname "$self")/$link ;;
    esac
done
here=$(CDPATH= cd -- "$(dirname -- "$self")" && pwd -P) || exit 1
for lua in "${here%/*}/lua" "${here%/*}/share/lua/5.1" "$installed"; do
    if [ -f "$lua/wane/cli/init.lua" ]; then
        exec "${LUAJIT:-luajit}" "$lua/wane/cli/init.lua" "$@"
    fi
done
echo "wane: no lua/wane/cli/init.lua beside $here" >&2
exit 1
