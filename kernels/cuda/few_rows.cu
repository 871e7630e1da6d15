/* MATMUL, LINEAR, MATMUL_MAP, LINEAR_MAP of f32 where one operand has few rows: c = op(a) op(b) with at most
 * WN_FEW_ROWS of m or n, as of a linear layer over a small batch. Such a product reads the other operand, the wide one,
 * from memory once, and that stream should be all that it takes. gemm.cuh says which products come here
 * (wn__has_few_rows): shapes alone decide, before cuBLASLt is asked.
 *
 *                 k                      A block computes 8 R rows of the few operand by COLUMNS of the wide one, as
 *          +--------------+              sums over all k. A stage is STEP steps of k of both in shared memory. All
 *    few   | rows         |              stages but the one that is multiplied are under way (cp.async): a
 *          +--------------+              multiprocessor waits for 20 KiB of the wide operand at any time, and 16 KiB
 *          +--------------+              would do at 700 ns and 3 TB/s.
 *   wide   | columns      |
 *          |              |   few: m rows of op(a), wide: n columns of op(b), c: (rows, columns);
 *          +--------------+   where m > WN_FEW_ROWS is_flipped: few: n columns of op(b), c: (columns, rows)
 *
 * A thread has R rows, 8 apart, by 2 columns that are neighbours: for R = 4 the 8 sums of a warp's threads cover the
 * latency of an fma where a scheduler has one warp.
 *
 * Every output is one sum over k in ascending order, fma by fma, as in gemm.cuh and on the CPU, so the bits are those
 * of tiles. Bias and epilogue are those of gemm_store.cuh. There is no workspace.
 *
 * Predicted: 33 us for 32 x 4096 x 4096 on an H100, of which 22 us are the stream. */
#include "gemm_store.cuh"
#include "mma.cuh"

enum {
    STEP = 32,        /* of k, in a stage */
    STAGES = 6,       /* in shared memory: 54 KiB for R = 4, which sm_75 has too */
    COLUMNS = 32,     /* of the wide operand, of a block */
    THREADS = 128,    /* of a block */
    CHUNK = 4,        /* elements that one copy moves */
    PITCH = STEP + 4, /* elements between rows of a stage: 8 rows in a row then lie in 8 groups of 4 banks */
    PARTS = STEP / CHUNK,
    LINES = THREADS / PARTS /* rows of a stage that threads copy at once, by chunks */
};

/* Says how operands lie. ALONG: both are along k; ACROSS: few along k, wide along its columns; rows of both are then on
 * 16 bytes. APART: any other way. */
enum form { ALONG, ACROSS, APART };

struct few_job {
    struct wn__gemm_job w;
    const float *few, *wide;
    int64_t rows, columns, k;
    int64_t few_step[2], wide_step[2]; /* elements between rows or columns, and between steps of k */
    int32_t is_flipped;
};

/* ROWS rows of few, and the columns of wide. wide: rows are columns of the operand, but steps of k for ACROSS. */
template <int ROWS> struct stage {
    float few[ROWS][PITCH], wide[COLUMNS][PITCH];
};

/* ---- loading ---------------------------------------------------------------------------------------------------- */

/* Says which elements the calling thread copies to the next stage. Pointers move on by a stage: addresses that are
 * computed anew cost a warp 240 instructions more a stage. */
template <int FORM, int ROWS> struct feed {
    enum { FEW = FORM == APART ? 1 : (ROWS + LINES - 1) / LINES, WIDE = FORM == APART ? 1 : COLUMNS / LINES };
    const float *few[FEW], *wide[WIDE];
    int64_t few_by, wide_by;             /* elements to the next stage */
    int64_t left;                        /* steps of k that no stage has */
    int32_t rows, columns;               /* of the block in the matrix */
    int64_t step[FORM == APART ? 4 : 1]; /* few_step and wide_step */
};

/* Begins to copy SIDE rows by STEP steps element by element: the first `steps`, and of `rows` rows, whose last one
 * stands for those beyond. Threads that are neighbours read neighbours, and write to different banks. */
