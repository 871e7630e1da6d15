/* Offload buffers of the host, in memory or in a file without a name: see host_offload.h.
 *
 * A file is opened past the page cache (O_DIRECT) where its file system allows that; else the cache would hold
 * copies of the offloaded values. The space of a file is allocated when it is opened, so that a full disk fails
 * before a step and not inside it. The thread of a lane uses its queue, the move under way and the file, and nothing
 * else; the thread that waits turns its errno into a message. */
#include "host_offload.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../base/alloc.h"
#include "../base/clock.h"
#include "../base/status.h"

int32_t wn__host_offload_fault[WN_WAY_COUNT], wn__host_offload_full, wn__host_offload_delay_us;
static char folder[512];

struct host_buffer;

/* One way, with its thread. Invariant, under the lock: 0 <= ended <= begun <= started <= most, begun <= ended + 1. */
struct lane {
    struct host_buffer *buffer;
    int32_t way;                 /* WN_WAY_ */
    int32_t is_open, is_closing; /* the thread runs; it is asked to end */
    pthread_t thread;
    pthread_mutex_t lock;          /* guards all that follows, and is_closing */
    pthread_cond_t changed;        /* after each change of what follows */
    struct wn_move *queue;         /* (most) */
    int64_t started, begun, ended; /* number of moves since the last stop */
    int64_t fault_at;              /* number of the move that is made to fail; -1: none */
    int32_t error;                 /* errno of the first move that failed, 0 for none; later moves are not tried */
    int64_t error_at;              /* number of that move */
    double busy;                   /* seconds of moving since the last stop */
};

struct host_buffer {
    struct wn_offload_buffer is; /* what the contract shows; first, so that the two addresses are equal */
    int file;                    /* WN_MEDIUM_DISK: its descriptor; else -1 */
    char *memory;                /* WN_MEDIUM_HOST: (bytes); else NULL */
    struct lane lane[WN_WAY_COUNT];
};

int32_t wn__host_offload_folder(const char *path)
{
    if (strlen(path) >= sizeof folder) return wn__fail(WN_VALUE, "offload: a folder's name has at most 511 letters");
    snprintf(folder, sizeof folder, "%s", path);
    return WN_OK;
}

/* ---- a lane: one way, one thread ----------------------------------------------------------------------------- */

/* Move all bytes of m; return 0 or an errno. */
static int move_file(const struct host_buffer *d, const struct wn_move *m)
{
    for (int64_t done = 0; done < m->bytes;) {
        char *at = (char *)m->address + done;
        size_t left = (size_t)(m->bytes - done);
        ssize_t n =
            m->way == WN_WAY_OUT ? pwrite(d->file, at, left, m->at + done) : pread(d->file, at, left, m->at + done);
        if (n == 0) return EIO;
        if (n < 0 && errno != EINTR) return errno;
        if (n > 0) done += n;
    }
    return 0;
}

static int move_memory(const struct host_buffer *d, const struct wn_move *m)
{
    if (m->way == WN_WAY_OUT) memcpy(d->memory + m->at, m->address, (size_t)m->bytes);
    else memcpy(m->address, d->memory + m->at, (size_t)m->bytes);
    return 0;
}

static int move_one(const struct host_buffer *d, const struct wn_move *m, int is_faulty)
{
    if (wn__host_offload_delay_us > 0) usleep((useconds_t)wn__host_offload_delay_us);
    if (is_faulty) return EIO;
    return d->is.medium == WN_MEDIUM_DISK ? move_file(d, m) : move_memory(d, m);
}

/* Takes moves in order until the lane closes; the main function of a lane's thread. */
static void *serve(void *lane)
{
    struct lane *l = lane;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->is_closing && l->begun == l->started) pthread_cond_wait(&l->changed, &l->lock);
        if (l->is_closing) break;
        int64_t number = l->begun++;
        struct wn_move m = l->queue[number];
        int is_faulty = number == l->fault_at, error = l->error;
        pthread_mutex_unlock(&l->lock);
        double began = wn__now();
        if (error == 0) error = move_one(l->buffer, &m, is_faulty);
        double took = wn__now() - began;
        pthread_mutex_lock(&l->lock);
        if (error != 0 && l->error == 0) {
            l->error = error;
            l->error_at = number;
        }
        l->busy += took;
        if (m.ended != NULL) __atomic_store_n(m.ended, 1, __ATOMIC_RELEASE);
        l->ended = number + 1;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Starts the thread of a lane, with all signals blocked: the threads of the script handle them. */
static int32_t lane_open(struct host_buffer *d, int32_t way)
{
    struct lane *l = &d->lane[way];
    sigset_t all, before;
    l->buffer = d;
    l->way = way;
    l->fault_at = -1;
    l->queue = wn__alloc((d->is.most + 1) * (int64_t)sizeof *l->queue);
    if (l->queue == NULL) return WN_OOM;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&l->thread, NULL, serve, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->is_open = error == 0;
    return error == 0 ? WN_OK : wn__fail(WN_OOM, "out of memory: no thread for offloading: %s", strerror(error));
}

static void lane_close(struct lane *l)
{
    if (l->is_open) {
        pthread_mutex_lock(&l->lock);
        l->is_closing = 1;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
        pthread_mutex_destroy(&l->lock);
        pthread_cond_destroy(&l->changed);
    }
    wn__free(l->queue);
}

/* ---- the memory or the file -------------------------------------------------------------------------------- */

/* Opens a file without a name and returns its descriptor, or -1 with errno set. On file systems without such files it
 * has a name until it is open. */
