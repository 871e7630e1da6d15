/* Libraries that are opened while a process runs: those with CUDA's functions and with MPI's. */
#ifndef WN_BASE_LIBRARY_H
#define WN_BASE_LIBRARY_H
#include <stdint.h>

/* Names a library, says where it is looked for, and holds what was found. */
struct wn__library {
    const char *file;     /* "libwane_cuda.so" */
    const char *variable; /* "WANE_CUDA_LIB": names a file or a folder, or is "off" */
    const char *made_by;  /* "make cuda" */
    char path[512];       /* of the file that was opened */
    char text[1024];      /* why there is none, in one line */
};

/* Notes in l->path the file that its variable names; without it the one beside libwane.so, or the bare name, which the
 * loader looks for on its path. Returns 0 where there is no file, as far as can be said without the loader. */
int32_t wn__library_find(struct wn__library *l);
/* Opens the library where its variable says; without it beside libwane.so, then on the loader's path. NULL: there is
 * none, and l->text says why. */
void *wn__library_open(struct wn__library *l);
/* Copies the address of a symbol to *function, a pointer to a function; NULL: there is none of that name. */
void wn__library_symbol(void *library, const char *name, void *function);
#endif
