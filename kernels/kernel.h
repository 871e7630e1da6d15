/* The contract of a kernel: what a kernel is given, and what it must not do.
 *
 * A kernel computes one application of an op. It allocates nothing, synchronises nothing, knows no graph and keeps no
 * state. Its scratch is the workspace that the plan reserved: at least the bytes that the target's workspace rule says,
 * or what `prepare` of struct wn_device said when the plan was loaded. It gives the same bits for the same
 * description, inputs, seed, counter and number of threads, whatever else ran before. `out` may have the address of an
 * input where the op has the flag INPLACE; else it overlaps none. All buffers are dense, 256-byte aligned and
 * row-major unless a type names another layout (base/layout.h); one of no bytes has an address too. Elementwise kernels
 * of equal operands, updates, casts and sums of all elements go over elements in the order of memory, whatever the
 * layout; products and RELAYOUT know layouts. */
#ifndef WN_KERNEL_H
#define WN_KERNEL_H
#include <stdint.h>
#include "../runtime/base/status.h"
#include "../runtime/base/target.h"
#include "../runtime/base/desc.h"

/* The addresses that a kernel is given. */
struct wn_buffers {
    void *out;              /* the result; NULL for an effect */
    const void *const *in;  /* (n_in) the inputs */
    void *const *cell;      /* (at most 3) the cells that an effect writes */
    void *workspace;        /* of no bytes where the op needs none */
    const void *made;       /* what `prepare` of struct wn_device made; NULL: the kernel computes by itself */
    uint64_t seed, counter; /* of an op with the flag RANDOM */

    /* ---- of an asynchronous device, in its memory (wn__target.is_asynchronous); NULL on the others ---- */
    const uint64_t *random; /* {seed, counter} of an op with the flag RANDOM, in the place of the two above */
    uint64_t *report;       /* of an op with the flag CHECKED: the least `element << 32 | (uint32_t)value` of the
                             * elements whose index is outside its table; WHOLE: of those that i32 does not hold, with
                             * the bits of the nearest f32 as value; all bits are set where there is none */
};

/* Computes one application. Returns WN_OK, or WN_VALUE where the data itself is wrong, as an index outside its table
 * is; even then it writes nothing outside out, the cells and the workspace. A kernel of an asynchronous device starts
 * the work, returns before it has ended, and tells of wrong data in `report` instead. `stream` belongs to the device;
 * NULL on the CPU. */
typedef int32_t (*wn_kernel_fn)(const struct wn_desc *d, const struct wn_buffers *b, void *stream);

/* When a library may compute in the place of own kernels: where it should be faster, never, wherever it can. */
enum wn_library_use { WN_LIBRARY_AUTO, WN_LIBRARY_OFF, WN_LIBRARY_ON };

/* The choice of kernels that a user asks for. */
struct wn__kernel_choice {
    enum wn_library_use library;
    const char *kernels; /* the word of WANE_KERNELS; NULL: none */
};

/* A folder of kernels, as the runtime sees it: wn__backend_<folder>, its one symbol that other rooms link with. A slot
 * that may be NULL says what that means. */
struct wn__backend {
    struct wn__target target; /* of this kind of machine, without a library and without threads */
    /* Chooses the kernels and the library, and counts the threads of this machine, into t, a copy of target. Returns
     * NULL, or which choice it cannot follow and what is used instead, in one line. NULL: t stays as it is. */
    const char *(*start)(const struct wn__kernel_choice *choice, struct wn__target *t);
    /* Returns the kernel of an application, or NULL where there is none: "not in this version" then. A folder without
     * kernels, whose target plans can be made for, has NULL here. */
    wn_kernel_fn (*find)(const struct wn_desc *d);
    const char *(*name)(void);      /* of the kernels that this processor gets, in words; NULL: "" */
    const char *(*processor)(void); /* that runs the kernels, in one line; NULL: "" */
    /* Fills *out with tunable number i, from 0 on; returns 0 where there is none. NULL: there are none. */
    int32_t (*tunable)(int32_t i, struct wn_tunable *out);
    /* Sets tunable number i. WN_VALUE for a value outside its limits. NULL where tunable is. */
    int32_t (*tune)(int32_t i, int64_t value);
};
#endif
