/* NCCL, where this machine has it: GPUs of ranks exchange from device memory to device memory.
 *
 * The library is opened at run time and called through own declarations, so that nothing of it is needed to build; this
 * file alone has its names and numbers, as its C interface has had them since 2.14. Exchanges are groups of sends and
 * receives, on a stream of their own. Its reductions are not used: their order follows size and topology.
 *
 *   compute   make x | asked .................. | wait for ended | kernels that read the pieces
 *   link               wait for asked | x, pieces | ended
 *
 * There is one communicator and one stream, and all ranks start all exchanges in one order (plan/lower/effects.c). With
 * a communicator for each kind of exchange, as over MPI, each rank could start ranges of states where its own plan
 * says. But NCCL's manual asks that operations of several communicators are started in one order on all ranks too: a
 * kernel waits on the GPU for those of its peers, and may leave no room for the one that a peer waits for.
 *
 * The communicator does not block the host: it asks for what is under way, and looks meanwhile whether the other ranks
 * are there. So does each wait for the GPU while an exchange is under way, as that hangs on other ranks. After a
 * failure the communicator is aborted, so that the GPU comes to the end of what it was given. Memory that NCCL takes is
 * the driver's: no plan counts it. */
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include "../../../kernels/cuda/opened.h"
#include "device.cuh"

#define YOUNG_SECONDS 50e-6 /* of a wait that yields between two looks, before it sleeps */
#define LOOK_MICROSECONDS 50
#define WORDS_SECONDS 2.0  /* for the words of a rank that has failed to come */
#define ABORT_SECONDS 10.0 /* for the GPU to come to its end behind an abort */

enum { SUCCESS = 0, REMOTE_ERROR = 6, IN_PROGRESS = 7, TYPE_INT8 = 0 };

struct id {
    char bytes[128];
};
/* Says how a communicator is made. A later version of NCCL knows this layout by its size and version. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

/* The functions of the library. */
static struct {
    int (*version)(int *version);
    int (*make_id)(struct id *id);
    int (*init)(void **comm, int size, struct id id, int rank, struct config *config);
    int (*state)(void *comm, int *state);
    int (*give_up)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t n, int type, int peer, void *comm, cudaStream_t stream);
    int (*receive)(void *to, size_t n, int type, int peer, void *comm, cudaStream_t stream);
    const char *(*text)(int result);
    const char *(*last_error)(void *comm);
} api;

static const struct wn__opened_function functions[] = {
    {"ncclGetVersion", (void **)&api.version},
    {"ncclGetUniqueId", (void **)&api.make_id},
    {"ncclCommInitRankConfig", (void **)&api.init},
    {"ncclCommGetAsyncError", (void **)&api.state},
    {"ncclCommAbort", (void **)&api.give_up},
    {"ncclGroupStart", (void **)&api.group_start},
    {"ncclGroupEnd", (void **)&api.group_end},
    {"ncclSend", (void **)&api.send},
    {"ncclRecv", (void **)&api.receive},
    {"ncclGetErrorString", (void **)&api.text},
    {"ncclGetLastError", (void **)&api.last_error},
};

/* The job, and its exchanges since the last stop. Invariant: `asked` and `ended` of the first `started` exchanges were
 * recorded; those before `done` have ended. */
static struct {
    struct wn_link_job job;
    void *comm; /* NULL: not joined, or given up */
    cudaStream_t stream;
    struct wn__span *move, *wait; /* (most) asked and ended of each exchange; around the wait for it */
    int32_t most, started, done;
    double aborted; /* when the communicator was given up and the GPU has not come to its end yet; else 0 */
} here;

/* ---- opening ---------------------------------------------------------------------------------------------------- */

#ifdef WN_SIMULATED
/* Returns a function of the part of the library that is simulated (spec/cudasim/nccl.cpp), by its name. */
void *wn__sim_nccl(const char *name);
#define SIMULATED wn__sim_nccl
#define UNSET "off" /* ranks with simulated GPUs exchange through the host unless a spec asks */
#else
#define SIMULATED NULL
#define UNSET "auto"
#endif

static size_t version(void)
{
    int number = 0;
    return api.version(&number) == SUCCESS ? (size_t)number : 0;
}

static struct wn__opened opened = {
    .name = "NCCL",
    .variable = "WANE_CUDA_NCCL",
    .unset = UNSET,
    .usual = {"libnccl.so.2", "libnccl.so"},
    .instead = "ranks exchange through pinned memory",
    .oldest = 2,
    .oldest_minor = 14,
    .simulated = SIMULATED,
    .version = version,
    .functions = functions,
    .n = sizeof functions / sizeof functions[0],
    .text = "",
};
static int32_t is_here;

const char *wn__nccl_open(void)
{
    is_here = wn__opened_find(&opened);
    return opened.text;
}

