/* The partition of a batch of products into tasks, and the epilogue
 * over what a task computed. Tasks divide outputs, never k, so the partition changes no bit.
 *
 *     a matrix of c, row_parts = 2, column_parts = 3:     +------+------+------+
 *                                                         |  0   |  1   |  2   |   boundaries are multiples of
 *                                                         +------+------+------+   row_unit and column_unit
 *                                                         |  3   |  4   |  5   |
 *                                                         +------+------+------+ */
#include <stddef.h>
#include "driver.h"
#include "../../../runtime/base/number.h"

#define SMALL 16384  /* so many multiply-adds are not worth a thread */
#define FINER 4      /* most tasks of a thread */
#ifndef WN_GEMM_TASK /* multiply-adds of a task, 0.07 to 0.15 ms; the spec of products sets fewer */
#define WN_GEMM_TASK ((int64_t)1 << 25)
#endif

/* Writes the least rows and columns of a task: whole blocks, so that no micro-panel is packed again for it.
 * Measured: 128 rows of an a read in place: 1.09-1.12x time; 512 columns of few rows: 1.03x. */
static void least_task(const struct wn__gemm *p, int64_t *rows, int64_t *columns)
{
    *rows = p->ak == 1 ? 512 : 384;
    *columns = p->ak == 1 ? 288 : 384;
    if (p->m <= WN_GEMM_SMALL_M) *columns = p->bk == 1 ? 256 : 1024;
}

/* Divides large parts once more, so that a thread that is free early can help.
 * Measured: products of 2.5 to 17 ms: 0.80-0.90x time beside a process that spins on one of two cores, 0.99-1.01x
 * alone. */
static void partition_finer(const struct wn__gemm *p, struct wn__gemm_partition *partition)
{
    int64_t times = p->m * p->n * p->k / (partition->row_parts * partition->column_parts) / WN_GEMM_TASK, rows, columns;
    least_task(p, &rows, &columns);
    rows = p->m / partition->row_parts / rows;
    columns = p->n / partition->column_parts / columns;
    if (times > FINER) times = FINER;
    if (rows > times) rows = times;
    if (rows > 1) partition->row_parts *= rows, times /= rows;
    if (columns > times) columns = times;
    if (columns > 1) partition->column_parts *= columns;
}

struct wn__gemm_partition wn__gemm_partition(const struct wn__gemm *p, int64_t row_unit, int64_t column_unit,
                                             int64_t row_weight)
{
    if (p->c_panels || (p->b_panels && p->bk != 1)) column_unit = WN_PANEL;
    struct wn__gemm_partition partition = {.row_unit = row_unit,
                                           .column_unit = column_unit,
                                           .row_parts = 1,
                                           .column_parts = 1,
                                           .tasks = p->batch,
                                           .grain = 1};
    int64_t threads = wn_cpu_threads(), work = p->m * p->n * p->k;
    int64_t rows = (p->m + row_unit - 1) / row_unit, columns = (p->n + column_unit - 1) / column_unit;
    if (p->batch % threads != 0 && work >= SMALL) {
        int32_t by_rows = p->m * row_weight > p->n;
        int64_t want = p->batch >= threads ? threads : (threads + p->batch - 1) / p->batch;
        int64_t *first = by_rows ? &partition.row_parts : &partition.column_parts;
        int64_t *second = by_rows ? &partition.column_parts : &partition.row_parts;
        *first = wn_min(want, by_rows ? rows : columns);
        *second = wn_min((want + *first - 1) / *first, by_rows ? columns : rows);
    }
    if (threads > 1) partition_finer(p, &partition);
    int64_t parts = partition.row_parts * partition.column_parts;
    partition.tasks = p->batch * parts;
    partition.grain = SMALL / (work / parts + p->m * p->n / parts + 1) + 1;
    return partition;
}

/* Writes part number `part` of `parts` of n outputs, divided at multiples of `unit`: [*begin, *end). */
static void part_of(int64_t n, int64_t unit, int64_t part, int64_t parts, int64_t *begin, int64_t *end)
{
    int64_t units = (n + unit - 1) / unit;
    *begin = units * part / parts * unit;
    *end = wn_min(units * (part + 1) / parts * unit, n);
}

int32_t wn__gemm_part(const struct wn__gemm *p, const struct wn__gemm_partition *partition, int64_t task,
                      struct wn__gemm_part *out)
{
    int64_t parts = partition->row_parts * partition->column_parts, part = task % parts;
    out->batch = task / parts;
    wn__gemm_offsets(p, out->batch, out->offset);
    part_of(p->m, partition->row_unit, part / partition->column_parts, partition->row_parts, &out->row0, &out->row1);
    part_of(p->n, partition->column_unit, part % partition->column_parts, partition->column_parts, &out->column0,
            &out->column1);
    return out->row0 < out->row1 && out->column0 < out->column1;
}

void wn__gemm_offsets(const struct wn__gemm *p, int64_t batch, int64_t offset[2])
{
    offset[0] = offset[1] = 0;
    for (int32_t i = p->broadcast.ndim - 1; i >= 0; i--) {
        int64_t at = batch % p->broadcast.dim[i];
        batch /= p->broadcast.dim[i];
        offset[0] += at * p->broadcast.step[0][i];
        offset[1] += at * p->broadcast.step[1][i];
    }
}

void wn__gemm_epilogue(const struct wn__gemm *p, int64_t batch, int64_t row0, int64_t row1, int64_t column, int64_t n)
{
    if (p->finish != NULL) p->finish(p->finish_context, row0, row1 - row0, column, n);
    if (p->epilogue == NULL) return;
    const int64_t end = column + n, size = p->epilogue->size;
    for (int64_t part, ld; column < end; column += part) {
        int64_t at = wn__gemm_c_at(p, batch, row0, column, &ld) * size, rows = row1 - row0;
        part = p->c_panels ? wn__gemm_in_panel(column, end - column) : n;
        int64_t run = part == ld ? rows * ld : part; /* whole rows are contiguous */
        for (int64_t i = 0; i < rows * part; i += run, at += ld * size) {
            char *c = (char *)p->c + at;
            const char *in = p->epilogue_in ? (const char *)p->epilogue_in + at : NULL;
            const struct wn__operands o = {.out = c, .in = {c, in}, .step = {1, 1}};
            wn__elementwise_run(p->epilogue, &o, run, 0);
        }
    }
}

void wn__gemm_prefetch_epilogue(const struct wn__gemm *p, int64_t batch, int64_t row0, int64_t row1, int64_t column,
                                int64_t n)
{
    if (p->epilogue == NULL || p->epilogue_in == NULL) return;
    int64_t ld, size = p->epilogue->size;
    const char *in = (const char *)p->epilogue_in + wn__gemm_c_at(p, batch, row0, column, &ld) * size;
    for (int64_t i = row0; i < row1; i++, in += ld * size) wn__fetch(in, n * size);
}

void wn__gemm_prefetch_rows(struct wn__gemm_microtile *t, const float *next)
{
    const int64_t ahead = wn__tuning.product_ahead / (int64_t)sizeof(float), turn = (t->kc - ahead) / 8 * 8;
    t->aux = (struct wn__gemm_auxinfo){.row = t->ai * (int64_t)sizeof(float), .is_near = 1, .then = (const char *)next};
    t->aux.turn = turn > 0 ? turn : 0;
    t->aux.line = (const char *)(turn > 0 ? t->a + ahead : next);
}
