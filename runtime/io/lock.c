/* Takes and releases the locks of lock.h. Only its holder removes a lock file, while it holds the lock; a process
 * that opened the file before and locks it afterwards finds that it has no name any more, and starts again. */
#include "lock.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "../base/alloc.h"
#include "file.h"

int32_t wn__lock_denied;

/* How often, and with how many nanoseconds between, a lock is tried whose holder has not written who it is: it has
 * just taken the lock, or it is being killed. */
#define TRIES 100
#define PAUSE 10000000

/* Writes PATH.lock to `out`, (PATH_MAX), PATH being the file behind links; of a file that does not exist, the links
 * of its folder are resolved. */
static int32_t find_path(const char *file, char *out)
{
    char real[PATH_MAX], folder[PATH_MAX];
    if (strlen(file) >= PATH_MAX) return wn__fail(WN_IO, "locking: the path of %zu bytes is too long", strlen(file));
    if (realpath(file, real) == NULL) {
        const char *slash = strrchr(file, '/');
        snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - file + 1),
                 slash == NULL ? "." : file);
        if (realpath(folder, real) == NULL) return wn__fail(WN_IO, "locking '%s': %s", file, strerror(errno));
        size_t n = strlen(real);
        const char *name = slash == NULL ? file : slash + 1;
        if (n + strlen(name) + 2 >= sizeof real) return wn__fail(WN_IO, "locking '%s': the path is too long", file);
        snprintf(real + n, sizeof real - n, "%s%s", strcmp(real, "/") == 0 ? "" : "/", name);
    }
    if (strlen(real) + sizeof ".lock" > PATH_MAX) return wn__fail(WN_IO, "locking '%s': the path is too long", file);
    snprintf(out, PATH_MAX, "%.*s.lock", PATH_MAX - 8, real);
    return WN_OK;
}

/* ---- who holds it ------------------------------------------------------------------------------------------------ */

/* The process that holds a lock. */
struct holder {
    long pid;        /* 0: not known */
    long long since; /* seconds of the epoch */
    char host[65];
};

/* Writes who holds the lock into the lock file. */
static void tell_holder(int fd)
{
    struct holder h = {(long)getpid(), (long long)time(NULL), "?"};
    char text[128];
    gethostname(h.host, sizeof h.host - 1);
    int n = snprintf(text, sizeof text, "%ld %lld %s\n", h.pid, h.since, h.host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return; /* on a full disk the holder stays unknown */
}

/* Reads who holds the lock. Returns whether the file is a lock's: it is empty, or has the line of a holder. */
static int32_t read_holder(int fd, struct holder *out)
{
    char text[128], end;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    *out = (struct holder){0};
    if (n <= 0) return n == 0;
    text[n] = 0;
    if (n == sizeof text - 1 || sscanf(text, "%ld %lld %64s%c", &out->pid, &out->since, out->host, &end) != 4) return 0;
    return end == '\n' && strchr(text, '\n') == text + n - 1 && out->pid > 0;
}

/* Returns whether a process may hold the lock: it lives, or it is on another machine. */
static int32_t may_hold(const struct holder *h)
{
    char host[65] = "?";
    gethostname(host, sizeof host - 1);
    return h->pid > 0 && (strcmp(host, h->host) != 0 || kill((pid_t)h->pid, 0) == 0 || errno == EPERM);
}

static int32_t refuse(const char *file, const struct holder *h)
{
    char when[64];
    struct tm local;
    time_t since = (time_t)h->since;
    if (h->pid == 0) return wn__fail(WN_IO, "'%s' is in use: another process holds its lock", file);
    if (localtime_r(&since, &local) == NULL || strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local) == 0)
        snprintf(when, sizeof when, "second %lld", h->since);
    return wn__fail(WN_IO, "'%s' is in use: process %ld%s on %s has written it since %s; wait for it, or end it", file,
                    h->pid, h->pid == (long)getpid() ? " (this one)" : "", h->host, when);
}

/* ---- taking and giving back -------------------------------------------------------------------------------------- */

static int lock_now(int fd)
{
    if (!wn__lock_denied) return flock(fd, LOCK_EX | LOCK_NB);
    errno = ENOLCK;
    return -1;
}

/* How a try ends. */
enum {
    TAKEN,
    HELD,    /* by the process that `read_holder` found */
    MOVED,   /* the holder is not known, or the file lost its name: to be tried again */
    WITHOUT, /* the file system has no locks */
    OTHER,   /* the name is a link, or a file that is no lock */
    FAILED
};

/* Tries to take the lock once. Fills *h where another process is known to hold it. */
static int32_t take_once(struct wn__lock *k, struct holder *h)
{
    k->fd = wn__file_own(AT_FDCWD, k->path, O_RDWR | O_CREAT);
    if (k->fd < 0) return errno == ELOOP || errno == EEXIST || errno == EISDIR ? OTHER : FAILED;
    if (!read_holder(k->fd, h)) return OTHER;
    if (lock_now(k->fd) == 0) {
        if (wn__file_is_named(k->fd, AT_FDCWD, k->path)) return TAKEN;
    } else if (errno == EWOULDBLOCK) {
        if (may_hold(h)) return HELD;
        h->pid = 0;
    } else {
        return errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL ? WITHOUT : FAILED;
    }
    close(k->fd);
    k->fd = -1;
    return MOVED;
}

int32_t wn__lock_take(const char *file, struct wn__lock **out)
{
    struct holder h = {0};
    struct wn__lock *k = wn__alloc(sizeof *k);
    if (k == NULL) return WN_OOM;
    k->fd = -1;
    k->is_kept = 1;
    int32_t code = find_path(file, k->path), how = MOVED;
    for (int32_t i = 0; code == WN_OK && how == MOVED && i < TRIES; i++) {
        if (i > 0) nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
        how = take_once(k, &h);
    }
    if (code != WN_OK) goto fail;
    if (how == FAILED) {
        code = wn__fail(WN_IO, "locking '%s': %s", k->path, strerror(errno));
        goto fail;
    }
    if (how == OTHER) {
        code = wn__fail(WN_IO,
                        "locking '%s': '%s' is no lock of Wane's, which is left as it is; move it away, or name "
                        "another file",
                        file, k->path);
        goto fail;
    }
    if (how == HELD || how == MOVED) {
        code = refuse(file, &h);
        goto fail;
    }
    if (how == TAKEN) tell_holder(k->fd);
    k->is_kept = how == TAKEN;
    *out = k;
    return WN_OK;
fail:
    if (k->fd >= 0) close(k->fd);
    wn__free(k);
    return code;
}

void wn__lock_free(void *lock)
{
    struct wn__lock *k = lock;
    if (k->fd >= 0) {
        unlink(k->path);
        close(k->fd);
    }
    wn__free(k);
}
