/* The doors to MPI that are here: libraries of runtime/link/mpi/, one for each kind, which `make mpi` builds. */
#ifndef WN_LINK_MPI_H
#define WN_LINK_MPI_H
#include "mpi/door.h"

/* Returns the kinds whose libraries are here, "openmpi, mpich", or how to have one. Nothing is opened. */
const char *wn__mpi_kinds(void);
/* Opens the library of a kind, "openmpi" or "mpich", and returns its door; NULL: there is none, and the message of
 * WN_IO is set. */
const struct wn_mpi_door *wn__mpi_open(const char *kind);
#endif
