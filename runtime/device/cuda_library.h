/* The door between libwane.so, which knows no CUDA, and libwane_cuda.so, which holds the device's functions and the
 * kernels. Both are built of one tree: opcodes, meanings of attributes, workspace rules and structs must agree. So the
 * build gives both the checksum of the files that say these (CUDA_TREE in the Makefile), and the door compares it. */
#ifndef WN_DEVICE_CUDA_LIBRARY_H
#define WN_DEVICE_CUDA_LIBRARY_H
#include "device.h"

/* The sizes of the structs that cross the door. */
#define WN_CUDA_SIZES                                                                                                  \
    {                                                                                                                  \
        sizeof(struct wn_device), sizeof(struct wn_desc), sizeof(struct wn_buffers), sizeof(struct wn_move),           \
            sizeof(struct wn_offload_buffer), sizeof(struct wn_room), sizeof(struct wn_link_job)                       \
    }
enum { WN_CUDA_SIZE_COUNT = 7 };

/* The functions of libwane.so that the library calls; its symbols are hidden. */
struct wn_cuda_host {
    int64_t tree, size[WN_CUDA_SIZE_COUNT]; /* WN_CUDA_TREE, WN_CUDA_SIZES; checked before the rest is read */
    int32_t (*fail)(int32_t code, const char *message); /* sets the thread's message and returns `code` */
    const char *(*message)(void);                       /* returns that message */
    void *(*alloc)(int64_t bytes);                      /* cleared memory of the host; NULL: none, with a message */
    void (*free)(void *p);
};

/* Looks for a GPU. Fills the slots and facts of *d and returns 1, or leaves *d alone and returns 0. Writes one line to
 * text: (room) bytes; the GPU and its driver, or why there is none. The library exports it as wn_cuda_open. */
typedef int32_t (*wn_cuda_open_fn)(const struct wn_cuda_host *host, struct wn_device *d, char *text, int64_t room);
#endif
