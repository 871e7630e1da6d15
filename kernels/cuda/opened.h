/* Libraries of NVIDIA that are opened at run time and called through own declarations: cublaslt.cu, cudnn.cu and
 * the device's nccl.cu find them by this. */
#ifndef WN_CUDA_OPENED_H
#define WN_CUDA_OPENED_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function of a library, and where its address goes. */
struct wn__opened_function {
    const char *name;
    void **at;
};

/* A library, where it is looked for, and what was found. */
struct wn__opened {
    const char *name;
    const char *variable;                 /* of the environment: auto, off, or a path */
    const char *unset;                    /* what the variable is where it is not set */
    const char *usual[4];                 /* files that auto tries */
    const char *instead;                  /* what is done without the library */
    int oldest, oldest_minor;             /* version that is known */
    void *(*simulated)(const char *name); /* returns a function by its name; NULL on a real GPU */
    size_t (*version)(void);              /* major f + minor 100 + patch; f: 1000 of versions below 10000, else 10000 */
    const struct wn__opened_function *functions; /* (n) */
    size_t n;
    char text[256]; /* the version, or why there is none */
};

/* Takes the functions of a library from a file, or the simulated ones from "simulated". Returns whether it is usable;
 * o->text becomes its version, or what is wrong with it, where there is such a file. */
static inline int32_t wn__opened_take(struct wn__opened *o, const char *file)
{
    const int32_t is_simulated = o->simulated != NULL && strcmp(file, "simulated") == 0;
    void *library = is_simulated ? NULL : dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && !is_simulated) return 0;
    for (size_t i = 0; i < o->n; i++) {
        const struct wn__opened_function *f = &o->functions[i];
        *f->at = is_simulated ? o->simulated(f->name) : dlsym(library, f->name);
        if (*f->at != NULL) continue;
        snprintf(o->text, sizeof o->text, "no %s: %.100s is there and lacks %s: %s", o->name, file, f->name,
                 o->instead);
        return 0;
    }
    const size_t v = o->version(), scale = v >= 10000 ? 10000 : 1000;
    const int major = (int)(v / scale), minor = (int)(v % scale / 100);
    const int32_t is_known = major > o->oldest || (major == o->oldest && minor >= o->oldest_minor);
    if (is_known) snprintf(o->text, sizeof o->text, "%s %d.%d.%d", o->name, major, minor, (int)(v % 100));
    else
        snprintf(o->text, sizeof o->text, "no %s: %.100s is too old (version %lld; %d.%d or later is known): %s",
                 o->name, file, (long long)v, o->oldest, o->oldest_minor, o->instead);
    return is_known;
}

/* Looks for the library. Returns whether it is usable. */
static inline int32_t wn__opened_find(struct wn__opened *o)
{
    const char *set = getenv(o->variable), *file = set != NULL && set[0] != 0 ? set : o->unset;
    const int32_t is_auto = strcmp(file, "auto") == 0, is_off = strcmp(file, "off") == 0;
    o->text[0] = 0;
    for (int i = 0; is_auto && i < 4 && o->usual[i] != NULL; i++)
        if (wn__opened_take(o, o->usual[i])) return 1;
    if (!is_auto && !is_off && wn__opened_take(o, file)) return 1;
    if (o->text[0] != 0) return 0;
    if (is_off)
        snprintf(o->text, sizeof o->text, "no %s (%s=%s)", o->name, o->variable,
                 file == set ? "off" : "auto asks for it");
    else if (is_auto) snprintf(o->text, sizeof o->text, "no %s (%s or older): %s", o->name, o->usual[0], o->instead);
    else
        snprintf(o->text, sizeof o->text, "no %s: %s=%.100s cannot be opened (off, auto or a path): %s", o->name,
                 o->variable, file, o->instead);
    return 0;
}
#endif
