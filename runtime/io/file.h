/* Files, written whole or not at all, and read with every byte accounted for.
 *
 * What is written has no name until it is complete and on disk: it takes the place of the old file by one rename. So
 * whatever goes wrong before - a full disk, a kill, the power - leaves the old file whole; and nothing beside it, where
 * the file system has files without a name (else a file ".wane-PID-N.tmp", which a failure removes, and after a kill the
 * next file that is written to the folder).
 * Only regular files are read and written: a pipe would be waited for, a device may do anything.
 * Bytes come through a small block of the caller's: nothing here holds a tensor. */
#ifndef WN_IO_FILE_H
#define WN_IO_FILE_H
#include <limits.h>
#include <stdint.h>
#include "../base/status.h"

struct wn__file {
    int32_t fd, folder; /* -1: closed */
    int32_t is_written; /* else it is read */
    int32_t has_name;   /* the temporary stands in the folder */
    int64_t size;       /* bytes so far, or of the file */
    char path[PATH_MAX], base[NAME_MAX + 1], temporary[64];
};

/* WN_IO when something else than a regular file has this name; WN_OK too when nothing has. `what` opens the message. */
int32_t wn__file_check(const char *path, const char *what);

int32_t wn__file_create(const char *path, struct wn__file **out);
int32_t wn__file_write(struct wn__file *f, const void *bytes, int64_t n);
int32_t wn__file_commit(struct wn__file *f); /* on disk, and in its place; closes */

int32_t wn__file_open(const char *path, struct wn__file **out);
int32_t wn__file_read(const struct wn__file *f, int64_t at, void *bytes, int64_t n);

void wn__file_shut(struct wn__file *f); /* closes; gives up what was not committed. Harmless twice */
void wn__file_free(void *file);         /* shuts, too */

/* For specs: the nth call of the system that writes fails as a full disk would; files with a name only. */
extern int64_t wn__file_fails_in;
extern int32_t wn__file_unnamed_on;
#endif
