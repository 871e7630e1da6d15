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
#include "../runtime/base/target.h"
#include "../runtime/base/type.h"

/* What a library made of an application when a plan was loaded. The plan lets it go. */
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

/* When a library may compute in the place of own kernels: where it should be faster, never, wherever it can. */
enum wn_library_use { WN_LIBRARY_AUTO, WN_LIBRARY_OFF, WN_LIBRARY_ON };

/* What a folder of kernels gives to the runtime: its one symbol that other rooms link with, wn__backend_<folder>. A slot
 * that may be NULL says what that means. */
struct wn__backend {
    struct wn__target target; /* of this kind of machine, without a library and without threads */
    /* Chooses the library and counts the threads of this machine, into t, a copy of target. NULL: t stays as it is. */
    void (*start)(enum wn_library_use use, struct wn__target *t);
    /* Returns the kernel of an application, or NULL where there is none: "not in this version" then. A folder without
     * kernels, whose target plans can be made for, has NULL here. */
    wn_kernel_fn (*find)(const struct wn_desc *d);
    /* Makes ready what a library computes, when a plan is loaded. bytes: workspace of the application by the rule; becomes
     * what is taken, at most that. *out: NULL when the kernel computes by itself. NULL: no library ever computes. */
    int32_t (*prepare)(const struct wn__target *t, const struct wn_desc *d, int64_t *bytes, struct wn_made **out);
    const char *(*name)(void);         /* of the kernels that this processor gets, in words; NULL: "" */
    const char *(*library_name)(void); /* the library and what it computes, in one line; NULL: "none" */
    int32_t (*n_prepared)(void);       /* applications that the library has ready; NULL: 0 */
};
#endif
