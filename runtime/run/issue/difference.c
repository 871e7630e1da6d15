/* Finds where the programs of ranks begin to differ, once they have found that they do: all ranks look for the first
 * node, by numbers of how programs begin, and say what they have there. */
#include <stdio.h>
#include <string.h>
#include "../../base/outside.h"
#include "issue.h"

#define POINTS 256 /* beginnings that one call compares; three calls find one of 2^24 nodes */
#define ROUNDS 3
#define TEXT 200

/* Tells whether a program assigns values to states of which each rank has another range: it is made of ranges. */
static int32_t assigns_ranges(const struct wn__ir *ir)
{
    for (int32_t i = ir->n - ir->n_effects; i < ir->n; i++)
        if (ir->node[i].op == WN_OP_ASSIGN && ir->cell[ir->node[i].cell[0]].is_range) return 1;
    return 0;
}

/* Tells whether a value is the own range of a state, or a cast of that, which is gathered from all ranks. */
static int32_t is_range(const struct wn__ir *ir, int32_t i)
{
    const struct wn__ir_node *q = &ir->node[i];
    if (q->leaf == WN_LEAF_CELL) return ir->cell[q->slot].is_range;
    return q->op == WN_OP_CAST && q->n_in == 1 && is_range(ir, wn__ir_in(ir, i, 0));
}

uint64_t wn__ir_number(const struct wn__ir *ir, int32_t n)
{
    struct wn__bytes b = {0};
    const int32_t is_of_ranges = assigns_ranges(ir);
    wn__bytes_int(&b, n > ir->n ? ir->n : 0); /* where one ends and another goes on */
    for (int32_t i = 0; i < ir->n && i < n; i++) {
        const struct wn__ir_node *q = &ir->node[i];
        int32_t is_link =
            (wn__op_flags(q->op) & WN_LINK) != 0 || q->op == WN_OP_ORDERED_SUM || q->op == WN_OP_PARTIAL_SUM;
        int32_t is_own = is_of_ranges || wn__ir_updates_range(ir, i) || is_range(ir, i);
        wn__bytes_int(&b, q->leaf == WN_LEAF_HELD ? WN_OP_DATA : q->op); /* whatever made it */
        if (is_link) {
            wn__bytes_int(&b, q->attrs.i[WN_RANKS_ELEMENTS]);
            wn__bytes_int(&b, q->attrs.i[WN_RANKS_START]);
            wn__bytes_int(&b, q->attrs.dtype);
            continue; /* each rank has a range of its own, and one that gives nothing has no input */
        }
        if (is_own) wn__bytes_int(&b, q->type.dtype); /* of a range of its own, too */
        else wn__bytes_type(&b, &q->type);
        wn__bytes_int(&b, q->n_in);
        for (int32_t k = 0; k < q->n_in; k++) wn__bytes_int(&b, wn__ir_in(ir, i, k));
    }
    uint64_t number = b.code == WN_OK ? wn__bytes_hash(b.data, b.count) : 0;
    wn__free(b.data);
    return number;
}

/* Returns the first of the points at which a rank differs from rank 0; POINTS: none. all: (ranks, POINTS). */
static int32_t first_difference(const uint64_t *all, int32_t ranks)
{
    int32_t k = 0;
    for (; k < POINTS; k++)
        for (int32_t r = 1; r < ranks; r++)
            if (all[r * POINTS + k] != all[k]) return k;
    return k;
}

/* Fills *node with the number of the first node that differs. */
static int32_t find_node(const struct wn__ir *ir, int32_t *node)
{
    const struct wn__call call = {.said = "a look for a difference", .needed = "a look for a difference"};
    uint64_t mine[POINTS];
    int32_t first = 0, step = 1 << 8 * (ROUNDS - 1);
    for (int32_t round = 0; round < ROUNDS; round++, step /= POINTS) {
        for (int32_t k = 0; k < POINTS; k++) mine[k] = wn__ir_number(ir, first + (k + 1) * step);
        WN_TRY(wn__control_call(&call, mine, sizeof mine));
        first += first_difference(wn__control_result(), wn__link_get()->size) * step;
    }
    *node = first;
    return WN_OK;
}

int32_t wn__difference_find(const struct wn_program *p, int32_t by, uint32_t order)
{
    const struct wn__call call = {.said = "words about a difference", .needed = "words about a difference"};
    const struct wn__ir *ir = p->plan.ir;
    char mine[TEXT] = "", type[128];
    int32_t node;
    WN_TRY(find_node(ir, &node));
    if (node < ir->n) {
        int32_t line = wn__program_line(p, node);
        snprintf(type, sizeof type, "%s", wn__type_text(&ir->node[node].type));
        snprintf(mine, sizeof mine, "%d nodes against; %s %s%s%s", ir->n, wn__ir_op_text(ir, node), type,
                 line ? " at " : "", line ? wn__line_text(line) : "");
    } else {
        if (order != 0) snprintf(type, sizeof type, ", and states gathered in the order %08x, by its policy", order);
        snprintf(mine, sizeof mine, "%d nodes against; the seed %llu%s", ir->n, (unsigned long long)wn__here.seed,
                 order != 0 ? type : "");
    }
    WN_TRY(wn__control_call(&call, mine, sizeof mine));
    const char *all = wn__control_result(), *theirs = all + by * TEXT;
    int32_t theirs_n = 0, first_n = 0;
    sscanf(theirs, "%d", &theirs_n);
    sscanf(all, "%d", &first_n);
    return wn__fail(WN_VALUE,
                    "rank %d runs another step than rank 0: %d nodes against %d; first difference: %s against "
                    "%s",
                    by, theirs_n, first_n, strchr(theirs, ';') + 2, strchr(all, ';') + 2);
}