static int open_unnamed(int flags)
{
    char name[sizeof folder + 32];
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (file >= 0 || (errno != EISDIR && errno != EOPNOTSUPP && errno != ENOENT)) return file;
    snprintf(name, sizeof name, "%s/wane-offload-XXXXXX", folder);
    file = mkostemp(name, O_CLOEXEC | flags);
    if (file >= 0) unlink(name);
    return file;
}

static int32_t open_file(struct host_buffer *d)
{
    int error = wn__host_offload_full ? ENOSPC : 0;
    d->file = open_unnamed(O_DIRECT);
    if (d->file < 0 && errno == EINVAL) {
        d->file = open_unnamed(0);
        snprintf(d->is.note, sizeof d->is.note, "the file system of %.96s knows no O_DIRECT: its cache holds copies",
                 folder);
    }
    if (d->file < 0)
        return wn__fail(WN_IO, "offload: no file in %s: %s; name another folder in WANE_OFFLOAD_DIR", folder,
                        strerror(errno));
    if (error == 0) error = posix_fallocate(d->file, 0, d->is.bytes);
    if (error == 0) return WN_OK;
    return wn__fail(WN_IO, "offload: %lld bytes in %s: %s; name another folder in WANE_OFFLOAD_DIR, or offload less",
                    (long long)d->is.bytes, folder, strerror(error));
}

static int32_t open_memory(struct host_buffer *d)
{
    d->memory = mmap(NULL, (size_t)d->is.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    d->is.host = d->memory;
    if (d->memory != MAP_FAILED) return WN_OK;
    d->memory = NULL;
    return wn__fail(WN_OOM, "out of memory: the system refused %lld bytes for offloading", (long long)d->is.bytes);
}

int32_t wn__host_offload_open(struct wn_device *device, int32_t medium, int64_t bytes, int32_t most,
                              struct wn_offload_buffer **out)
{
    (void)device;
    struct host_buffer *d = wn__alloc(sizeof *d);
    if (d == NULL) return WN_OOM;
    d->is.medium = medium;
    d->is.bytes = bytes;
    d->is.most = most;
    d->file = -1;
    int32_t code = medium == WN_MEDIUM_DISK ? open_file(d) : open_memory(d);
    for (int32_t way = 0; way < WN_WAY_COUNT && code == WN_OK; way++) code = lane_open(d, way);
    if (code != WN_OK) {
        wn__host_offload_close(device, &d->is);
        return code;
    }
    *out = &d->is;
    return WN_OK;
}

void wn__host_offload_close(struct wn_device *device, struct wn_offload_buffer *buffer)
{
    (void)device;
    struct host_buffer *d = (struct host_buffer *)buffer;
    for (int32_t way = 0; way < WN_WAY_COUNT; way++) lane_close(&d->lane[way]);
    if (d->file >= 0) close(d->file);
    if (d->memory != NULL) munmap(d->memory, (size_t)d->is.bytes);
    wn__free(d);
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

int32_t wn__host_offload_start(struct wn_device *device, struct wn_offload_buffer *buffer, const struct wn_move *m)
{
    struct lane *l = &((struct host_buffer *)buffer)->lane[m->way];
    if (m->at < 0 || m->at + m->bytes > buffer->bytes || l->started >= buffer->most)
        return wn__fail(
            WN_INTERNAL, "offload: a move of %lld bytes at %lld leaves its buffer of %lld, or is the %lldth of %d",
            (long long)m->bytes, (long long)m->at, (long long)buffer->bytes, (long long)l->started + 1, buffer->most);
    pthread_mutex_lock(&l->lock);
    if (wn__host_offload_fault[m->way] > 0 && --wn__host_offload_fault[m->way] == 0) l->fault_at = l->started;
    l->queue[l->started] = *m;
    l->queue[l->started++].address = wn__device_bytes(device, m->address);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return WN_OK;
}

int32_t wn__host_offload_wait(struct wn_device *device, struct wn_offload_buffer *buffer, int32_t way, int64_t number)
{
    (void)device;
    struct lane *l = &((struct host_buffer *)buffer)->lane[way];
    pthread_mutex_lock(&l->lock);
    while (l->ended <= number && number < l->started) pthread_cond_wait(&l->changed, &l->lock);
    int error = l->error != 0 && l->error_at <= number ? l->error : 0;
    pthread_mutex_unlock(&l->lock);
    if (error == 0) return WN_OK;
    return wn__fail(WN_IO, "offload: %s %s failed: %s", way == WN_WAY_OUT ? "writing to" : "reading from",
                    buffer->medium == WN_MEDIUM_DISK ? folder : "host memory", strerror(error));
}

int32_t wn__host_offload_left(struct wn_device *device, struct wn_offload_buffer *buffer, int64_t number)
{
    return wn__host_offload_wait(device, buffer, WN_WAY_OUT, number);
}

void wn__host_offload_stop(struct wn_device *device, struct wn_offload_buffer *buffer)
{
    (void)device;
    for (int32_t way = 0; way < WN_WAY_COUNT; way++) {
        struct lane *l = &((struct host_buffer *)buffer)->lane[way];
        pthread_mutex_lock(&l->lock);
        l->started = l->begun; /* the other moves are given up */
        while (l->ended < l->begun) pthread_cond_wait(&l->changed, &l->lock);
        l->started = l->begun = l->ended = 0;
        l->fault_at = -1;
        l->error = 0;
        buffer->busy[way] = l->busy;
        l->busy = 0;
        pthread_mutex_unlock(&l->lock);
    }
}
