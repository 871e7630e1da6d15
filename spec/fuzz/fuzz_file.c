/* Reads files by random calls of the C API: the input holds the bytes of a file and the calls. Then writes a file, and
 * commits or discards it. All names lie in /tmp. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "bytes.h"
#include "wane_process.h"
#include "wane_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char name[64], other[64];

static void write_input(const uint8_t *data, size_t size)
{
    if (name[0] == 0) {
        snprintf(name, sizeof name, "/tmp/wane-fuzz-%d", (int)getpid());
        snprintf(other, sizeof other, "/tmp/wane-fuzz-%d-2", (int)getpid());
    }
    FILE *f = fopen(name, "wb");
    if (f == NULL) return;
    fwrite(data, 1, size, f);
    fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t room[4096];
    struct bytes b = {data, data + size};
    struct wn_type t = {0};
    wn_start();
    wn_memory_limit(0, 0, 64 << 20);
    write_input(data, size);
    int32_t file = wn_file_open(name), value = -1, cell = -1;
    for (int32_t k = 0; k < 8; k++) {
        int64_t n = take_wide(&b), at = take_wide(&b);
        t.dtype = take_int(&b);
        t.ndim = (int16_t)take_int(&b);
        t.layout = (int16_t)(take(&b) < 240 ? 0 : take_int(&b));
        for (int32_t i = 0; i < 8; i++) t.dim[i] = take_wide(&b);
        wn_file_size(file);
        wn_file_read(file, at, room, n > (int64_t)sizeof room ? -n : n);
        static const char *const words[] = {"F32", "F64", "F16",  "BF16",    "I64", "I32",
                                            "I16", "U8",  "BOOL", "no such", NULL};
        struct wn_file_piece piece = {.kind = words[take(&b) % 11], .name = "t", .at = at, .swap = take_int(&b)};
        piece.file = take(&b) < 240 ? file : take_int(&b);
        int32_t v = wn_file_data(&piece, &t, take(&b) < 240 ? 0 : take_int(&b));
        if (v < 0) continue;
        wn_release(value);
        value = v;
        int32_t c = wn_cell(0, value, "w");
        if (c < 0) continue;
        wn_release(cell);
        cell = c;
        struct wn_file_piece parts[2] = {piece, piece};
        parts[0].cell = parts[1].cell = cell;
        parts[0].count = parts[1].first = take(&b) & 1 ? take(&b) : take_wide(&b);
        parts[1].count = take(&b) & 1 ? take(&b) : take_wide(&b);
        parts[0].columns = take(&b) & 1 ? take(&b) % 8 : take_wide(&b);
        if (take(&b) & 1) {
            parts[0].rows = take(&b) & 1 ? take(&b) % 8 : take_wide(&b);
            parts[0].from = take(&b) & 1 ? take(&b) % 8 : take_wide(&b);
        }
        wn_file_load(1 + (take(&b) & 1), parts);
    }
    int32_t is_kept = 0, lock = wn_lock(take(&b) < 200 ? other : "/none/at/all", &is_kept);
    wn_file_check(other, take(&b) & 1);
    wn_json_cost((const char *)data, (int64_t)size);
    wn_debug("fail_write", size % 8 == 7 ? 1 + (int64_t)size % 5 : 0);
    int32_t out = wn_file_create(take(&b) < 240 ? other : "");
    wn_file_write(out, room, take(&b));
    wn_file_save(out, value);
    wn_file_save(out, cell);
    wn_file_write(out, room, take_wide(&b) > 0 ? 5 : -5);
    if (size % 3 != 0) wn_file_commit(out);
    wn_debug("fail_write", 0);
    wn_free(lock);
    int32_t ids[] = {file, value, cell, out, lock};
    wn_free(out);
    wn_free(take_int(&b));
    for (int32_t i = 0; i < 5; i++) wn_release(ids[i]);
    unlink(other);
    return 0;
}
