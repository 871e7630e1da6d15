/* Writes and reads files as file.h says. The outcome of every system call is checked; a failure names the file, the
 * byte and the error of the system. */
#include "file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../base/alloc.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the bytes of a tensor go to a file as they are");

int64_t wn__file_fails_in;
int32_t wn__file_unnamed_on = 1;

/* Counts one system call that writes; returns 1, and sets errno, when specs make it fail. */
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

static int32_t file_new(const char *path, const char *what, struct wn__file **out)
{
    if (strlen(path) >= PATH_MAX) return wn__fail(WN_IO, "%s: the path of %zu bytes is too long", what, strlen(path));
    struct wn__file *f = *out = wn__alloc(sizeof *f);
    if (f == NULL) return WN_OOM;
    f->fd = f->folder = -1;
    snprintf(f->path, sizeof f->path, "%s", path);
    return WN_OK;
}

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a pipe (FIFO)";
    case S_IFSOCK: return "a socket";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    default: return "of another kind";
    }
}

static int32_t refuse_kind(const char *what, const char *path, mode_t mode)
{
    return wn__fail(WN_IO, "%s '%s': it is %s, not a regular file; give the name of a file", what, path, kind_of(mode));
}

int32_t wn__file_own(int32_t folder, const char *name, int32_t flags)
{
    struct stat st;
    int32_t fd = openat(folder, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))) return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

int32_t wn__file_check(const char *path, const char *what)
{
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return WN_OK;
    return refuse_kind(what, path, st.st_mode);
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

/* Replaces the path by the target of its last link, until it is no link. For links whose target does not exist, which
 * realpath does not resolve. */
static int32_t follow_links(struct wn__file *f)
{
    char target[PATH_MAX];
    for (int32_t hop = 0; hop < 40; hop++) {
        ssize_t n = readlink(f->path, target, sizeof target - 1);
        if (n < 0) return WN_OK;
        target[n] = 0;
        char *slash = strrchr(f->path, '/');
        size_t folder = target[0] == '/' || slash == NULL ? 0 : (size_t)(slash - f->path) + 1;
        if (folder + (size_t)n >= sizeof f->path) {
            errno = ENAMETOOLONG;
            return file_fail(f, "writing");
        }
        memcpy(f->path + folder, target, (size_t)n + 1);
    }
    errno = ELOOP;
    return file_fail(f, "writing");
}

/* Replaces the path by the file behind links. Fills *mode with the mode of the file to replace; 0666 when there is
 * none. */
static int32_t find_target(struct wn__file *f, mode_t *mode)
{
    char real[PATH_MAX];
    struct stat st;
    *mode = 0666;
    if (realpath(f->path, real) != NULL) memcpy(f->path, real, strlen(real) + 1);
    else WN_TRY(follow_links(f));
    if (stat(f->path, &st) != 0) return WN_OK;
    if (!S_ISREG(st.st_mode)) return refuse_kind("writing", f->path, st.st_mode);
    if (access(f->path, W_OK) != 0) return file_fail(f, "writing"); /* a rename would not ask */
    *mode = st.st_mode & 07777;
    return WN_OK;
}

/* Splits the path and opens its folder, so that all that follows happens in that folder, whatever is renamed above
 * it. */
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

int32_t wn__file_is_named(int32_t fd, int32_t folder, const char *name)
{
    struct stat own, named;
    return fstat(fd, &own) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

/* Removes a temporary whose writer ended before it was done. A writer holds a lock on its file until it ends, so a file
 * whose lock can be taken has no writer. Where the file system has no locks the file stays. */
static void remove_leftover(int32_t folder, const char *name)
{
    int32_t fd = wn__file_own(folder, name, O_RDONLY);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && wn__file_is_named(fd, folder, name)) unlinkat(folder, name, 0);
    close(fd);
}

static int32_t is_temporary(const char *name)
{
    long pid;
    long long serial;
    int32_t end = 0;
    return sscanf(name, ".wane-%ld-%lld.tmp%n", &pid, &serial, &end) == 2 && end > 0 && name[end] == 0;
}

/* Removes every temporary of a folder that has no writer. */
static void remove_leftovers(int32_t folder)
{
    int32_t fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL) {
        if (fd >= 0) close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (is_temporary(entry->d_name)) remove_leftover(folder, entry->d_name);
    closedir(list);
}

/* Opens a temporary with a name of its own and takes its lock. Tries again when another process, which took the
 * file for a leftover, has taken the lock or removed the file before. */
static void open_named(struct wn__file *f)
{
    static int64_t serial;
    for (int32_t round = 0; round < 100 && f->fd < 0; round++) {
        struct stat st;
        snprintf(f->temporary, sizeof f->temporary, ".wane-%ld-%lld.tmp", (long)getpid(), (long long)++serial);
        f->fd = wn__file_own(f->folder, f->temporary, O_CREAT | O_EXCL | O_WRONLY);
        if (f->fd < 0 && errno != EEXIST) return;
        if (f->fd < 0) continue;
        int32_t is_taken = flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (is_taken || (fstat(f->fd, &st) == 0 && st.st_nlink == 0)) {
            close(f->fd);
            f->fd = -1;
        }
    }
    f->has_name = f->fd >= 0;
}

static int32_t open_temporary(struct wn__file *f, mode_t mode)
{
    remove_leftovers(f->folder);
    if (wn__file_unnamed_on) f->fd = openat(f->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (f->fd >= 0)
        flock(f->fd, LOCK_EX | LOCK_NB); /* fails only where there are no locks: nobody else can name the file */
    if (f->fd < 0 && !must_fail()) open_named(f);
    if (f->fd < 0) return file_fail(f, "writing");
    if (mode != 0666) fchmod(f->fd, mode); /* a file system without modes may refuse */
    return WN_OK;
}

int32_t wn__file_create(const char *path, struct wn__file **out)
{
    mode_t mode;
    struct wn__file *f = NULL;
    WN_TRY(file_new(path, "writing", &f));
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

/* Gives the file a name beside the old one, because the system can rename over a file but not link over one. */
static int32_t name_temporary(struct wn__file *f)
{
    static int64_t serial;
    char self[64];
    if (f->has_name) return WN_OK;
    snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
    for (int32_t round = 0; round < 100 && !f->has_name; round++) {
        snprintf(f->temporary, sizeof f->temporary, ".wane-%ld-%lld.tmp", (long)getpid(), (long long)++serial);
        if (must_fail()) break;
        f->has_name = linkat(AT_FDCWD, self, f->folder, f->temporary, AT_SYMLINK_FOLLOW) == 0;
        if (!f->has_name && errno != EEXIST) break;
    }
    return f->has_name ? WN_OK : file_fail(f, "writing");
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
    struct wn__file *f = NULL;
    WN_TRY(file_new(path, "reading", &f));
    /* The kind is checked before the file is opened, because opening a device may do something, and after, because
     * another file may have the name by then. */
    int32_t code = wn__file_check(path, "reading");
    if (code == WN_OK) f->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (code == WN_OK && (f->fd < 0 || fstat(f->fd, &st) != 0)) code = file_fail(f, "reading");
    else if (code == WN_OK && !S_ISREG(st.st_mode)) code = refuse_kind("reading", f->path, st.st_mode);
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
