/* The right to write a file, for one process at a time: an flock on PATH.lock beside it, in which the holder writes
 * who it is.
 *
 * A lock file is made, or is one that a holder left: empty, or with the line of a holder. A link, and a file with any
 * other text, belongs to somebody else; it is refused and stays as it is.
 *
 * The system releases the lock when the process ends, however it ends, and a program that the process starts does
 * not inherit it. So a lock file that a kill has left behind means nothing, and the next holder takes it over. The
 * lock is that of the file behind links. NFS passes flock on to its server; a file system without locks is told
 * apart (is_kept). */
#ifndef WN_IO_LOCK_H
#define WN_IO_LOCK_H
#include <limits.h>
#include <stdint.h>
#include "../base/status.h"

/* A lock that was taken. */
struct wn__lock {
    int32_t fd;          /* -1: it was never kept */
    int32_t is_kept;     /* 0: the file system has no locks, and nothing is locked */
    char path[PATH_MAX]; /* of the lock file */
};

/* Takes the lock of a file. Fails with WN_IO, naming the holder and since when, when another process has it. */
int32_t wn__lock_take(const char *file, struct wn__lock **out);
/* Removes the lock file, and releases the lock and frees it. */
void wn__lock_free(void *lock);

extern int32_t wn__lock_denied; /* for specs: 1: every file system is one without locks */
#endif
