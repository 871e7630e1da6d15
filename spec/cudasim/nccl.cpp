/* The part of NCCL that runtime/device/cuda/nccl.cu calls, simulated by processes of one machine over POSIX shared
 * memory. WANE_CUDA_NCCL=simulated asks for it.
 *
 *   shared   head | pipe 0 to 1 | pipe 0 to 2 | ...     of each rank to each other one: PIPE bytes on their way
 *
 * A group is one piece of work of its stream. It begins when the stream comes to it, and ends once all its bytes have
 * left and arrived; a send of more than a pipe holds ends when the other rank receives. Each message begins with its
 * bytes, which have to be those that are received.
 *
 * It holds to the manual where a caller could go wrong: a communicator is not used while a call of it is under way, a
 * stream is not used before its group has gone through, and peers and addresses are right. Every call is under way for
 * some questions. WANE_SIM_NCCL is the number of its version, WANE_SIM_NCCL_1 that of rank 1. */
#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
#include "state.h"

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { MOST = 8, PIPE = 16 << 10, QUESTIONS = 3 };

struct id {
    char bytes[128];
};
struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct pipe_of {
    std::atomic<int64_t> written, read; /* bytes since the beginning */
    char bytes[PIPE];
};
struct shared {
    std::atomic<int32_t> here, aborted;
    pipe_of pipe[MOST][MOST]; /* from, to */
};

/* One way of a message. */
struct part {
    char *at;
    int64_t bytes, done; /* done: -1 before its head has moved */
    int peer;
    bool is_send;
};
struct comm {
    shared *all;
    int size, rank;
    int error;     /* that was found after the call */
    int questions; /* until what is under way has gone through */
    bool is_joining, is_endless, is_aborted;
    std::vector<part> group;
    cudaStream_t stream;
    struct id id;
};

static void put(comm *c);

static comm *open_group; /* of the group that is open, once it has a message */
static int depth;        /* groups that are open */
static char last_error[256];

static int fail(int result, const char *what)
{
    snprintf(last_error, sizeof last_error, "%s", what);
    return result;
}

static int version(int *out)
{
    const char *all = getenv("WANE_SIM_NCCL"), *second = wn__sim_rank() == 1 ? getenv("WANE_SIM_NCCL_1") : NULL;
    *out = second != NULL ? atoi(second) : all != NULL ? atoi(all) : 22105;
    return SUCCESS;
}

static int make_id(struct id *out)
{
    static int made;
    memset(out, 0, sizeof *out);
    snprintf(out->bytes, sizeof out->bytes, "/wane-nccl-%d-%d", (int)getpid(), made++);
    return SUCCESS;
}

/* ---- communicators ---------------------------------------------------------------------------------------------- */

static shared *map_of(const struct id *id)
{
    int file = shm_open(id->bytes, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(shared)) != 0) return NULL;
    void *p = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return p == MAP_FAILED ? NULL : (shared *)p;
}

static int init(void **out, int size, struct id id, int rank, struct config *config)
{
    if (config->magic != 0xcafebeef || config->size != sizeof *config || config->version < 21400 ||
        config->blocking != 0 || size > MOST)
        return fail(INVALID_ARGUMENT, "a configuration that is none, or too many ranks");
    comm *c = new comm{map_of(&id), size, rank, SUCCESS, QUESTIONS, true, false, false, {}, NULL, id};
    if (c->all == NULL) return fail(SYSTEM_ERROR, "no shared memory");
    *out = c;
    if (wn__sim_must_fail(WN_SIM_NCCL_INIT)) return fail(SYSTEM_ERROR, "made to fail");
    c->is_endless = wn__sim_must_fail(WN_SIM_NCCL_ENDLESS);
    if (!c->is_endless && ++c->all->here == size) shm_unlink(id.bytes); /* all have it */
    return IN_PROGRESS;
}

/* Tells what a communicator is at. What is under way has gone through after some questions. */
static int state(void *p, int *out)
{
    comm *c = (comm *)p;
    if (c == NULL || c->is_aborted) return fail(INVALID_ARGUMENT, "no communicator");
    if (c->error == SUCCESS && c->all->aborted != 0) c->error = fail(REMOTE_ERROR, "another rank has given up");
    if (c->questions > 0 && --c->questions == 0 && !c->group.empty()) put(c);
    if (c->is_joining && c->all->here == c->size) c->is_joining = false;
    *out = c->error != SUCCESS ? c->error : c->is_joining || c->is_endless || c->questions > 0 ? IN_PROGRESS : SUCCESS;
    return SUCCESS;
}

