/* The enums and structs that the public headers and the rooms below the API share. LuaJIT reads this file with wane.h,
 * so it holds nothing else. */
#ifndef WN_BASE_SHARED_H
#define WN_BASE_SHARED_H
#ifndef WANE_CDEF
#include <stdint.h>
#endif
#define WN_MAX_DIMS 8

/* The element type and the shape of a value. Invariant, once wn__type_check has passed: 0 <= ndim <= WN_MAX_DIMS, every
 * dim >= 0, wn__bytes + WN_GRANULE fits int64_t, and wn__layout_fits(layout, t). */
struct wn_type {
    int32_t dtype;            /* enum wn_dtype of desc.h */
    int16_t ndim;             /* 0: a scalar */
    int16_t layout;           /* enum wn_layout of layout.h: the order of the elements in memory */
    int64_t dim[WN_MAX_DIMS]; /* (ndim) the slowest dim of a plain value first */
};

/* The attributes of an op application that are no numbers of one run; part of a plan's key. op.def says for each op
 * what i and f mean. */
struct wn_attrs {
    int32_t n;      /* elements of i that the op uses */
    int16_t dtype;  /* of the result of a creation or a cast; else 0 */
    int16_t layout; /* of the result of a creation, a relayout or a product that is a weight's gradient; else 0 */
    int64_t i[WN_MAX_DIMS]; /* (n) */
    double f[2];
};

/* The place where recording stands: recorded nodes take these. */
struct wn_context {
    int32_t scope, region;
    int32_t grad;     /* 1: nodes need a gradient where an input does; 0: none does */
    int32_t device;   /* of nodes whose inputs name none */
    uint64_t seed;    /* of random numbers */
    uint64_t counter; /* that the next random node takes */
    uint64_t batches; /* place of the batches that a step takes parts of: seed << 32 | number; ranks compare it */
    uint64_t updated; /* `counter` + 1 when a run last changed a parameter, or when it was first set; 0: never */
};

/* The ledger of a device, in bytes. */
struct wn_memory {
    int64_t live;                    /* of values that exist now */
    int64_t reserved;                /* taken from the device: live, idle arenas and slabs */
    int64_t peak, peak_reserved;     /* the most of both since wn_memory_reset_peak */
    int64_t limit;                   /* of reserved; 0: none */
    int64_t host;                    /* that the library itself takes: graphs, plans */
    int64_t kinds[9], peak_kinds[9]; /* by WN_KIND: live, and at the moment of the peak */
    int64_t disk, disk_limit;        /* file space that offloaded values take, and its limit; 0: none */
    int64_t away;                    /* host memory that offloaded values take, where the device has its own memory */
    int64_t total, free;             /* of a GPU's memory, all processes counted; 0: it was not used yet, or no GPU */
    int64_t taken, segments;         /* that its driver has given to this process, and in how many pieces */
};
/* The bytes behind a WN_OOM of a device. */
struct wn_oom {
    int64_t bytes;           /* asked for */
    int64_t live, peak;      /* of values at that moment, and at most so far */
    int64_t reserved, limit; /* taken from the device, and the most that wn_memory_limit allows; 0: no limit */
    int64_t least;           /* the smallest limit with which it would work; 0: not known */
};

/* The rates of a target, each above 0: the limits of a roofline. */
struct wn_profile {
    int32_t cuda;          /* 1: workspaces are those of CUDA's kernels */
    double f64, f32, bf16; /* FLOP/s of each dtype */
    double bytes;          /* bytes/s of the device's memory */
    double launch;         /* seconds added to every application, 0 or more */
    double out[2], in[2];  /* bytes/s of transfers to and from host memory (0) and disk (1) */
};

/* A number of a folder's kernels that suits one machine better than another; `wane profile` measures which value
 * does. */
struct wn_tunable {
    const char *name;
    int64_t value, preset; /* now; as long as nobody set it */
    int64_t least, most;   /* that it may be */
    int32_t is_bits;       /* 1: with another value some results have other bits */
};

/* The kinds of bytes: every byte of a device counts under one kind. */
enum {
    WN_KIND_PARAMETER,
    WN_KIND_GRADIENT,
    WN_KIND_OPTIMIZER,
    WN_KIND_BUFFER,
    WN_KIND_INPUT,
    WN_KIND_RESULT,
    WN_KIND_ACTIVATION,
    WN_KIND_WORKSPACE,
    WN_KIND_HOST,
    WN_KIND_COUNT
};

/* Decisions about a residual. Those after RECOMPUTE are actions (plan/recipe/action.h): what a kept value is until the
 * backward reads it. */
enum {
    WN_DECISION_NONE,
    WN_DECISION_SAVE,
    WN_DECISION_RECOMPUTE,
    WN_DECISION_OFFLOAD,
    WN_DECISION_OFFLOAD_DISK,
    WN_DECISION_OFFLOAD_HOST,
    WN_DECISION_BF16,
    WN_DECISION_INT8,
    WN_DECISION_BITS,
    WN_DECISION_COUNT
};

/* The operations on blocks, of which recipes (plan/recipe/recipe.h) and schedules of chains (plan/chain/chain.h) are
 * made. */
enum { WN_STEP_F, WN_STEP_FE, WN_STEP_FREE, WN_STEP_B, WN_STEP_SHRINK, WN_STEP_COUNT };

/* Least seconds of an application that no machine takes: measured ones are below. */
enum { WN_COST_SECONDS = 1000000 };

/* Why an instruction runs. */
enum { WN_PHASE_FORWARD, WN_PHASE_RECOMPUTE, WN_PHASE_BACKWARD, WN_PHASE_UPDATE };
#endif
