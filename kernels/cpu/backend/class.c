/* The classes of this library, and the choice among them (class.h). WN_CPU_CLASSES comes from the Makefile: CLASS(name)
 * for each class that was compiled, slowest first. */
#include "class.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define CLASS(name) extern const struct wn__cpu_class wn__cpu_class_##name;
WN_CPU_CLASSES
#undef CLASS

#define CLASS(name) &wn__cpu_class_##name,
static const struct wn__cpu_class *const classes[] = {WN_CPU_CLASSES};
#undef CLASS
enum { COUNT = sizeof classes / sizeof classes[0] };

/* Returns whether this processor runs a class. */
static int32_t is_here(const char *name)
{
#if defined(__x86_64__)
    if (strcmp(name, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(name, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    (void)name;
    return 1;
}

int32_t wn__cpu_has_avx512_bf16(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return 0;
#endif
}

static const struct wn__cpu_class *fastest(void)
{
    int32_t i = COUNT - 1;
    while (i > 0 && !is_here(classes[i]->name)) i--;
    return classes[i];
}

static _Atomic(const struct wn__cpu_class *) chosen;
static int32_t is_named; /* 1: by WANE_KERNELS */

const struct wn__cpu_class *wn__cpu_class(void)
{
    const struct wn__cpu_class *c = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (c == NULL) atomic_store(&chosen, c = fastest());
    return c;
}

const char *wn__cpu_class_text(void)
{
    static char line[128];
    snprintf(line, sizeof line, "%s (%s)%s", wn__cpu_class()->name, wn__cpu_class()->text(),
             is_named ? ", as WANE_KERNELS says" : "");
    return line;
}

/* Returns the names of the classes that this processor runs, "plain, avx2". */
static const char *names_here(void)
{
    static char line[64];
    size_t n = 0;
    for (int32_t i = 0; i < COUNT; i++)
        if (is_here(classes[i]->name))
            n += (size_t)snprintf(line + n, sizeof line - n, "%s%s", n > 0 ? ", " : "", classes[i]->name);
    return line;
}

/* Returns whether a class of any target has this name. */
static int32_t is_known(const char *name)
{
    static const char *const all[] = {"plain", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(name, all[i]) == 0) return 1;
    return 0;
}

const char *wn__cpu_class_start(const char *named)
{
    static char why[192];
    atomic_store(&chosen, fastest());
    if (named == NULL || named[0] == 0 || strcmp(named, "auto") == 0) return NULL;
    for (int32_t i = 0; i < COUNT; i++)
        if (strcmp(named, classes[i]->name) == 0 && is_here(named)) {
            atomic_store(&chosen, classes[i]);
            is_named = 1;
            return NULL;
        }
    if (is_known(named))
        snprintf(why, sizeof why, "WANE_KERNELS=%s: this processor lacks that class (it has %s); %s is used", named,
                 names_here(), wn__cpu_class()->name);
    else
        snprintf(why, sizeof why, "WANE_KERNELS=%.32s makes no sense (auto, %s); %s is used", named, names_here(),
                 wn__cpu_class()->name);
    return why;
}
