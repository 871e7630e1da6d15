/* The emitter of one backward pass: records nodes in the name of the forward node that is differentiated, and keeps
 * the first failure. Gradient rules reach it through struct wn__emit (ops/op.h). */
#ifndef WN_GRAPH_EMIT_H
#define WN_GRAPH_EMIT_H
#include "graph.h"

struct wn__emitter {
    struct wn__emit base; /* what rules see; first, so that a pointer to one is a pointer to the other */
    struct wn__grads *g;
    struct wn_node *forward; /* the node whose rule is called */
    int64_t stamp;           /* of the pass: values whose gradient is asked for carry it */
    int32_t root, code;      /* number of the pass; its first failure */
};
/* The recorder of every emitter. */
extern const struct wn__recorder wn__graph_recorder;
/* Stands in wn_node.grad for a gradient of zeros that no node computes. */
extern struct wn_node wn__zero_gradient;
/* Takes over a node that was recorded for the forward node at hand, as one of the pass's. NULL: WN_OOM. */
struct wn_node *wn__emit_keep(struct wn__emitter *e, struct wn_node *node);
/* Records v in the layout; returns v itself where it has that layout, and NULL for NULL. */
struct wn_node *wn__emit_layout(struct wn__emitter *e, struct wn_node *v, int32_t layout);
/* Adds dx to the gradient of v so far, laid out as v is (grad.c). */
void wn__emit_gradient(struct wn__emitter *e, struct wn_node *v, struct wn_node *dx);
/* Emits the gradient of a node that brought its own, added to those of its inputs (custom.c). */
int32_t wn__template_emit(struct wn__emitter *e, struct wn_node *n);

/* ---- tiles.c ------------------------------------------------------------------------------------------------- */
/* Lets n, a NARROW whose gradient is complete, wait for the turn of its input. */
void wn__tiles_wait(struct wn_node *n);
/* Adds the gradients of the slices that wait for v to its own: side by side where they tile v, else by the rule of
 * each, in the order in which they arose. rule: emits what the rule of a node gives. */
int32_t wn__tiles_join(struct wn__emitter *e, struct wn_node *v,
                       int32_t (*rule)(struct wn__emitter *, struct wn_node *));
#endif
