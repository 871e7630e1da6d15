/* CUDA as a device: finds and opens libwane_cuda.so, which fills the device's slots (cuda_library.h).
 *
 * The library is looked for where WANE_CUDA_LIB says, a file or a folder; without it beside libwane.so, then on the
 * loader's path. WANE_CUDA_LIB=off looks nowhere. Where there is no library, no driver or no GPU, the device is absent,
 * and one line says why. */
#include <stdio.h>
#include "../base/alloc.h"
#include "../base/library.h"
#include "cuda.h"
#include "cuda_library.h"
#include "registry.h"

static struct wn__library library = {.file = "libwane_cuda.so",
                                     .variable = "WANE_CUDA_LIB",
                                     .made_by = "make cuda",
                                     .text = "the library has not started"};

const char *wn__cuda_text(void)
{
    return library.text;
}

static int32_t fail(int32_t code, const char *message)
{
    return wn__fail(code, "%s", message);
}

/* ---- the device ----------------------------------------------------------------------------------------------- */

static void look_for_cuda(struct wn_device *d)
{
    static const struct wn_cuda_host host = {.tree = WN_CUDA_TREE,
                                             .size = WN_CUDA_SIZES,
                                             .fail = fail,
                                             .message = wn__message,
                                             .alloc = wn__alloc,
                                             .free = wn__free};
    char found[700] = "";
    d->absent = library.text;
    void *opened = wn__library_open(&library);
    if (opened == NULL) return;
    wn_cuda_open_fn open_device;
    wn__library_symbol(opened, "wn_cuda_open", &open_device);
    if (open_device == NULL) {
        snprintf(library.text, sizeof library.text, "%.300s is not a library of Wane's: it has no wn_cuda_open",
                 library.path);
        return;
    }
    if (open_device(&host, d, found, sizeof found)) d->absent = NULL;
    snprintf(library.text, sizeof library.text, "%s (%.300s)", found, library.path);
}

struct wn_device wn__device_cuda = {
    .name = "cuda", .backend = &wn__backend_cuda, .absent = library.text, .open = look_for_cuda};