int32_t wn__nccl_say(struct wn_device *d, struct wn_link_facts *out)
{
    struct cudaDeviceProp p;
    memset(out, 0, sizeof *out);
    WN_TRY(wn__gpu_check(d, cudaGetDeviceProperties(&p, wn__gpu.number), "asking which GPU this is"));
    wn__gpu_kind(&p, out->kind, sizeof out->kind);
    if (!is_here) return WN_OK;
    for (int i = 0; i < 16; i++) snprintf(out->where + 2 * i, 3, "%02x", (unsigned)(unsigned char)p.uuid.bytes[i]);
    snprintf(out->version, sizeof out->version, "%.60s", opened.text);
    return WN_OK;
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits a moment, in a wait that began at a second. */
static void rest(double began)
{
    if (now() < began + YOUNG_SECONDS) sched_yield();
    else usleep(LOOK_MICROSECONDS);
}

/* Gives the communicator up, so that the GPU ends what waits for others, and tells those the message that was just set.
 * Returns code. */
static int32_t give_up(int32_t code)
{
    void *comm = here.comm;
    here.comm = NULL;
    code = here.job.broke(code);
    if (comm == NULL) return code;
    here.aborted = now();
    (void)api.give_up(comm);
    return code;
}

/* Fails as NCCL has. One that has lost a peer knows less than the ranks, who are about to hear why. */
static int32_t failed(int result, const char *what)
{
    for (const double began = now(); result == REMOTE_ERROR && now() < began + WORDS_SECONDS; rest(began)) {
        const int32_t code = here.job.look(0);
        if (code != WN_OK) return give_up(code);
    }
    const char *words = api.last_error(here.comm);
    wn__fail(WN_IO, "%s failed at %s: %s%s%.200s; WANE_CUDA_NCCL=off does without it", opened.text, what,
             api.text(result), words == NULL || words[0] == 0 ? "" : ": ", words == NULL ? "" : words);
    return here.job.broke == NULL ? (int32_t)WN_IO : give_up(WN_IO);
}

/* Waits until what was asked of the communicator is under way. */
static int32_t settle(int result, const char *what)
{
    const double began = now();
    while (result == SUCCESS || result == IN_PROGRESS) {
        int state = SUCCESS;
        result = api.state(here.comm, &state);
        if (result == SUCCESS) result = state;
        if (result == SUCCESS) return WN_OK;
        if (result != IN_PROGRESS) break;
        const int32_t code = here.job.look(now() - began);
        if (code != WN_OK) return give_up(code);
        rest(began);
    }
    return failed(result, what);
}

/* ---- waiting for the GPU ---------------------------------------------------------------------------------------- */

static int32_t has_happened(cudaEvent_t e)
{
    const int32_t has = cudaEventQuery(e) == cudaSuccess;
    (void)cudaGetLastError();
    return has;
}

/* Tells whether an exchange is under way. */
static int32_t is_busy(void)
{
    while (here.done < here.started && has_happened(here.move[here.done].event[1])) here.done++;
    return here.done < here.started;
}

/* Looks whether the exchange that is under way may still end. *since: when it began to wait for other ranks. */
static int32_t watch(double *since)
{
    const int32_t before = here.done;
    if (!is_busy() || here.done > before || !has_happened(here.move[here.done].event[0])) *since = now();
    int state = SUCCESS, result = api.state(here.comm, &state);
    if (result == SUCCESS) result = state;
    if (result != SUCCESS && result != IN_PROGRESS) return failed(result, "an exchange among ranks");
    const int32_t code = here.job.look(now() - *since);
    return code == WN_OK ? WN_OK : give_up(code);
}

/* Waits as wn__gpu_await, while an exchange is under way or was given up. */
static int32_t await_busy(struct wn_device *d, cudaStream_t stream, cudaEvent_t event, const char *what)
{
    const double began = now();
    double since = began;
    int32_t code = WN_OK;
    char words[1024] = "";
    for (;;) {
        const cudaError_t e = event != NULL ? cudaEventQuery(event) : cudaStreamQuery(stream);
        if (e != cudaErrorNotReady && code == WN_OK) return wn__gpu_check(d, e, what);
        if (e != cudaErrorNotReady) return wn__fail(code, "%s", words);
        (void)cudaGetLastError();
        if (code == WN_OK && here.comm != NULL) code = watch(&since);
        if (code != WN_OK && words[0] == 0) snprintf(words, sizeof words, "%s", wn__gpu.host->message());
        if (here.aborted > 0 && now() > here.aborted + ABORT_SECONDS) return wn__gpu_lose(d, what);
        rest(began);
    }
}

int32_t wn__gpu_await(struct wn_device *d, cudaStream_t stream, cudaEvent_t event, const char *what)
{
    if (here.aborted > 0 || (here.started > 0 && is_busy())) return await_busy(d, stream, event, what);
    return wn__gpu_check(d, event != NULL ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream), what);
}

