/* Files: see file.h. Every call of the system is looked at; a failure says which file, at which byte, and what the
 * system said. */
#include "file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../base/alloc.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the bytes of a tensor go to a file as they are");

int64_t wn__file_fails_in;
int32_t wn__file_unnamed_on = 1;

static int32_t must_fail(void)
{
    if (wn__file_fails_in == 0 || --wn__file_fails_in > 0) return 0;
    errno = ENOSPC;
    return 1;
}

static int32_t file_fail(const struct wn__file *f, const char *what)
{
    return wn__fail(WN_IO, "%s '%s': %s", what, f->path, strerror(errno));
}

static struct wn__file *file_new(const char *path)
{
    struct wn__file *f = wn__alloc(sizeof *f);
    if (f == NULL) return NULL;
    f->fd = f->folder = -1;
    snprintf(f->path, sizeof f->path, "%s", path);
    return f;
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

/* The file behind links, and what stands there now; `mode` is that of the file to be replaced. */
static int32_t find_target(struct wn__file *f, mode_t *mode)
{
    char real[PATH_MAX];
    struct stat st;
    *mode = 0666;
    if (realpath(f->path, real) != NULL) memcpy(f->path, real, strlen(real) + 1);
    if (stat(f->path, &st) != 0) return WN_OK;
    if (!S_ISREG(st.st_mode))
        return wn__fail(WN_IO, "writing '%s': it is not a regular file; give the name of a file", f->path);
    *mode = st.st_mode & 07777;
    return WN_OK;
}

/* Splits the path and opens its folder, so that all that follows happens in one place, whatever is renamed above it. */
static int32_t open_folder(struct wn__file *f)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(f->path, '/'), *base = slash == NULL ? f->path : slash + 1;
    if (base[0] == 0) return wn__fail(WN_IO, "writing '%s': a file's name is missing", f->path);
    size_t letters = strlen(base);
    if (letters > NAME_MAX) return wn__fail(WN_IO, "writing '%s': the name is too long", f->path);
    memcpy(f->base, base, letters + 1);
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - f->path + 1),
             slash == NULL ? "." : f->path);
    f->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return f->folder < 0 ? file_fail(f, "writing") : WN_OK;
}

static int32_t open_temporary(struct wn__file *f, mode_t mode)
{
    static int64_t serial;
    snprintf(f->temporary, sizeof f->temporary, ".wane-%ld-%lld.tmp", (long)getpid(), (long long)++serial);
    if (wn__file_unnamed_on) f->fd = openat(f->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (f->fd < 0 && !must_fail()) {
        unlinkat(f->folder, f->temporary, 0); /* left by a process of the same number */
        f->fd = openat(f->folder, f->temporary, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        f->has_name = f->fd >= 0;
    }
    if (f->fd < 0) return file_fail(f, "writing");
    if (mode != 0666) fchmod(f->fd, mode); /* what a file system without modes refuses is no loss */
    return WN_OK;
}

int32_t wn__file_create(const char *path, struct wn__file **out)
{
    mode_t mode;
    if (strlen(path) >= PATH_MAX) return wn__fail(WN_IO, "writing: the path of %zu bytes is too long", strlen(path));
    struct wn__file *f = file_new(path);
    if (f == NULL) return WN_OOM;
    int32_t code = find_target(f, &mode);
    f->is_written = 1;
    if (code == WN_OK) code = open_folder(f);
    if (code == WN_OK) code = open_temporary(f, mode);
    if (code == WN_OK) *out = f;
    else wn__file_free(f);
    return code;
}

int32_t wn__file_write(struct wn__file *f, const void *bytes, int64_t n)
{
    if (f->fd < 0 || !f->is_written) return wn__fail(WN_IO, "writing '%s': the file is closed", f->path);
    for (int64_t done = 0; done < n;) {
        ssize_t got = must_fail() ? -1 : write(f->fd, (const char *)bytes + done, (size_t)(n - done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return wn__fail(WN_IO, "writing '%s': %s at byte %lld; the file is as it was before", f->path,
                            strerror(errno), (long long)f->size);
        done += got;
        f->size += got;
    }
    return WN_OK;
}

/* Gives the file a name beside the old one: the system can rename over a file, but not link over one. */
static int32_t name_temporary(struct wn__file *f)
{
    char self[64];
    if (f->has_name) return WN_OK;
    snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
    unlinkat(f->folder, f->temporary, 0);
    if (must_fail() || linkat(AT_FDCWD, self, f->folder, f->temporary, AT_SYMLINK_FOLLOW) != 0)
        return file_fail(f, "writing");
    f->has_name = 1;
    return WN_OK;
}

int32_t wn__file_commit(struct wn__file *f)
{
    int32_t code = WN_OK;
    if (f->fd < 0 || !f->is_written) return wn__fail(WN_IO, "writing '%s': the file is closed", f->path);
    if (must_fail() || fsync(f->fd) != 0) code = file_fail(f, "writing");
    if (code == WN_OK) code = name_temporary(f);
    if (code == WN_OK && (must_fail() || renameat(f->folder, f->temporary, f->folder, f->base) != 0))
        code = file_fail(f, "writing");
    if (code == WN_OK) {
        f->has_name = 0;
        /* Some file systems cannot sync a folder and say EINVAL. */
        if (must_fail() || (fsync(f->folder) != 0 && errno != EINVAL)) {
            file_fail(f, "syncing the folder of");
            code = wn__fail_more(WN_IO, "written, but a crash of the system may undo it: ");
        }
    }
    wn__file_shut(f);
    return code;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

int32_t wn__file_open(const char *path, struct wn__file **out)
{
    struct stat st;
    int32_t code = WN_OK;
    if (strlen(path) >= PATH_MAX) return wn__fail(WN_IO, "reading: the path of %zu bytes is too long", strlen(path));
    struct wn__file *f = file_new(path);
    if (f == NULL) return WN_OOM;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 || fstat(f->fd, &st) != 0) code = file_fail(f, "reading");
    else if (!S_ISREG(st.st_mode)) code = wn__fail(WN_IO, "reading '%s': it is not a regular file", f->path);
    if (code != WN_OK) {
        wn__file_free(f);
        return code;
    }
    f->size = st.st_size;
    *out = f;
    return WN_OK;
}

int32_t wn__file_read(const struct wn__file *f, int64_t at, void *bytes, int64_t n)
{
    if (f->fd < 0 || f->is_written) return wn__fail(WN_IO, "reading '%s': the file is closed", f->path);
    for (int64_t done = 0; done < n;) {
        ssize_t got = pread(f->fd, (char *)bytes + done, (size_t)(n - done), at + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return wn__fail(WN_IO, "reading '%s': %s at byte %lld", f->path, strerror(errno), (long long)(at + done));
        if (got == 0)
            return wn__fail(WN_IO, "reading '%s': it ends at byte %lld, where %lld more were expected", f->path,
                            (long long)(at + done), (long long)(n - done));
        done += got;
    }
    return WN_OK;
}

/* ---- closing ------------------------------------------------------------------------------------------------ */

void wn__file_shut(struct wn__file *f)
{
    if (f->has_name) unlinkat(f->folder, f->temporary, 0);
    f->has_name = 0;
    if (f->fd >= 0) close(f->fd);
    if (f->folder >= 0) close(f->folder);
    f->fd = f->folder = -1;
}

void wn__file_free(void *file)
{
    wn__file_shut(file);
    wn__free(file);
}