template <int SIDE>
static __device__ __forceinline__ void begin_elements(float (&to)[SIDE][PITCH], const float *from, const int64_t *step,
                                                      int rows, int steps)
{
    const int t = (int)threadIdx.x;
    WN_ROLLED
    for (int c = 0; c < SIDE * STEP / THREADS; c++) {
        int row = t / STEP + c * (THREADS / STEP), k = t % STEP;
        if (step[1] != 1) row = t % 8 + c % (SIDE / 8) * 8, k = t / 8 + c / (SIDE / 8) * (THREADS / 8);
        if (k < steps) wn__cp_async4(&to[row][k], from + (row < rows ? row : rows - 1) * step[0] + k * step[1]);
    }
}

/* Begins to copy the next stage, as one group of copies; an empty one beyond the last. Steps beyond k are not copied,
 * and no sum has them. */
template <int FORM, int ROWS> static __device__ __forceinline__ void begin(stage<ROWS> &to, feed<FORM, ROWS> &f)
{
    const int steps = f.left < STEP ? (int)f.left : (int)STEP;
    if (steps > 0) {
        if constexpr (FORM == APART) {
            begin_elements<ROWS>(to.few, f.few[0], f.step, f.rows, steps);
            begin_elements<COLUMNS>(to.wide, f.wide[0], f.step + 2, f.columns, steps);
        } else {
            const int line = (int)threadIdx.x / PARTS, k = (int)threadIdx.x % PARTS * CHUNK;
            WN_UNROLL
            for (int c = 0; c < f.FEW; c++)
                if (k < steps && (ROWS >= LINES || line < ROWS)) wn__cp_async16(&to.few[line + c * LINES][k], f.few[c]);
            WN_UNROLL
            for (int c = 0; c < f.WIDE; c++)
                if ((FORM == ALONG ? k : line + c * LINES) < steps)
                    wn__cp_async16(&to.wide[line + c * LINES][k], f.wide[c]);
        }
        WN_UNROLL
        for (int c = 0; c < f.FEW; c++) f.few[c] += f.few_by;
        WN_UNROLL
        for (int c = 0; c < f.WIDE; c++) f.wide[c] += f.wide_by;
        f.left -= STEP;
    }
    wn__cp_async_commit();
}

/* Returns the feed of a block before its first stage. Rows and columns beyond the matrix are copies of its last, which
 * are multiplied and never stored. */
template <int FORM, int ROWS>
static __device__ __forceinline__ feed<FORM, ROWS> feed_of(const few_job &j, int64_t row0, int64_t column0)
{
    const int line = (int)threadIdx.x / PARTS, chunk = (int)threadIdx.x % PARTS * CHUNK;
    const int64_t rows = j.rows - row0, columns = j.columns - column0;
    const float *few = j.few + row0 * j.few_step[0], *wide = j.wide + column0 * j.wide_step[0];
    feed<FORM, ROWS> f;
    f.few_by = STEP * j.few_step[1];
    f.wide_by = STEP * j.wide_step[1];
    f.left = j.k;
    f.rows = rows < ROWS ? (int)rows : ROWS;
    f.columns = columns < COLUMNS ? (int)columns : (int)COLUMNS;
    f.few[0] = few;
    f.wide[0] = wide;
    if constexpr (FORM == APART) {
        for (int s = 0; s < 2; s++) f.step[s] = j.few_step[s], f.step[s + 2] = j.wide_step[s];
        return f;
    }
    WN_UNROLL
    for (int c = 0; c < f.FEW; c++) {
        const int row = line + c * LINES;
        f.few[c] = few + (row < f.rows ? row : f.rows - 1) * j.few_step[0] + chunk;
    }
    WN_UNROLL
    for (int c = 0; c < f.WIDE; c++) {
        const int at = FORM == ALONG ? line + c * LINES : chunk, last = f.columns - (FORM == ALONG ? 1 : (int)CHUNK);
        f.wide[c] = wide + (at < last ? at : last) * j.wide_step[0];
        f.wide[c] += FORM == ALONG ? (int64_t)chunk : (line + c * LINES) * j.wide_step[1];
    }
    return f;
}

/* ---- multiplying ------------------------------------------------------------------------------------------------ */

/* Return the first row and the first column of the calling thread. Bits 0 and 2 of the lane count columns, the others
 * rows, so that of neighbours, or of neighbouring pairs of lanes, both read the same of either operand.
 * Predicted: a load of 16 bytes a lane then takes two turns of shared memory and not four. */
