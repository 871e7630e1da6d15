/* CUDA as a device: finds and opens libwane_cuda.so, which fills the device's slots (cuda_library.h).
 *
 * The library is looked for where WANE_CUDA_LIB says, a file or a folder; without it beside libwane.so, then on the
 * loader's path. WANE_CUDA_LIB=off looks nowhere. Where there is no library, no driver or no GPU, the device is absent,
 * and one line says why. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../base/alloc.h"
#include "cuda.h"
#include "cuda_library.h"
#include "registry.h"

#define FILE_NAME "libwane_cuda.so"

static char text[1024] = "the library has not started";

const char *wn__cuda_text(void)
{
    return text;
}

static int32_t fail(int32_t code, const char *message)
{
    return wn__fail(code, "%s", message);
}

/* ---- finding the library ------------------------------------------------------------------------------------ */

static int32_t is_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* Writes the file that WANE_CUDA_LIB names to path: (room) bytes. Returns 0 where there is none, and says so. */
static int32_t find_named(const char *named, char *path, size_t room)
{
    struct stat s;
    int32_t is_folder = stat(named, &s) == 0 && S_ISDIR(s.st_mode);
    const char *slash = is_folder || strchr(named, '/') != NULL ? "" : "./"; /* a bare name is a file here */
    snprintf(path, room, is_folder ? "%s%s/" FILE_NAME : "%s%s", slash, named);
    if (is_file(path)) return 1;
    snprintf(text, sizeof text, "WANE_CUDA_LIB=%.200s: there is no file %.300s; make cuda builds it", named, path);
    return 0;
}

/* Writes the file beside libwane.so to path, or the bare name, which the loader looks for on its path. */
static void find_beside(char *path, size_t room)
{
    static const char here;
    Dl_info info;
    snprintf(path, room, FILE_NAME);
    if (dladdr(&here, &info) == 0 || info.dli_fname == NULL) return;
    const char *end = strrchr(info.dli_fname, '/');
    char beside[512];
    snprintf(beside, sizeof beside, "%.*s" FILE_NAME, end == NULL ? 0 : (int)(end + 1 - info.dli_fname),
             info.dli_fname);
    if (end != NULL && is_file(beside)) snprintf(path, room, "%s", beside);
}

/* Opens the library. Returns NULL where there is none, and says why. */
static void *open_library(char *path, size_t room)
{
    const char *named = getenv("WANE_CUDA_LIB");
    int32_t is_named = named != NULL && named[0] != 0;
    if (is_named && strcmp(named, "off") == 0) {
        snprintf(text, sizeof text, "off (WANE_CUDA_LIB=off)");
        return NULL;
    }
    if (!is_named) find_beside(path, room);
    else if (!find_named(named, path, room)) return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL) return library;
    const char *why = dlerror();
    if (!is_named && strchr(path, '/') == NULL)
        snprintf(text, sizeof text, "no " FILE_NAME " beside libwane.so or on the loader's path; make cuda builds it");
    else snprintf(text, sizeof text, "%.300s cannot be opened: %.500s", path, why == NULL ? "no reason given" : why);
    return NULL;
}

/* ---- the device ----------------------------------------------------------------------------------------------- */

static void look_for_cuda(struct wn_device *d)
{
    static const struct wn_cuda_host host = {
        .tree = WN_CUDA_TREE, .size = WN_CUDA_SIZES, .fail = fail, .alloc = wn__alloc, .free = wn__free};
    char path[512], found[700] = "";
    d->absent = text;
    void *library = open_library(path, sizeof path);
    if (library == NULL) return;
    wn_cuda_open_fn open_device;
    void *symbol = dlsym(library, "wn_cuda_open");
    memcpy(&open_device, &symbol, sizeof open_device);
    if (open_device == NULL) {
        snprintf(text, sizeof text, "%.300s is not a library of Wane's: it has no wn_cuda_open", path);
        return;
    }
    if (open_device(&host, d, found, sizeof found)) d->absent = NULL;
    snprintf(text, sizeof text, "%s (%.300s)", found, path);
}

struct wn_device wn__device_cuda = {
    .name = "cuda", .backend = &wn__backend_cuda, .absent = text, .open = look_for_cuda};
