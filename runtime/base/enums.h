/* The enums that the public headers and the rooms below the API share. LuaJIT reads this file with wane.h, so it holds
 * nothing but enums. */
#ifndef WN_BASE_ENUMS_H
#define WN_BASE_ENUMS_H

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

/* Least seconds of an application that no machine takes: measured ones are below. */
enum { WN_COST_SECONDS = 1000000 };

/* Why an instruction runs. */
enum { WN_PHASE_FORWARD, WN_PHASE_RECOMPUTE, WN_PHASE_BACKWARD, WN_PHASE_UPDATE };
#endif