static int abort_all(void *p)
{
    comm *c = (comm *)p;
    if (c == NULL || c->is_aborted) return fail(INVALID_ARGUMENT, "no communicator");
    c->is_aborted = true; /* groups that are under way end; its memory stays, as they look at it */
    c->all->aborted = 1;
    shm_unlink(c->id.bytes); /* of those that not all have come to */
    return SUCCESS;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* Moves bytes into a pipe or out of it, and returns how many. */
static int64_t move(pipe_of *p, char *at, int64_t bytes, bool is_send)
{
    int64_t under_way = p->written - p->read, from = is_send ? p->written : p->read;
    int64_t n = std::min(bytes, is_send ? PIPE - under_way : under_way);
    for (int64_t done = 0; done < n;) {
        int64_t place = (from + done) % PIPE, piece = std::min(n - done, PIPE - place);
        if (is_send) memcpy(p->bytes + place, at + done, (size_t)piece);
        else memcpy(at + done, p->bytes + place, (size_t)piece);
        done += piece;
    }
    if (is_send) p->written += n;
    else p->read += n;
    return n;
}

/* Moves the head of a message, whose 8 bytes go in one piece. */
static bool move_head(comm *c, pipe_of *p, part *m)
{
    int64_t head = m->bytes, under_way = p->written - p->read;
    if (m->is_send ? PIPE - under_way < 8 : under_way < 8) return false;
    move(p, (char *)&head, 8, m->is_send);
    m->done = 0;
    if (head == m->bytes) return true;
    fprintf(stderr, "simulated NCCL: rank %d receives %lld bytes of rank %d, which sends %lld\n", c->rank,
            (long long)m->bytes, m->peer, (long long)head);
    c->error = fail(INVALID_USAGE, "a send meets a receive of another size");
    return false;
}

/* Moves what can be moved. Returns whether all has. */
static bool advance(comm *c, part *m)
{
    pipe_of *p = m->is_send ? &c->all->pipe[c->rank][m->peer] : &c->all->pipe[m->peer][c->rank];
    if (m->done < 0 && !move_head(c, p, m)) return false;
    m->done += move(p, m->at + m->done, m->bytes - m->done, m->is_send);
    return m->done == m->bytes;
}

/* Puts a group on its stream. */
static void put(comm *c)
{
    auto parts = std::make_shared<std::vector<part>>(std::move(c->group));
    bool is_bad = wn__sim_must_fail(WN_SIM_NCCL_ASYNC), is_silent = wn__sim_must_fail(WN_SIM_NCCL_SILENT);
    wn__sim.count.exchanges++;
    for (const part &m : *parts)
        if (m.is_send) wn__sim.count.exchanged += m.bytes;
    wn__sim_enqueue_wait(c->stream, [=] {
        bool all = true;
        if (c->is_aborted || wn__sim.sticky != cudaSuccess) return true;
        if (is_bad && c->error == SUCCESS) c->error = fail(SYSTEM_ERROR, "made to fail on the way");
        if (is_silent || c->error != SUCCESS) return false;
        wn__sim_open_memory(1);
        for (part &m : *parts) all &= advance(c, &m);
        wn__sim_open_memory(0);
        return all;
    });
}

static int group_start(void)
{
    depth++;
    return SUCCESS;
}

static int group_end(void)
{
    comm *c = open_group;
    if (--depth > 0 || c == NULL) return SUCCESS;
    open_group = NULL;
    c->questions = QUESTIONS; /* until the last of which nothing is on the stream */
    return IN_PROGRESS;
}

static int add(comm *c, part m, cudaStream_t stream)
{
    if (c == NULL || c->is_aborted || depth == 0 || c->is_joining || c->questions > 0)
        return fail(INVALID_USAGE, "a message outside of a group, or while a call is under way");
    if (m.peer < 0 || m.peer >= c->size || m.peer == c->rank || m.bytes <= 0 ||
        !wn__sim_is_device(m.at, (size_t)m.bytes))
        return fail(INVALID_ARGUMENT, "a message to nobody, or of no memory of the device");
    for (const part &other : c->group)
        if (other.peer == m.peer && other.is_send == m.is_send)
            return fail(INVALID_USAGE, "two messages to one rank in a group");
    open_group = c;
    c->stream = stream;
    c->group.push_back(m);
    return SUCCESS;
}

static int send(const void *from, size_t n, int type, int peer, void *c, cudaStream_t stream)
{
    if (type != 0) return fail(INVALID_ARGUMENT, "a type that is not simulated");
    return add((comm *)c, part{(char *)from, (int64_t)n, -1, peer, true}, stream);
}

static int receive(void *to, size_t n, int type, int peer, void *c, cudaStream_t stream)
{
    if (type != 0) return fail(INVALID_ARGUMENT, "a type that is not simulated");
    return add((comm *)c, part{(char *)to, (int64_t)n, -1, peer, false}, stream);
}

static const char *text(int result)
{
    return result == SYSTEM_ERROR    ? "unhandled system error (run with NCCL_DEBUG=INFO for details)"
           : result == REMOTE_ERROR  ? "remote process exited or there was a network error"
           : result == INVALID_USAGE ? "invalid usage (run with NCCL_DEBUG=WARN for details)"
                                     : "invalid argument (run with NCCL_DEBUG=WARN for details)";
}

static const char *last_error_of(void *)
{
    return last_error;
}

/* Returns a function of the library by its name; WANE_SIM_NCCL_LACKS names one that it has not. */
void *wn__sim_nccl(const char *name)
{
    static const struct wn__sim_entry rows[] = {
        {"ncclGetVersion", (void *)version},
        {"ncclGetUniqueId", (void *)make_id},
        {"ncclCommInitRankConfig", (void *)init},
        {"ncclCommGetAsyncError", (void *)state},
        {"ncclCommAbort", (void *)abort_all},
        {"ncclGroupStart", (void *)group_start},
        {"ncclGroupEnd", (void *)group_end},
        {"ncclSend", (void *)send},
        {"ncclRecv", (void *)receive},
        {"ncclGetErrorString", (void *)text},
        {"ncclGetLastError", (void *)last_error_of},
    };
    const char *lacks = getenv("WANE_SIM_NCCL_LACKS");
    return lacks != NULL && strcmp(lacks, name) == 0 ? NULL : wn__sim_function(rows, name);
}