static __device__ __forceinline__ int first_row(void)
{
    const int lane = (int)threadIdx.x % 32;
    return (lane >> 1 & 1) | (lane >> 2 & 6);
}
static __device__ __forceinline__ int first_column(void)
{
    const int lane = (int)threadIdx.x % 32;
    return (int)threadIdx.x / 32 * 8 + ((lane & 1) | (lane >> 1 & 2)) * 2;
}

/* Loads CHUNK steps from k on of two columns. */
template <int FORM>
static __device__ __forceinline__ void load_columns(const float (&wide)[COLUMNS][PITCH], int k, int column,
                                                    float (&to)[2][CHUNK])
{
    if constexpr (FORM == ACROSS) {
        WN_UNROLL
        for (int i = 0; i < CHUNK; i++) {
            float pair[2];
            wn__get(&wide[k + i][column], pair);
            to[0][i] = pair[0];
            to[1][i] = pair[1];
        }
    } else {
        WN_UNROLL
        for (int s = 0; s < 2; s++) wn__get(&wide[column + s][k], to[s]);
    }
}

/* Adds the products of a whole stage, step after step. */
template <int FORM, int R>
static __device__ __forceinline__ void add_stage(const stage<8 * R> &from, int row, int column, float (&sum)[R][2])
{
    WN_UNROLL
    for (int k = 0; k < STEP; k += CHUNK) {
        float x[R][CHUNK], y[2][CHUNK];
        WN_UNROLL
        for (int r = 0; r < R; r++) wn__get(&from.few[row + 8 * r][k], x[r]);
        load_columns<FORM>(from.wide, k, column, y);
        WN_UNROLL
        for (int i = 0; i < CHUNK; i++) {
            WN_UNROLL
            for (int r = 0; r < R; r++)
                for (int s = 0; s < 2; s++) sum[r][s] = wn__chain_add(x[r][i], y[s][i], sum[r][s]);
        }
    }
}

/* Adds the products of the first `steps` steps of a stage. */
template <int FORM, int R>
static __device__ __forceinline__ void add_steps(const stage<8 * R> &from, int steps, int row, int column,
                                                 float (&sum)[R][2])
{
    WN_ROLLED
    for (int k = 0; k < steps; k++) {
        WN_UNROLL
        for (int r = 0; r < R; r++) {
            const float x = from.few[row + 8 * r][k];
            for (int s = 0; s < 2; s++) {
                const float y = FORM == ACROSS ? from.wide[k][column + s] : from.wide[column + s][k];
                sum[r][s] = wn__chain_add(x, y, sum[r][s]);
            }
        }
    }
}

/* ---- the kernel ------------------------------------------------------------------------------------------------- */

/* Finishes and stores the outputs of a block, whose sums are in shared memory: (ROWS, COLUMNS + 1). Threads that are
 * neighbours store neighbours. */
template <int ROWS>
static __device__ __forceinline__ void store(const few_job &j, int64_t row0, int64_t column0, const float *sums)
{
    WN_ROLLED
    for (int e = (int)threadIdx.x; e < ROWS * COLUMNS; e += THREADS) {
        const int row = j.is_flipped ? e % ROWS : e / COLUMNS, column = j.is_flipped ? e / ROWS : e % COLUMNS;
        if (row0 + row >= j.rows || column0 + column >= j.columns) continue;
        wn__tile_place at = {0, row0 + row, column0 + column};
        if (j.is_flipped) at = {0, column0 + column, row0 + row};
        float sum[1] = {sums[row * (COLUMNS + 1) + column]};
        wn__gemm_finish<float, 1>(j.w, at, sum);
        ((float *)j.w.c)[wn__gemm_element(j.w, at)] = sum[0];
    }
}

/* Computes the outputs of a block. blockIdx.x counts groups of rows, then columns, so that blocks that read the same of
 * the wide operand run together. */
