/* The machine that checks a schedule, and what the rules of verify.c and verify_ranks.c share. */
#ifndef WN_PLAN_LOWER_VERIFY_H
#define WN_PLAN_LOWER_VERIFY_H
#include "schedule.h"

struct machine {
    const struct wn__ir *ir;
    const struct wn__schedule *s;
    int32_t *content; /* (n_allocations) number of the value that it holds; -1: none */
    uint8_t *alive;   /* (n_allocations) 1: its bytes are in use */
    int32_t *
        taken; /* (n_taken) allocations that are alive and have bytes, by space, slot and offset. Invariant: none overlap */
    int32_t n_taken;
    int32_t *issued;   /* (n of the IR) how often each node was issued */
    uint8_t *written;  /* (n_cells) 0, or an effect of this program wrote it: how far its sum has come */
    uint8_t *read_out; /* (n of the IR) how often a 0-d result was read to the host */
    int32_t *leaving;  /* (n_allocations) transfers under way out of it */
    int32_t *arriving; /* (n_allocations) transfers under way into it */
    struct under_way {
        int32_t from, to, through; /* allocations; -1: none */
        int32_t state;             /* 0 not started, 1 under way, 2 waited for */
    } * move;                      /* (n_moves) */
    int32_t exchanged[3]; /* the last node whose values, or whose state's parts, or shares, were exchanged; -1 */
    int32_t at;
};

/* Fails with WN_ILLEGAL: the rule, the instruction that is checked, what is wrong, and which. */
int32_t wn__illegal(const struct machine *m, const char *rule, const char *what, int32_t which);

/* ---- verify.c: rules of every instruction ---- */
/* Checks that an allocation is inside its space and overlaps none that is alive, and makes it alive. */
int32_t wn__verify_alive(struct machine *m, int32_t allocation);
/* Checks rules 1, 4, 8 and 9 of what an instruction that runs a node reads. */
int32_t wn__verify_inputs(struct machine *m, const struct wn__instr *n);
/* Checks rules 2, 3, 8 and 9 of what an instruction makes, and makes its allocation alive. */
int32_t wn__verify_output(struct machine *m, const struct wn__instr *n);
/* Checks how often a node is issued, and what an effect writes. */
int32_t wn__verify_issue(struct machine *m, const struct wn__instr *n);
/* Notes that a transfer is under way between two allocations. */
int32_t wn__verify_start(struct machine *m, const struct wn__instr *n, int32_t from, int32_t to);

/* ---- verify_ranks.c: rule 11 ---- */
/* Checks an exchange among ranks, from its input, or the state that it refreshes, to what it makes. */
int32_t wn__verify_exchange(struct machine *m, const struct wn__instr *n);
/* Returns how far a sum must have come for an effect among ranks, -1 for others; *to: how far it comes by that. */
int32_t wn__verify_sum_before(const struct wn__ir_node *p, int32_t *to);
/* Checks that an effect among ranks comes in its turn. */
int32_t wn__verify_sum(struct machine *m, const struct wn__ir_node *p);
/* Checks rule 11 for what is summed, and that all or none of it comes back. Stamps `written` with the sums. */
int32_t wn__verify_ranks(struct machine *m);
#endif
