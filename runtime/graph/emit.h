/* The emitter behind the gradient rules' doors (ops/op.h): it records nodes in the name of the forward node
 * being differentiated, and keeps the first failure. */
#ifndef WN_GRAPH_EMIT_H
#define WN_GRAPH_EMIT_H
#include "graph.h"

struct wn__emit {
    struct wn__grads *g;
    struct wn_node *forward; /* whose rule is speaking */
    int64_t stamp;           /* of the pass: what is wanted carries it */
    int32_t root, code;
};
/* Stands in wn_node.grad for a gradient of zeros that no node computes. */
extern struct wn_node wn__zero_gradient;
/* grad.c: adds dx to the gradient of v so far, laid as v is. */
void wn__emit_gradient(struct wn__emit *e, struct wn_node *v, struct wn_node *dx);
/* Takes over a node that was recorded for the forward node at hand, as one of the pass's. NULL: WN_OOM. */
struct wn_node *wn__emit_keep(struct wn__emit *e, struct wn_node *node);
/* custom.c: issues the gradient of a node that brought its own, added to those of its inputs. */
int32_t wn__template_emit(struct wn__emit *e, struct wn_node *n);
#endif
