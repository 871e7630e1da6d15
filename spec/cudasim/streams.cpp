/* Streams, events and launches: queues of work that runs at once, or when somebody waits for it, in the order of the
 * streams that are waited for or at random. A wait for an event that nobody has recorded is no wait, as in CUDA.
 *
 * Work may hang on another process (nccl.cpp). Streams at once then run as far as they come; a wait of the host goes on
 * until all has ended, and a question whether it has runs one piece of work, as a GPU goes on meanwhile. */
#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <vector>
#include "state.h"

/* One piece of work: a function to run, or a wait for the time-th record of an event. */
struct work {
    std::function<void()> run;
    struct wn__sim_event *event;
    int64_t time;
    bool is_record;
    bool is_host; /* a function that another thread may look for the effect of, without waiting here */
    std::function<bool()> is_done = nullptr; /* of work that hangs on another process */
};
struct wn__sim_event {
    int64_t recorded, happened; /* numbers of records asked for, and done */
    double seconds;             /* when it happened */
};
struct wn__sim_stream {
    std::deque<work> queue;
};

static wn__sim_stream first;
static std::vector<wn__sim_stream *> streams = {&first};

static wn__sim_stream *of(cudaStream_t s)
{
    return s == NULL ? &first : s;
}

static double now(void)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/* ---- running what is queued ------------------------------------------------------------------------------------ */

static bool can_run(const wn__sim_stream *s)
{
    if (s->queue.empty()) return false;
    const work &w = s->queue.front();
    if (w.is_done) return w.is_done();
    return w.event == NULL || w.is_record || w.event->happened >= w.time;
}

static void run_one(wn__sim_stream *s)
{
    work w = std::move(s->queue.front());
    s->queue.pop_front();
    if (w.is_record) {
        w.event->happened = std::max(w.event->happened, w.time);
        w.event->seconds = now();
    } else if (w.run) {
        w.run();
    }
}

/* Returns the stream that must run so that `s` can go on: itself, or the one that holds the record it waits for. */
static wn__sim_stream *helper(wn__sim_stream *s)
{
    for (size_t hops = 0; s != NULL && hops <= streams.size(); hops++) {
        if (s->queue.empty()) return NULL;
        if (can_run(s)) return s;
        const work &wait = s->queue.front();
        if (wait.is_done) return NULL;
        wn__sim_stream *next = NULL;
        for (wn__sim_stream *x : streams)
            for (const work &w : x->queue)
                if (w.is_record && w.event == wait.event) next = x;
        s = next;
    }
    return NULL;
}

/* Returns the stream whose work runs next; wanted: the one that is waited for, NULL: all of them. */
static wn__sim_stream *choose(wn__sim_stream *wanted)
{
    std::vector<wn__sim_stream *> able;
    if (wn__sim.streams != WN_SIM_RANDOM && wanted != NULL) return helper(wanted);
    for (wn__sim_stream *s : streams)
        if (can_run(s)) able.push_back(s);
    if (able.empty()) return NULL;
    return wn__sim.streams == WN_SIM_RANDOM ? able[wn__sim_random() % able.size()] : able[0];
}

/* Tells whether a stream hangs on another process. */
static bool is_abroad(void)
{
    return std::any_of(streams.begin(), streams.end(),
                       [](const wn__sim_stream *s) { return !s->queue.empty() && s->queue.front().is_done; });
}

/* Runs work until `is_done`. */
static void run_until(const std::function<bool()> &is_done, wn__sim_stream *wanted)
{
    while (!is_done()) {
        wn__sim_stream *s = choose(wanted);
        if (s == NULL) s = choose(NULL);
        if (s == NULL && is_abroad()) {
            usleep(20);
            continue;
        }
        if (s == NULL) {
            fprintf(stderr, "simulated device: streams wait for each other\n");
            abort();
        }
        run_one(s);
    }
}

static bool has_host_function(const wn__sim_stream *s)
{
    return std::any_of(s->queue.begin(), s->queue.end(), [](const work &w) { return w.is_host; });
}

static void drain(wn__sim_stream *s)
{
    run_until([=] { return s->queue.empty(); }, s);
}

static void enqueue(cudaStream_t s, work w)
{
    of(s)->queue.push_back(std::move(w));
    if (wn__sim.streams != WN_SIM_EAGER) return;
    wn__sim_stream *next = helper(of(s));
    for (; next != NULL; next = helper(of(s))) run_one(next);
    if (!of(s)->queue.empty() && !is_abroad()) drain(of(s)); /* which says that streams wait for each other */
}

void wn__sim_enqueue_wait(cudaStream_t s, std::function<bool()> is_done)
{
    enqueue(s, work{nullptr, NULL, 0, false, false, std::move(is_done)});
}

/* Runs a piece of work that a stream hangs on, or any. */
static void go_on(wn__sim_stream *s)
{
    wn__sim_stream *next = choose(s);
    if (next == NULL) next = choose(NULL);
    if (next != NULL) run_one(next);
}

