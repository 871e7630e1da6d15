/* Finds libraries and opens them: library.h. */
#include "library.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int32_t is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* Notes the file that the variable names. Returns 0 where there is none, and says so. */
static int32_t find_named(struct wn__library *l, const char *named)
{
    struct stat s;
    l->path[0] = 0;
    int32_t is_folder = stat(named, &s) == 0 && S_ISDIR(s.st_mode);
    const char *slash = is_folder || strchr(named, '/') != NULL ? "" : "./"; /* a bare name is a file here */
    if (is_folder) snprintf(l->path, sizeof l->path, "%s/%s", named, l->file);
    else snprintf(l->path, sizeof l->path, "%s%s", slash, named);
    if (is_file(l->path)) return 1;
    snprintf(l->text, sizeof l->text, "%s=%.200s: there is no file %.300s; %s builds it", l->variable, named, l->path,
             l->made_by);
    return 0;
}

/* Notes the file beside libwane.so, or the bare name, which the loader looks for on its path. */
static void find_beside(struct wn__library *l)
{
    static const char here;
    Dl_info info;
    snprintf(l->path, sizeof l->path, "%s", l->file);
    if (dladdr(&here, &info) == 0 || info.dli_fname == NULL) return;
    const char *end = strrchr(info.dli_fname, '/');
    char beside[512];
    snprintf(beside, sizeof beside, "%.*s%s", end == NULL ? 0 : (int)(end + 1 - info.dli_fname), info.dli_fname,
             l->file);
    if (end != NULL && is_file(beside)) snprintf(l->path, sizeof l->path, "%s", beside);
}

int32_t wn__library_find(struct wn__library *l)
{
    const char *named = getenv(l->variable);
    int32_t is_named = named != NULL && named[0] != 0;
    if (is_named && strcmp(named, "off") == 0) {
        l->path[0] = 0;
        snprintf(l->text, sizeof l->text, "off (%s=off)", l->variable);
        return 0;
    }
    if (is_named) return find_named(l, named);
    find_beside(l);
    snprintf(l->text, sizeof l->text, "no %s beside libwane.so or on the loader's path; %s builds it", l->file,
             l->made_by);
    return strchr(l->path, '/') != NULL;
}

void *wn__library_open(struct wn__library *l)
{
    int32_t is_found = wn__library_find(l);
    if (!is_found && strcmp(l->path, l->file) != 0) return NULL;
    void *library = dlopen(l->path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && is_found) {
        const char *why = dlerror();
        snprintf(l->text, sizeof l->text, "%.300s cannot be opened: %.500s", l->path,
                 why == NULL ? "no reason given" : why);
    }
    return library;
}

void wn__library_symbol(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}
