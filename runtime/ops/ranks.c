/* Ops among ranks: how the gradient of a cell becomes the sum of everybody's. Each rank owns a range of the cell
 * (base/ranks.h), adds what all of them give for it, and all of them get the ranges of the others.
 *
 *     all_to_all   x -> pieces          piece k: the elements of the own range of rank k's x, k = 0 .. given - 1
 *     ordered_sum  pieces -> cell c     c[own] = ((c[own] + piece 0) + piece 1) + ...; piece 0 is copied where c is new
 *     all_gather   own range -> x       x[range of k] = rank k's, for every k
 *     refresh      -> cell c            c[range of k] = rank k's, for every k
 *     partial_sum  pieces[, sum] -> sum ((sum + piece 0) + piece 1) + ...; of pieces alone, piece 0 is copied
 *
 *     squares      x -> (stripes) f64   the sum of squares of each stripe of x: of a range those of the whole, so that
 *                                       the norm of gradients is one number, whoever has which range of them
 *
 * Every rank gives a whole partial sum, and the sum goes on in the order of ranks, so that its bits are those of one
 * process that adds them one after the other. Where a team has made a partial sum, each of its ranks has a share of it,
 * which goes on to the ranks with the same number in the other teams. No op among ranks has a gradient. */
#include "helper.h"

static int32_t check_cut(const struct wn_desc *d)
{
    const struct wn__cut cut = wn__cut_of(&d->attrs);
    int64_t rank = d->attrs.i[WN_RANKS_RANK], given = d->attrs.i[WN_RANKS_GIVEN], group = d->attrs.i[WN_RANKS_GROUP];
    if (cut.ranks >= 1 && cut.start >= 0 && cut.start < cut.ranks && rank >= 0 && rank < cut.ranks && cut.team >= 1 &&
        cut.ranks % cut.team == 0 && group >= WN_GROUP_ALL && group <= WN_GROUP_ACROSS && cut.elements >= 0 &&
        given >= (group != WN_GROUP_TEAM) && given <= wn__group_size(&d->attrs))
        return WN_OK;
    return wn__fail(WN_VALUE, "%s: rank %" PRId64 " of %d, of which %" PRId64 " give, is none", wn__op_name(d->op),
                    rank, cut.ranks, given);
}

static int32_t shape_all_to_all(struct wn_desc *d)
{
    WN_TRY(check_cut(d));
    int64_t elements = wn__given_range(&d->attrs).count;
    if (d->n_in == 1 && wn__numel(&d->in[0]) != elements)
        return wn__fail(WN_SHAPE, "all_to_all: a value of %s given, expected %" PRId64 " elements",
                        wn__type_text(&d->in[0]), elements);
    d->out = (struct wn_type){
        .dtype = d->attrs.dtype, .ndim = 2, .dim = {d->attrs.i[WN_RANKS_GIVEN], wn__own_range(&d->attrs).count}};
    return WN_OK;
}

static int32_t shape_all_gather(struct wn_desc *d)
{
    WN_TRY(check_cut(d));
    d->out = (struct wn_type){.dtype = d->in[0].dtype, .ndim = 1, .dim = {d->attrs.i[WN_RANKS_ELEMENTS]}};
    return WN_OK;
}

static int32_t shape_partial_sum(struct wn_desc *d)
{
    const struct wn_type *pieces = &d->in[0];
    if (pieces->ndim != 2)
        return wn__fail(WN_SHAPE, "partial_sum: pieces of %s given, expected 2 dims", wn__type_text(pieces));
    d->out = (struct wn_type){.dtype = d->attrs.dtype, .ndim = 1, .dim = {pieces->dim[1]}};
    if (d->n_in == 2 && !wn__type_equal(&d->in[1], &d->out))
        return wn__fail(WN_SHAPE, "partial_sum: pieces of %s are added to %s", wn__type_text(pieces),
                        wn__type_text(&d->in[1]));
    return WN_OK;
}

static int32_t shape_squares(struct wn_desc *d)
{
    const struct wn__cut cut = {.elements = wn__numel(&d->in[0])};
    if (!wn__dtype_is_float(d->in[0].dtype))
        return wn__fail(WN_DTYPE, "squares: a value of %s given, expected floats", wn__type_text(&d->in[0]));
    d->out = (struct wn_type){.dtype = WN_F64, .ndim = 1, .dim = {wn__stripes(&cut)}};
    return WN_OK;
}

static int32_t shape_effect(struct wn_desc *d)
{
    WN_TRY(check_cut(d));
    return wn__like_first(d);
}

static struct wn_cost cost_partial_sum(const struct wn_desc *d)
{
    double pieces = (double)wn__numel(&d->in[0]), piece = (double)wn__dtype_size(d->in[0].dtype);
    return (struct wn_cost){pieces, pieces * piece + d->n_in * (double)wn__bytes(&d->out)};
}

/* Returns the bytes that this rank sends and gets; of the sum, those that are read and written. Pieces of bf16 may be
 * added to f32. */
static struct wn_cost cost_ranks(const struct wn_desc *d)
{
    double own = (double)wn__own_range(&d->attrs).count, size = (double)wn__dtype_size(d->out.dtype);
    double given = (double)d->attrs.i[WN_RANKS_GIVEN], whole = (double)d->attrs.i[WN_RANKS_ELEMENTS];
    double piece = (double)wn__dtype_size(d->in[0].dtype), pieces = (double)wn__numel(&d->in[0]);
    if (d->op == WN_OP_ORDERED_SUM) return (struct wn_cost){pieces, pieces * piece + 2 * own * size};
    if (d->op == WN_OP_REFRESH || d->op == WN_OP_ALL_GATHER) return (struct wn_cost){0, 2 * whole * size};
    return (struct wn_cost){0, (whole + given * own) * size};
}

const struct wn__rules wn__rules_all_to_all = {shape_all_to_all, NULL, .cost = cost_ranks};
const struct wn__rules wn__rules_all_gather = {shape_all_gather, NULL, .cost = cost_ranks};
const struct wn__rules wn__rules_ordered_sum = {shape_effect, NULL, .cost = cost_ranks};
const struct wn__rules wn__rules_partial_sum = {shape_partial_sum, NULL, .cost = cost_partial_sum};
const struct wn__rules wn__rules_squares = {shape_squares, NULL, .per_input = 2};
const struct wn__rules wn__rules_refresh = {shape_effect, NULL, .cost = cost_ranks};