/* ---- exchanges -------------------------------------------------------------------------------------------------- */

int32_t wn__nccl_id(struct wn_device *d, char *id)
{
    struct id made;
    WN_TRY(wn__gpu_ready(d));
    const int result = api.make_id(&made);
    memcpy(id, &made, sizeof made);
    return result == SUCCESS ? (int32_t)WN_OK : failed(result, "its start");
}

int32_t wn__nccl_join(struct wn_device *d, const struct wn_link_job *job)
{
    struct config config = {sizeof config, 0xcafebeef, 21400, 0};
    struct id id;
    here.job = *job;
    WN_TRY(wn__gpu_ready(d));
    if (here.stream == NULL)
        WN_TRY(wn__gpu_check(d, cudaStreamCreateWithFlags(&here.stream, cudaStreamNonBlocking), "making a stream"));
    memcpy(&id, job->id, sizeof id);
    const int result = api.init(&here.comm, job->size, id, job->rank, &config);
    return settle(result, "its start");
}

int32_t wn__nccl_take(struct wn_device *d, int32_t most)
{
    WN_TRY(wn__gpu_ready(d));
    if (most <= here.most) return WN_OK;
    wn__spans_close(here.move, here.most);
    wn__spans_close(here.wait, here.most);
    here.move = here.wait = NULL;
    here.most = 0;
    int32_t code = wn__spans_open(d, most, &here.move);
    if (code == WN_OK) code = wn__spans_open(d, most, &here.wait);
    if (code == WN_OK) {
        here.most = most;
        return WN_OK;
    }
    wn__spans_close(here.move, most);
    wn__spans_close(here.wait, most);
    here.move = here.wait = NULL;
    return code;
}

/* Sends and receives all messages, as one operation. */
static int group(const struct wn__message *list, int32_t n)
{
    int result = api.group_start();
    for (int32_t k = 0; k < n && result == SUCCESS; k++) {
        const struct wn__message *m = &list[k];
        if (m->out > 0) result = api.send(m->from, (size_t)m->out, TYPE_INT8, m->peer, here.comm, here.stream);
        if (result == IN_PROGRESS) result = SUCCESS;
        if (m->in > 0 && result == SUCCESS)
            result = api.receive(m->to, (size_t)m->in, TYPE_INT8, m->peer, here.comm, here.stream);
        if (result == IN_PROGRESS) result = SUCCESS;
    }
    const int ended = api.group_end(); /* a group that failed is ended too */
    return result == SUCCESS ? ended : result;
}

int32_t wn__nccl_start(struct wn_device *d, const struct wn__message *list, int32_t n)
{
    WN_TRY(wn__gpu_ready(d));
    if (here.comm == NULL) { /* given up: the ranks know why */
        WN_TRY(here.job.look(0));
        return wn__fail(WN_IO, "%s was given up when an exchange failed", opened.text);
    }
    cudaEvent_t *event = here.move[here.started].event;
    cudaError_t e = cudaEventRecord(event[0], wn__gpu.compute);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(here.stream, event[0], 0);
    WN_TRY(wn__gpu_check(d, e, "starting an exchange among ranks"));
    WN_TRY(settle(group(list, n), "an exchange among ranks"));
    WN_TRY(wn__gpu_check(d, cudaEventRecord(event[1], here.stream), "starting an exchange among ranks"));
    here.started++;
    return WN_OK;
}

int32_t wn__nccl_wait(struct wn_device *d, int64_t number)
{
    struct wn__span *span = &here.wait[number];
    WN_TRY(wn__gpu_ready(d));
    cudaError_t e = cudaEventRecord(span->event[0], wn__gpu.compute);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(wn__gpu.compute, here.move[number].event[1], 0);
    if (e == cudaSuccess) e = cudaEventRecord(span->event[1], wn__gpu.compute);
    WN_TRY(wn__gpu_check(d, e, "waiting for an exchange among ranks"));
    span->marks = 2;
    return WN_OK;
}

double wn__nccl_stop(struct wn_device *d)
{
    double seconds = 0;
    const int32_t is_well = d->lost == NULL && wn__gpu_await(d, here.stream, NULL, "exchanging among ranks") == WN_OK &&
                            wn__gpu_await(d, wn__gpu.compute, NULL, "exchanging among ranks") == WN_OK;
    for (int32_t i = 0; i < here.started; i++) {
        if (is_well) seconds += wn__span_take(&here.wait[i]);
        here.wait[i].marks = 0;
    }
    here.started = here.done = 0;
    if (is_well || d->lost == NULL) here.aborted = 0;
    return seconds;
}
