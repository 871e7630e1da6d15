/* Captures and graphs: while a stream takes part in a capture, what is asked of it is recorded and does not run; the
 * arguments are those of the call. A launch of the graph runs all of it as one piece of work of its stream, in any
 * order that the captured events allow.
 *
 *   origin   A | record e ........ | wait f | C        A wait for an event of a capture lets another stream join it;
 *   other       wait e | B | record f                  its work must be joined to the origin before the capture ends.
 *
 * What CUDA forbids during a capture is refused and makes the capture invalid: waiting, asking whether work has ended,
 * taking and giving back memory, copies that are not pinned, and order across the capture's border. Every capture is as
 * strict as one of the calling thread's (cudaStreamCaptureModeThreadLocal). */
#include <algorithm>
#include <map>
#include <stdlib.h>
#include <vector>
#include "state.h"

struct node {
    std::function<void()> run;
    std::vector<int> after; /* nodes that must have run */
};
/* The work of a capture that has ended. */
struct wn__sim_graph {
    std::vector<node> nodes;
};
struct wn__sim_exec {
    std::vector<node> nodes;
    int pending; /* launches that have not run */
};
/* A capture under way. tail: what the next work of each stream that takes part comes after. */
struct capture {
    cudaStream_t origin;
    bool is_valid;
    std::vector<node> nodes;
    std::map<cudaStream_t, std::vector<int>> tail;
};
/* The last record of an event, where it was captured. */
struct record {
    int64_t capture;
    std::vector<int> after;
};

static std::map<int64_t, capture> captures; /* by number, those under way */
static std::map<cudaEvent_t, record> records;
static int64_t last_number;

static capture *of(cudaStream_t s)
{
    for (auto &c : captures)
        if (c.second.tail.count(s) > 0) return &c.second;
    return NULL;
}

static int64_t number_of(const capture *wanted)
{
    for (auto &c : captures)
        if (&c.second == wanted) return c.first;
    return 0;
}

static void join(std::vector<int> &to, const std::vector<int> &from)
{
    to.insert(to.end(), from.begin(), from.end());
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
}

/* Makes every capture invalid and returns `e`. */
static cudaError_t refuse(cudaError_t e)
{
    for (auto &c : captures) c.second.is_valid = false;
    return wn__sim_result(e);
}

/* ---- what the other files ask ----------------------------------------------------------------------------------- */

bool wn__sim_is_capturing(cudaStream_t s)
{
    return of(s) != NULL;
}

cudaError_t wn__sim_capture_forbids(void)
{
    return captures.empty() ? cudaSuccess : refuse(cudaErrorStreamCaptureUnsupported);
}

void wn__sim_capture_add(cudaStream_t s, std::function<void()> run)
{
    capture *c = of(s);
    c->nodes.push_back(node{std::move(run), c->tail[s]});
    c->tail[s] = {(int)c->nodes.size() - 1};
}

bool wn__sim_capture_record(cudaEvent_t e, cudaStream_t s)
{
    const capture *c = of(s);
    if (c == NULL) records.erase(e);
    else records[e] = record{number_of(c), c->tail.at(s)};
    return c != NULL;
}

void wn__sim_capture_forget(cudaEvent_t e)
{
    records.erase(e);
}

cudaError_t wn__sim_capture_query(cudaEvent_t e)
{
    if (records.count(e) > 0) return refuse(cudaErrorCapturedEvent);
    return wn__sim_capture_forbids();
}

bool wn__sim_capture_wait(cudaStream_t s, cudaEvent_t e, cudaError_t *out)
{
    capture *here = of(s);
    auto found = records.find(e);
    *out = cudaSuccess;
    if (found == records.end()) {
        if (here != NULL) *out = refuse(cudaErrorStreamCaptureIsolation);
        return here != NULL;
    }
    auto there = captures.find(found->second.capture);
    if (there == captures.end()) *out = refuse(cudaErrorCapturedEvent);
    else if (s == NULL) *out = refuse(cudaErrorStreamCaptureImplicit);
    else if (here != NULL && here != &there->second) *out = refuse(cudaErrorStreamCaptureMerge);
    else join(there->second.tail[s], found->second.after);
    return true;
}