template <int FORM, int R> static __global__ void __launch_bounds__(THREADS, 4) multiply_few(few_job j)
{
    const int ROWS = 8 * R, groups = (int)((j.rows + ROWS - 1) / ROWS);
    DYN_SHARED(stage<ROWS>, shared); /* (STAGES) */
    const int row = first_row(), column = first_column();
    const int64_t row0 = (int)blockIdx.x % groups * ROWS, column0 = (int64_t)((int)blockIdx.x / groups) * COLUMNS;
    float sum[R][2];
    WN_UNROLL
    for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = 0;
    feed<FORM, ROWS> f = feed_of<FORM, ROWS>(j, row0, column0);
    WN_UNROLL
    for (int s = 0; s < STAGES - 1; s++) begin(shared[s], f);
    int at = 0, next = STAGES - 1;
    for (int64_t whole = j.k / STEP; whole > 0; whole--) {
        wn__cp_async_wait<STAGES - 2>();
        __syncthreads(); /* the stage is there, and the last one is read no more */
        begin(shared[next], f);
        add_stage<FORM, R>(shared[at], row, column, sum);
        next = at;
        at = at + 1 == STAGES ? 0 : at + 1;
    }
    wn__cp_async_wait<0>();
    __syncthreads();
    add_steps<FORM, R>(shared[at], (int)(j.k % STEP), row, column, sum);
    __syncthreads();
    float *sums = (float *)shared;
    WN_UNROLL
    for (int r = 0; r < R; r++)
        for (int s = 0; s < 2; s++) sums[(row + 8 * r) * (COLUMNS + 1) + column + s] = sum[r][s];
    __syncthreads();
    store<ROWS>(j, row0, column0, sums);
}

/* ---- starting it ------------------------------------------------------------------------------------------------ */

/* Describes a product of few rows. */
static few_job job_of(const struct wn_desc *d, const struct wn_buffers *b)
{
    few_job j;
    memset(&j, 0, sizeof j);
    j.w = wn__gemm_job_of(d, b);
    const struct wn__product &p = j.w.p;
    const void *x[2] = {p.a, p.b};
    const int64_t size[2] = {p.m, p.n}, outer[2] = {p.ai, p.bj}, inner[2] = {p.ak, p.bk};
    const int few = p.m <= WN_FEW_ROWS ? 0 : 1, wide = 1 - few;
    j.is_flipped = few;
    j.few = (const float *)x[few];
    j.wide = (const float *)x[wide];
    j.rows = size[few];
    j.columns = size[wide];
    j.k = p.k;
    j.few_step[0] = outer[few];
    j.few_step[1] = inner[few];
    j.wide_step[0] = outer[wide];
    j.wide_step[1] = inner[wide];
    return j;
}

template <int FORM, int R> static int32_t start_rows(const few_job &j, void *stream)
{
    const int64_t groups = (j.rows + 8 * R - 1) / (8 * R), across = (j.columns + COLUMNS - 1) / COLUMNS;
    wn__allow_shared(multiply_few<FORM, R>, STAGES * sizeof(stage<8 * R>));
    LAUNCH((multiply_few<FORM, R>), wn__grid(groups * across), THREADS, STAGES * sizeof(stage<8 * R>), stream, j);
    return wn__cuda_launched();
}

template <int FORM> static int32_t start_form(const few_job &j, void *stream)
{
    if (j.rows <= 8) return start_rows<FORM, 1>(j, stream);
    if (j.rows <= 16) return start_rows<FORM, 2>(j, stream);
    return start_rows<FORM, 4>(j, stream);
}

static int32_t start(const struct wn_desc *d, const struct wn_buffers *b, void *stream)
{
    if (wn__numel(&d->out) == 0) return WN_OK;
    const few_job j = job_of(d, b);
    const bool is_aligned = ((uintptr_t)j.few | (uintptr_t)j.wide) % sizeof(float4) == 0;
    const bool is_along = is_aligned && j.few_step[1] == 1 && j.few_step[0] % CHUNK == 0;
    if (is_along && j.k % CHUNK == 0 && j.wide_step[1] == 1) return start_form<ALONG>(j, stream);
    if (is_along && j.columns % CHUNK == 0 && j.wide_step[0] == 1) return start_form<ACROSS>(j, stream);
    return start_form<APART>(j, stream);
}

wn_kernel_fn wn__cuda_matmul_few_kernel(const struct wn_desc *d)
{
    const void *nowhere[3] = {NULL, NULL, NULL};
    struct wn_buffers b;
    memset(&b, 0, sizeof b);
    b.in = nowhere;
    struct wn__product p = wn__product_of(d, &b);
    return d->out.dtype == WN_F32 && wn__has_few_rows(p.batch, p.m, p.n) ? start : NULL;
}
