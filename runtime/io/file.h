/* Files that are written whole or not at all.
 *
 * Invariant: a file that is written has no name until it is complete and on disk; then it takes the place of the
 * old file by one rename. Whatever goes wrong before (a full disk, a kill, a loss of power) leaves the old file
 * whole, and nothing beside it where the file system has files without a name. Elsewhere there is a file
 * ".wane-PID-N.tmp", which a failure removes; after a kill, the next file that is written to the folder removes it.
 *
 * Only regular files are read and written: reading a pipe would wait, a device may do anything. Bytes pass through
 * a small block of the caller's, so nothing here holds a tensor. Every function that fails does so with WN_IO, or
 * WN_OOM. */
#ifndef WN_IO_FILE_H
#define WN_IO_FILE_H
#include <limits.h>
#include <stdint.h>
#include "../base/status.h"

/* An open file. */
struct wn__file {
    int32_t fd;         /* -1: closed */
    int32_t folder;     /* descriptor of its folder, of a file that is written; -1: closed */
    int32_t is_written; /* 1: it is written; 0: it is read */
    int32_t has_name;   /* 1: the temporary has a name in the folder */
    int64_t size;       /* bytes written so far, or bytes of the file */
    char path[PATH_MAX];
    char base[NAME_MAX + 1]; /* name in the folder, of a file that is written */
    char temporary[64];      /* name of the temporary */
};

/* Fails when a path names something else than a regular file; a path that names nothing passes. `what` opens the
 * message. */
int32_t wn__file_check(const char *path, const char *what);

/* Opens a file of Wane's own in a folder (a descriptor, AT_FDCWD), with the flags of open(2). A name that is a link is
 * never followed, and one that is no regular file is not opened. Returns the descriptor, or -1 and errno: ELOOP is a
 * link, EEXIST a name that is taken by something else. */
int32_t wn__file_own(int32_t folder, const char *name, int32_t flags);

/* Returns whether a file that is open, and no link, has this name in a folder still. */
int32_t wn__file_is_named(int32_t fd, int32_t folder, const char *name);

/* Begins to write a file. */
int32_t wn__file_create(const char *path, struct wn__file **out);
/* Appends n bytes. */
int32_t wn__file_write(struct wn__file *f, const void *bytes, int64_t n);
/* Puts the bytes on disk and the file in its place, and closes it, after a failure too. */
int32_t wn__file_commit(struct wn__file *f);

/* Opens a file to read. */
int32_t wn__file_open(const char *path, struct wn__file **out);
/* Reads n bytes from byte `at`. */
int32_t wn__file_read(const struct wn__file *f, int64_t at, void *bytes, int64_t n);

/* Closes a file and drops what was not committed. A second call does nothing. */
void wn__file_shut(struct wn__file *f);
/* Closes a file and frees it. */
void wn__file_free(void *file);

/* Switches for specs. */
extern int64_t wn__file_fails_in;   /* the nth system call that writes fails as on a full disk; 0: none does */
extern int32_t wn__file_unnamed_on; /* 0: temporaries have names, as on file systems without unnamed files */
#endif
