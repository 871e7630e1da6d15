/* See processor.h. The name is the one of /proc/cpuinfo, or on aarch64, which has none there, its implementer and part.
 * Caches are those that Linux lists for the first processor: a virtual machine's cpuid may count the third level of a
 * whole socket. */
#include "processor.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- the name ------------------------------------------------------------------------------------ */

/* The fields of /proc/cpuinfo that a name is made of, in the order of the name, and what is put before each. */
static const struct {
    const char *field, *before;
} fields[] = {{"model name", ""},    {"CPU implementer", "aarch64 "},
              {"CPU part", "/"},     {"CPU variant", "/"},
              {"CPU revision", "/"}, {"cpu family", " "},
              {"model", "/"},        {"stepping", "/"}};
enum { FIELDS = sizeof fields / sizeof fields[0] };

/* Finds the value of a line "field : value", and cuts it at its end. Returns NULL for the line of another field. */
static char *value_of(char *line, const char *field)
{
    size_t n = strlen(field);
    if (strncmp(line, field, n) != 0) return NULL;
    char *at = line + n + strspn(line + n, " \t");
    if (*at != ':') return NULL;
    at += 1 + strspn(at + 1, " \t");
    at[strcspn(at, "\n")] = 0;
    return at;
}

/* Makes the name from the lines of the first processor, which end at an empty one. */
static void read_name(char *name, size_t size)
{
    char line[512], value[FIELDS][64] = {{0}};
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL && line[0] != '\n')
        for (int32_t i = 0; i < FIELDS; i++) {
            const char *found = value_of(line, fields[i].field);
            if (found != NULL) snprintf(value[i], sizeof value[i], "%.63s", found);
        }
    if (f != NULL) fclose(f);
    size_t n = 0;
    name[0] = 0;
    for (int32_t i = 0; i < FIELDS; i++)
        if (value[i][0] != 0 && n < size) n += (size_t)snprintf(name + n, size - n, "%s%s", fields[i].before, value[i]);
    if (n == 0) snprintf(name, size, "unknown");
}

/* ---- caches -------------------------------------------------------------------------------------- */

/* Reads the first word of a file of cache number `index`; returns 0 where there is none. */
static int32_t read_word(int32_t index, const char *file, char word[32])
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, file);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    int32_t is_read = fscanf(f, "%31s", word) == 1;
    fclose(f);
    return is_read;
}

static void read_caches(int64_t cache[3])
{
    char type[32], text[32];
    for (int32_t i = 0; i < 8 && read_word(i, "type", type); i++) {
        int32_t level = 0;
        long long size = 0;
        char unit = 0;
        if (strcmp(type, "Instruction") == 0 || !read_word(i, "level", text)) continue;
        if (sscanf(text, "%d", &level) != 1 || level < 1 || level > 3 || !read_word(i, "size", text)) continue;
        if (sscanf(text, "%lld%c", &size, &unit) < 1 || size < 0 || size > 1 << 30) continue;
        cache[level - 1] = (int64_t)size << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
    }
}

/* ---- the processor ------------------------------------------------------------------------------- */

const struct wn__processor *wn__processor(void)
{
    static struct wn__processor here;
    if (here.name[0] == 0) {
        read_caches(here.cache);
        read_name(here.name, sizeof here.name);
    }
    return &here;
}

const char *wn__processor_text(void)
{
    static char line[192];
    const struct wn__processor *p = wn__processor();
    size_t n = (size_t)snprintf(line, sizeof line, "%s", p->name);
    for (int32_t i = 0; i < 3 && p->cache[i] > 0; i++) {
        int64_t kib = p->cache[i] >> 10;
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%lld %s", i == 0 ? ", caches " : ", ",
                              (long long)(kib % 1024 == 0 ? kib >> 10 : kib), kib % 1024 == 0 ? "MiB" : "KiB");
    }
    return line;
}
