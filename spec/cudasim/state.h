/* The state that the simulator's own files share: what control.h has set and counted, and the functions that one file
 * offers to the others. */
#ifndef WN_SIM_STATE_H
#define WN_SIM_STATE_H
#include <functional>
#include "control.h"
#include "sim.h"

struct wn__sim_state {
    int64_t fails_in[WN_SIM_CALLS];
    int32_t streams, threads;
    uint64_t random;
    int64_t limit, guard; /* bytes of device memory, and up to how many the host's code cannot touch them */
    int32_t sticky, last; /* cudaError_t: the error that stays, and that of the last call */
    char report[512];
    struct wn_sim_counters count;
};
extern struct wn__sim_state wn__sim;

/* Returns whether a call of this kind must fail now. */
int32_t wn__sim_must_fail(int32_t call);
/* Notes the error of a call and returns it; the error that stays goes first. */
cudaError_t wn__sim_result(cudaError_t error);
/* Sets the report, and an error that stays (cudaSuccess: none). */
void wn__sim_fault(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns from a function of the runtime where its call is refused. */
#define WN_SIM_REFUSE(call)                                                                                            \
    do {                                                                                                               \
        cudaError_t refused_ = (call);                                                                                 \
        if (refused_ != cudaSuccess) return refused_;                                                                  \
    } while (0)
/* Returns the rank that the launcher gave this process, 0 without one. */
int wn__sim_rank(void);
/* Returns the next random number. */
uint64_t wn__sim_random(void);

/* ---- memory.cpp ---- */
/* Lets the host's thread touch device memory (1) or not (0); calls nest. */
void wn__sim_open_memory(int32_t open);
/* Returns whether `bytes` at p are addresses of the device's memory, of an allocation or not. */
bool wn__sim_is_device(const void *p, size_t bytes);

/* ---- streams.cpp ---- */
/* Lets `run` be called when the work before it on the stream has ended, or records it where the stream takes part in a
 * capture. */
void wn__sim_enqueue(cudaStream_t s, std::function<void()> run);
/* Lets a stream go on when `is_done` says so, which is asked again and again. */
void wn__sim_enqueue_wait(cudaStream_t s, std::function<bool()> is_done);
/* Runs the work of all streams. */
void wn__sim_drain(void);

/* ---- graphs.cpp ---- */
/* Returns whether a stream takes part in a capture. */
bool wn__sim_is_capturing(cudaStream_t s);
/* Returns cudaSuccess where no capture is under way; else the error of a call that must not be made meanwhile, which
 * makes the capture invalid. */
cudaError_t wn__sim_capture_forbids(void);
/* Records work of a stream that takes part in a capture. */
void wn__sim_capture_add(cudaStream_t s, std::function<void()> run);
/* Record an event (record) and a wait for one (wait), and return whether that belongs to a capture. *out: the error of
 * the wait. */
bool wn__sim_capture_record(cudaEvent_t e, cudaStream_t s);
bool wn__sim_capture_wait(cudaStream_t s, cudaEvent_t e, cudaError_t *out);
/* Returns the error of asking whether an event has happened; cudaSuccess: it may be asked. */
cudaError_t wn__sim_capture_query(cudaEvent_t e);
/* Forgets an event that is destroyed. */
void wn__sim_capture_forget(cudaEvent_t e);

/* ---- threads.cpp ---- */
/* Runs the blocks of a launch, one after the other. */
void wn__sim_run(const struct wn__sim_grid &g, const std::function<void()> &kernel);
/* Ends the running kernel with an error that stays. a, b: the threads that it is about. */
void wn__sim_give_up(const char *what, unsigned a, unsigned b);
/* Returns whether `bytes` at p are shared memory of the block that runs. */
bool wn__sim_is_shared(const void *p, size_t bytes);

/* ---- what the libraries share (lt.cpp, dnn.cpp) ---- */
/* A function of a library by its name. */
struct wn__sim_entry {
    const char *name;
    void *function;
};

/* Returns the function of that name, or NULL. */
template <size_t N> static inline void *wn__sim_function(const struct wn__sim_entry (&rows)[N], const char *name)
{
    for (const struct wn__sim_entry &row : rows)
        if (strcmp(row.name, name) == 0) return row.function;
    return NULL;
}

/* Destroys a description, and says that it went well. */
template <class T> static inline int wn__sim_destroy(void *desc)
{
    delete (T *)desc;
    return 0;
}

/* Returns element `at` of an array of f32, or of bf16; tf32: f32 rounded to 10 bits of fraction. */
static inline float wn__sim_element(const void *x, int64_t at, bool is_f32, bool tf32)
{
    if (!is_f32) return wn__sim_bits<float>((uint32_t)((const uint16_t *)x)[at] << 16);
    uint32_t bits = wn__sim_bits<uint32_t>(((const float *)x)[at]);
    if (tf32 && (bits & 0x7f800000) != 0x7f800000) bits = (bits + 0x0fff + (bits >> 13 & 1)) & ~0x1fffu;
    return wn__sim_bits<float>(bits);
}

/* Writes element `at` of such an array, rounded to nearest even. */
static inline void wn__sim_put(void *y, int64_t at, bool is_f32, float v)
{
    uint32_t bits = wn__sim_bits<uint32_t>(v);
    if (v != v) bits = 0x7fc00000;
    else bits += 0x7fff + (bits >> 16 & 1);
    if (is_f32) ((float *)y)[at] = v;
    else ((uint16_t *)y)[at] = (uint16_t)(bits >> 16);
}
#endif
