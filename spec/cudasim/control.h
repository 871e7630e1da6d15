/* Control of the simulated device, for specs: what no real GPU does on demand, and what it has done. Each function is
 * exported by the simulated libwane_cuda.so. spec/support/cudasim.lua calls them, and reads this file for their types:
 * no line of the preprocessor but those of the head may matter. */
#ifndef WN_SIM_CONTROL_H
#define WN_SIM_CONTROL_H
#include <stdint.h>

#define WN_SIM_API extern "C" __attribute__((visibility("default")))

/* The calls that can be made to fail. ASYNC: a kernel runs, and its error is found at the next wait and stays. LOAD: a
 * launch for which the driver has no memory left to load the kernel. LIBRARY: a call of cuBLASLt or
 * cuDNN. GRAPH: the begin and the end of a capture, and the instantiation and the launch of a graph. NCCL_INIT and
 * NCCL_ENDLESS: the start of a communicator fails, or does not end; NCCL_ASYNC and NCCL_SILENT: a group of sends and
 * receives meets an error that is found later, or moves nothing. */
enum wn_sim_call {
    WN_SIM_MALLOC,
    WN_SIM_HOST_ALLOC,
    WN_SIM_COPY,
    WN_SIM_LAUNCH,
    WN_SIM_ASYNC,
    WN_SIM_EVENT,
    WN_SIM_LIBRARY,
    WN_SIM_GRAPH,
    WN_SIM_LOAD,
    WN_SIM_NCCL_INIT,
    WN_SIM_NCCL_ENDLESS,
    WN_SIM_NCCL_ASYNC,
    WN_SIM_NCCL_SILENT,
    WN_SIM_CALLS
};
/* The order of work on streams: at once, when somebody waits, or at random then. */
enum wn_sim_streams { WN_SIM_EAGER, WN_SIM_LAZY, WN_SIM_RANDOM };
/* The order of threads and blocks: ascending, descending, at random, or the last one woken first. */
enum wn_sim_threads { WN_SIM_FORWARD, WN_SIM_REVERSE, WN_SIM_SHUFFLED, WN_SIM_AHEAD };

struct wn_sim_counters {
    int64_t launches, blocks, threads, switches; /* kernels, their blocks and threads, and changes between fibers */
    int64_t copies, to_device, to_host;          /* copies, and bytes each way */
    int64_t allocations, live, peak;             /* allocations made; bytes alive now and at most */
    int64_t taken, parts;           /* bytes that the driver takes for those alive; parts of segments alive */
    int64_t events;                 /* made and not destroyed */
    int64_t graphs, graph_launches; /* graphs alive, instantiated or not; launches of graphs, whose kernels
                                                  * `launches` does not count */
    int64_t device;                 /* the number of the GPU that is used */
    int64_t exchanges, exchanged;   /* groups of NCCL that were started, and bytes that they send */
    int64_t prefetches;             /* elements that threads have asked for */
};

/* Memory that kernels have touched, in the build that watches it. A sector is 32 bytes on 32: what a GPU moves at once.
 * Conflicts are the further turns that a warp takes where its lanes ask one bank of shared memory for several words. */
struct wn_sim_touched {
    int64_t races;                   /* pairs of accesses without an order; the report names the first */
    int64_t read, written;           /* bytes of device memory, each access counted */
    int64_t sectors, least_sectors;  /* of device memory a warp instruction touches, and the least for its bytes */
    int64_t shared_calls, conflicts; /* warp instructions on shared memory, and their conflicts */
};

/* Makes the nth next call of a kind (enum wn_sim_call) fail, counted from 1; 0: none. */
WN_SIM_API void wn_sim_fail(int32_t call, int64_t nth);
/* Returns how many more calls of a kind there must be until one fails; 0: none will. */
WN_SIM_API int64_t wn_sim_fails_in(int32_t call);
/* Sets the order of streams and of threads (enums above), and the seed of random ones. */
WN_SIM_API void wn_sim_order(int32_t streams, int32_t threads, uint64_t seed);
/* Sets the bytes of device memory that the driver may take. */
WN_SIM_API void wn_sim_limit(int64_t bytes);
/* Sets the bytes of device memory up to which code of the host that touches them crashes; 0: it never does. */
WN_SIM_API void wn_sim_guard(int64_t bytes);
/* Brings a lost device back: forgets the error that stays and the message. Memory keeps its bytes. */
WN_SIM_API void wn_sim_mend(void);
/* Puts back what the functions above have set: no call fails, streams run at once, threads ascend, 1 GiB of memory, a
 * guard over 256 KiB, a device that is well. Counts from 0 again, but for the bytes and graphs that are alive. */
WN_SIM_API void wn_sim_reset(void);
/* Copies the counters to out. */
WN_SIM_API void wn_sim_counters(struct wn_sim_counters *out);
/* Returns 1 where something has written past the end of an allocation that is alive; the report says which. */
WN_SIM_API int32_t wn_sim_overrun(void);
/* Copies what kernels have touched since the last call to out, and returns 1; returns 0 in a build that does not watch
 * memory. */
WN_SIM_API int32_t wn_sim_touched(struct wn_sim_touched *out);
/* Returns what the last error was, with the kernel's name; "" when there was none. */
WN_SIM_API const char *wn_sim_report(void);
#endif
