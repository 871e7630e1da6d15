/* The right to write a file, for one process at a time: an flock on PATH.lock beside it, which says who holds it.
 *
 * The system gives the lock back when the process ends, however it ends, and a program it starts does not inherit it;
 * so a lock file that is left by a kill means nothing, and the next holder takes it over. The lock is that of the file
 * behind links. NFS passes flock on to its server; a file system without locks is told apart (is_kept). */
#ifndef WN_IO_LOCK_H
#define WN_IO_LOCK_H
#include <limits.h>
#include <stdint.h>
#include "../base/status.h"

struct wn__lock {
    int32_t fd;      /* -1: given back, or never kept */
    int32_t is_kept; /* 0: the file system has no locks, nothing is locked */
    char path[PATH_MAX];
};

/* WN_IO with who holds it and since when, when another does. */
int32_t wn__lock_take(const char *file, struct wn__lock **out);
void wn__lock_release(struct wn__lock *k); /* removes the lock file, too. Harmless twice */
void wn__lock_free(void *lock);            /* releases, too */

extern int32_t wn__lock_denied; /* for specs: file systems have no locks */
#endif