void wn__sim_enqueue(cudaStream_t s, std::function<void()> run)
{
    if (wn__sim_is_capturing(s)) wn__sim_capture_add(s, std::move(run));
    else enqueue(s, work{std::move(run), NULL, 0, false, false});
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

/* Bytes of dynamic shared memory of a block: what needs no leave, and the most. */
enum { ALWAYS_SHARED = 48 << 10, MOST_SHARED = 227 << 10 };
static std::map<const void *, size_t> allowed_shared; /* by kernel */

cudaError_t wn__sim_allow_shared(const void *kernel, int bytes)
{
    if (bytes < 0 || bytes > MOST_SHARED) return wn__sim_result(cudaErrorInvalidValue);
    allowed_shared[kernel] = (size_t)bytes;
    return cudaSuccess;
}

static bool has_shared(const wn__sim_grid &g)
{
    auto it = allowed_shared.find(g.kernel);
    return g.shared <= ALWAYS_SHARED || (it != allowed_shared.end() && g.shared <= it->second);
}

static bool is_launchable(const wn__sim_grid &g)
{
    uint64_t threads = (uint64_t)g.threads.x * g.threads.y * g.threads.z;
    return threads >= 1 && threads <= 1024 && g.threads.z <= 64 && g.blocks.x >= 1 && g.blocks.x <= 0x7fffffffu &&
           g.blocks.y >= 1 && g.blocks.y <= 65535 && g.blocks.z >= 1 && g.blocks.z <= 65535 && has_shared(g);
}

/* Runs a kernel; is_bad: it loses the device. */
static void run_kernel(const wn__sim_grid &g, const std::function<void()> &kernel, bool is_bad)
{
    if (wn__sim.sticky != cudaSuccess) return; /* a lost device runs nothing */
    wn__sim_open_memory(1);
    wn__sim_run(g, kernel);
    wn__sim_open_memory(0);
    if (is_bad) wn__sim_fault(cudaErrorIllegalAddress, "%s: made to fail", g.name);
}

void wn__sim_launch(const wn__sim_grid &g, cudaStream_t s, std::function<void()> kernel)
{
    bool is_captured = wn__sim_is_capturing(s);
    wn__sim.count.launches += !is_captured;
    if (wn__sim_must_fail(WN_SIM_LOAD)) {
        wn__sim_result(cudaErrorMemoryAllocation);
        return;
    }
    if (wn__sim_must_fail(WN_SIM_LAUNCH) || !is_launchable(g)) {
        wn__sim_result(cudaErrorInvalidConfiguration);
        return;
    }
    if (is_captured) { /* each launch of the graph starts the kernel anew */
        wn__sim_capture_add(s, [=] { run_kernel(g, kernel, wn__sim_must_fail(WN_SIM_ASYNC)); });
        return;
    }
    bool is_bad = wn__sim_must_fail(WN_SIM_ASYNC);
    wn__sim_enqueue(s, [=] { run_kernel(g, kernel, is_bad); });
}

/* ---- the runtime's functions --------------------------------------------------------------------------------------
 * */

void wn__sim_drain(void)
{
    for (wn__sim_stream *s : streams) drain(s);
}

cudaError_t cudaDeviceSynchronize(void)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    wn__sim_drain();
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new wn__sim_stream;
    streams.push_back(*s);
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    drain(s);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    delete s;
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    drain(of(s));
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    bool is_empty = of(s)->queue.empty();
    if (!is_empty) go_on(of(s));
    return wn__sim_result(is_empty ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    cudaError_t error;
    if (wn__sim_capture_wait(s, e, &error)) return wn__sim_result(error);
    if (e->recorded > 0) enqueue(s, work{nullptr, e, e->recorded, false, false});
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    if (wn__sim_must_fail(WN_SIM_EVENT)) return wn__sim_result(cudaErrorMemoryAllocation);
    *e = new wn__sim_event{0, 0, 0};
    wn__sim.count.events++;
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    wn__sim_drain();
    wn__sim_capture_forget(e);
    delete e;
    wn__sim.count.events--;
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (wn__sim_must_fail(WN_SIM_EVENT)) return wn__sim_result(cudaErrorInvalidValue);
    if (!wn__sim_capture_record(e, s)) enqueue(s, work{nullptr, e, ++e->recorded, true, false});
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*fn)(void *), void *data)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    if (wn__sim_must_fail(WN_SIM_EVENT)) return wn__sim_result(cudaErrorInvalidValue);
    auto call = [=] {
        if (wn__sim.sticky == cudaSuccess) fn(data); /* a lost device calls nothing */
    };
    enqueue(s, work{call, NULL, 0, false, true});
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    WN_SIM_REFUSE(wn__sim_capture_query(e));
    bool has_happened = e->happened >= e->recorded;
    if (!has_happened) go_on(NULL);
    return wn__sim_result(has_happened ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    WN_SIM_REFUSE(wn__sim_capture_query(e));
    int64_t time = e->recorded;
    run_until([=] { return e->happened >= time; }, NULL);
    for (wn__sim_stream *s : streams) /* the host may wait for another thread next */
        run_until([=] { return !has_host_function(s); }, s);
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    WN_SIM_REFUSE(wn__sim_capture_query(from));
    WN_SIM_REFUSE(wn__sim_capture_query(to));
    if (from->recorded == 0 || to->recorded == 0) return wn__sim_result(cudaErrorInvalidValue);
    if (to->happened < to->recorded || from->happened < from->recorded) return wn__sim_result(cudaErrorNotReady);
    *ms = (float)((to->seconds - from->seconds) * 1e3);
    return wn__sim_result(cudaSuccess);
}