/* ---- the runtime's functions --------------------------------------------------------------------------------------
 * */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    if (wn__sim_must_fail(WN_SIM_GRAPH)) return wn__sim_result(cudaErrorInvalidValue);
    if (s == NULL) return wn__sim_result(cudaErrorStreamCaptureUnsupported);
    if (of(s) != NULL) return wn__sim_result(cudaErrorInvalidValue);
    captures[++last_number] = capture{s, true, {}, {{s, {}}}};
    return wn__sim_result(cudaSuccess);
}

/* Returns whether the origin's next work would come after every node. */
static bool is_joined(const capture &c)
{
    std::vector<bool> is_before(c.nodes.size(), false);
    for (int n : c.tail.at(c.origin)) is_before[(size_t)n] = true;
    for (size_t i = c.nodes.size(); i-- > 0;)
        for (int n : c.nodes[i].after)
            if (is_before[i]) is_before[(size_t)n] = true;
    return std::find(is_before.begin(), is_before.end(), false) == is_before.end();
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    capture *c = of(s);
    *out = NULL;
    if (c == NULL) return wn__sim_result(cudaErrorInvalidValue);
    if (c->origin != s) return refuse(cudaErrorStreamCaptureUnmatched);
    cudaError_t e = !c->is_valid || wn__sim_must_fail(WN_SIM_GRAPH) ? cudaErrorStreamCaptureInvalidated
                    : !is_joined(*c)                                ? cudaErrorStreamCaptureUnjoined
                                                                    : cudaSuccess;
    if (e == cudaSuccess) {
        *out = new wn__sim_graph{std::move(c->nodes)};
        wn__sim.count.graphs++;
    }
    captures.erase(number_of(c));
    return wn__sim_result(e);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    wn__sim.count.graphs--;
    delete g;
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
{
    *out = NULL;
    if (wn__sim_must_fail(WN_SIM_GRAPH)) return wn__sim_result(cudaErrorMemoryAllocation);
    *out = new wn__sim_exec{g->nodes, 0};
    wn__sim.count.graphs++;
    return wn__sim_result(cudaSuccess);
}

/* Runs every node once; in the order of the capture, or at random where streams run so. */
static void run_nodes(const std::vector<node> &nodes)
{
    std::vector<int> left(nodes.size()), ready;
    for (size_t i = 0; i < nodes.size(); i++) left[i] = (int)nodes[i].after.size();
    std::vector<bool> is_done(nodes.size(), false);
    for (size_t n = 0; n < nodes.size(); n++) {
        ready.clear();
        for (size_t i = 0; i < nodes.size() && (ready.empty() || wn__sim.streams == WN_SIM_RANDOM); i++)
            if (!is_done[i] && left[i] == 0) ready.push_back((int)i);
        size_t next = (size_t)ready[wn__sim.streams == WN_SIM_RANDOM ? wn__sim_random() % ready.size() : 0];
        nodes[next].run();
        is_done[next] = true;
        for (size_t i = 0; i < nodes.size(); i++)
            left[i] -= (int)std::count(nodes[i].after.begin(), nodes[i].after.end(), (int)next);
    }
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    if (wn__sim_must_fail(WN_SIM_GRAPH)) return wn__sim_result(cudaErrorMemoryAllocation);
    if (of(s) != NULL) return refuse(cudaErrorStreamCaptureUnsupported);
    wn__sim.count.graph_launches++;
    x->pending++;
    wn__sim_enqueue(s, [=] {
        run_nodes(x->nodes);
        x->pending--;
    });
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    if (x->pending > 0) wn__sim_fault(cudaErrorIllegalAddress, "a graph was destroyed while it was under way");
    if (x->pending > 0) return wn__sim_result(cudaErrorIllegalAddress);
    wn__sim.count.graphs--;
    delete x;
    return wn__sim_result(cudaSuccess);
}
