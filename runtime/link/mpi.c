/* Finds and opens the doors to MPI: mpi.h. WANE_MPI_LIB names one of them, whatever the launcher's kind; a door that
 * MPI cannot use is found out when the job is joined. */
#include "mpi.h"
#include <stdio.h>
#include <string.h>
#include "../base/library.h"
#include "../base/status.h"

/* Names the library of a kind. */
static struct wn__library *library_of(const char *kind)
{
    static struct wn__library library = {.variable = "WANE_MPI_LIB", .made_by = "make mpi"};
    static char file[64];
    snprintf(file, sizeof file, "libwane_mpi-%.40s.so", kind);
    library.file = file;
    return &library;
}

const char *wn__mpi_kinds(void)
{
    static const char *const kinds[] = {"openmpi", "mpich"};
    static char text[64];
    text[0] = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t n = strlen(text);
        if (wn__library_find(library_of(kinds[i])))
            snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? ", " : "", kinds[i]);
    }
    return text[0] != 0 ? text : "none; make mpi builds a door to each one whose mpicc is here";
}

const struct wn_mpi_door *wn__mpi_open(const char *kind)
{
    struct wn__library *library = library_of(kind);
    wn_mpi_door_fn open_door;
    void *opened = wn__library_open(library);
    if (opened == NULL) {
        wn__fail(WN_IO, "%s", library->text);
        return NULL;
    }
    wn__library_symbol(opened, "wn_mpi_door", &open_door);
    const struct wn_mpi_door *door = open_door == NULL ? NULL : open_door();
    if (door != NULL && door->version == WN_MPI_DOOR) return door;
    wn__fail(WN_IO, "%.400s is no library of these sources; make mpi builds it", library->path);
    return NULL;
}
