/* The contract of a kernel: what a device's kernels are given, and what they must not do.
 *
 * A kernel computes one op application. It allocates nothing, synchronises nothing, knows no graph and
 * keeps no state; its scratch is the workspace the plan gave it (ops' workspace rule, >= that many bytes, or what
 * was asked for when the plan was loaded). Where a library computes, what it made of the node then comes along.
 * It yields the same bits for the same description, inputs, seed, counter and thread count, whatever else
 * ran before. `out` may be the same address as an input for ops flagged INPLACE, never overlapping
 * otherwise. All buffers are dense and 256-byte aligned; row-major, where a type names no other layout (base/layout.h):
 * elementwise kernels of equal operands, updates, casts and sums of everything get those too, and go over elements as they
 * lie; products and RELAYOUT know them. */
#ifndef WN_KERNEL_H
#define WN_KERNEL_H
#include <stdint.h>
#include "../runtime/base/status.h"
#include "../runtime/base/type.h"

/* Where values wait outside a device's memory, and the ways between. */
enum wn_place { WN_PLACE_HOST, WN_PLACE_DISK, WN_PLACE_COUNT };
enum wn_way { WN_WAY_OUT, WN_WAY_IN, WN_WAY_COUNT };

/* What a library made of a node when a plan was loaded. The plan lets it go. */
struct wn_made {
    void (*let_go)(struct wn_made *m);
};

struct wn_buffers {
    void *out;             /* effects: NULL */
    const void *const *in; /* (n_in) */
    void *const *cell;     /* (up to 3) cells an effect writes */
    void *workspace;
    struct wn_made *made;   /* NULL: the kernel computes by itself */
    uint64_t seed, counter; /* RANDOM ops */
};

/* WN_OK, or WN_VALUE when the data itself is wrong (an index outside its table). Never writes outside out,
 * the cells and the workspace, even then. `stream` belongs to the device (CPU: NULL). */
typedef int32_t (*wn_kernel_fn)(const struct wn_desc *d, const struct wn_buffers *b, void *stream);
#endif
