/* Declares what the files of this folder share: the state of the one GPU that a process uses, and the functions behind
 * the slots of struct wn_device.
 *
 * Streams order the work. Kernels, copies of the host and fills are on `compute`; moves out of the device are on `out`,
 * moves in on `in`; exchanges among ranks by NCCL have a stream of their own. An event of one stream that another waits
 * for is the only order between them:
 *
 *   compute   kernel A | event a ............ kernel B | wait b | kernel C
 *   out                  wait a | move A out           | event b            C may write where A's value was */
#ifndef WN_DEVICE_CUDA_DEVICE_CUH
#define WN_DEVICE_CUDA_DEVICE_CUH
#include "../../../kernels/cuda/launch.cuh"
extern "C" {
#include "../cuda_library.h"
#include "../../../kernels/cuda/cublaslt.h"
#include "../../../kernels/cuda/cudnn.h"
}

/* The state of the GPU. Invariant: is_ready is 1 exactly where the streams exist. */
struct wn__gpu {
    const struct wn_cuda_host *host;
    int32_t number; /* of the GPU, as the driver counts */
    int32_t is_ready;
    int32_t is_capturing; /* 1: a capture is under way, between capture_begin and capture_end */
    cudaStream_t compute, way[WN_WAY_COUNT];
    char lost[512]; /* the words of struct wn_device's `lost`; "" while the device is well */
};
extern struct wn__gpu wn__gpu;

/* Makes the streams and the staging memory, at the first use of the device. WN_DEVICE, WN_OOM. */
int32_t wn__gpu_ready(struct wn_device *d);
/* Turns an error of CUDA into a status. An error after which the driver refuses all work makes the device lost.
 * what: what was being done, for the message. */
int32_t wn__gpu_check(struct wn_device *d, cudaError_t e, const char *what);
/* Writes to text what bits may depend on: the GPU, its driver and libraries. */
void wn__gpu_kind(const struct cudaDeviceProp *p, char *text, size_t room);
/* Makes a device lost whose streams do not come to their end. Returns WN_DEVICE. */
int32_t wn__gpu_lose(struct wn_device *d, const char *what);

/* ---- heap.cu: the slots of the same names ---- */
int32_t wn__gpu_alloc(struct wn_device *d, int64_t bytes, void **out);
void wn__gpu_release(struct wn_device *d, void *p, int64_t bytes);
void wn__gpu_hint(struct wn_device *d, int64_t bytes, int64_t count);
void wn__gpu_trim(struct wn_device *d);
void wn__gpu_room(struct wn_device *d, struct wn_room *out);

/* ---- memory.cu: the slots of the same names ---- */
int32_t wn__gpu_memory_open(struct wn_device *d);
int32_t wn__gpu_put(struct wn_device *d, void *to, const void *host, int64_t bytes);
int32_t wn__gpu_get(struct wn_device *d, void *host, const void *from, int64_t bytes);
int32_t wn__gpu_copy(struct wn_device *d, void *to, const void *from, int64_t bytes);
int32_t wn__gpu_fill(struct wn_device *d, void *to, int32_t byte, int64_t bytes);
int32_t wn__gpu_read(struct wn_device *d, void *host, const void *from, int64_t bytes);
int32_t wn__gpu_sync(struct wn_device *d);

/* ---- timer.cu: the slots of the same names ---- */
int32_t wn__gpu_timer_open(struct wn_device *d, int32_t n, double *seconds);
int32_t wn__gpu_timer_mark(struct wn_device *d, int32_t i, int32_t end);
void wn__gpu_timer_close(struct wn_device *d);
/* Two events of one stream around some work, and how many of them were recorded. */
struct wn__span {
    cudaEvent_t event[2];
    int32_t marks;
};
/* Makes n spans; where that fails, those made are in *out, to be closed. */
int32_t wn__spans_open(struct wn_device *d, int32_t n, struct wn__span **out);
/* Gives up n spans, some of whose events may not exist; NULL: none. */
void wn__spans_close(struct wn__span *spans, int32_t n);
/* Returns the seconds of a span, 0 where it was not recorded whole, and forgets its marks. */
double wn__span_take(struct wn__span *span);
/* ---- graph.cu ---- */
int32_t wn__gpu_capture_begin(struct wn_device *d);
int32_t wn__gpu_capture_end(struct wn_device *d, void **out);
int32_t wn__gpu_graph_launch(struct wn_device *d, void *graph);
void wn__gpu_graph_close(struct wn_device *d, void *graph);

/* ---- offload.cu ---- */
int32_t wn__gpu_offload_open(struct wn_device *d, int32_t place, int64_t bytes, int32_t most,
                             struct wn_offload_buffer **out);
void wn__gpu_offload_close(struct wn_device *d, struct wn_offload_buffer *buffer);
int32_t wn__gpu_offload_start(struct wn_device *d, struct wn_offload_buffer *buffer, const struct wn_move *m);
int32_t wn__gpu_offload_wait(struct wn_device *d, struct wn_offload_buffer *buffer, int32_t way, int64_t number);
int32_t wn__gpu_offload_left(struct wn_device *d, struct wn_offload_buffer *buffer, int64_t number);
void wn__gpu_offload_stop(struct wn_device *d, struct wn_offload_buffer *buffer);

/* ---- nccl.cu: the slots `link_` of the same names ---- */
/* Looks for NCCL. Returns its version, "NCCL 2.21.5", or why there is none. */
const char *wn__nccl_open(void);
int32_t wn__nccl_say(struct wn_device *d, struct wn_link_facts *out);
int32_t wn__nccl_id(struct wn_device *d, char *id);
int32_t wn__nccl_join(struct wn_device *d, const struct wn_link_job *job);
int32_t wn__nccl_take(struct wn_device *d, int32_t most);
int32_t wn__nccl_start(struct wn_device *d, const struct wn__message *list, int32_t n);
int32_t wn__nccl_wait(struct wn_device *d, int64_t number);
double wn__nccl_stop(struct wn_device *d);
/* Waits on the host for all work of a stream, or for an event that is not NULL. Every wait of this folder is this one:
 * while an exchange is under way it looks whether the other ranks are there, and fails where they are not. */
int32_t wn__gpu_await(struct wn_device *d, cudaStream_t stream, cudaEvent_t event, const char *what);
#endif
