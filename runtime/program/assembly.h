/* The assembly of an IR, which two files share: assemble.c puts values, assemble_effects.c puts cells and effects. */
#ifndef WN_PROGRAM_ASSEMBLY_H
#define WN_PROGRAM_ASSEMBLY_H
#include "program.h"

struct wn__assembly {
    const struct wn__request *request;
    const struct wn__bindings *bindings;
    struct wn__ir *ir;
    struct wn__grads grads;
    struct wn__regions regions;
    int32_t is_as_new; /* 1: gradients get places as if none had one */
    int32_t at, in_at; /* the next free node of the IR; the next free input */
    int32_t *hyper;    /* (n_sets) the node of each set of an optimizer's numbers */
    struct wn_node *
        *statistic;  /* (n_forward_effects) among ranks: what all of them give for the cell of the effect, and
                                   NULL where an effect before it has taken that; else NULL */
    int32_t *n_uses; /* (n_forward_effects) how often a micro-batch changes the cell */
};

/* Appends a node to the IR, without inputs. */
struct wn__ir_node *wn__put_node(struct wn__assembly *a, int32_t op, int32_t phase, const struct wn_type *type);
void wn__put_input(struct wn__assembly *a, struct wn__ir_node *q, int32_t node);
/* Puts the cells and the effects of a program behind the nodes that its graph has become. */
int32_t wn__put_effects(struct wn__assembly *a);
/* Gives the states that are gathered from ranks to the module that reads them, and gathers them in the dtype that all
 * readers cast them to (assemble_gathers.c). WN_OOM. */
int32_t wn__settle_gathers(struct wn__ir *ir);
#endif
