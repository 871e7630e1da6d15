/* Tensor cores and asynchronous copies (tensor.h). The lane of a warp that comes last computes a product for all lanes:
 * they are fibers of one host thread, so it writes into their registers, which are arrays on their stacks. */
#include <vector>
#include "state.h"
#include "hooks.h"
#include "tensor.h"

/* ---- products ---------------------------------------------------------------------------------------------------- */

enum { LANES = 32, ROWS = 16, COLUMNS = 8, DEPTH = 16 };

/* The registers of one lane. */
struct fragments {
    float *d;
    const uint32_t *a, *b;
};

static float low(uint32_t word)
{
    return wn__sim_bits<float>(word << 16);
}

static float high(uint32_t word)
{
    return wn__sim_bits<float>(word & 0xffff0000u);
}

/* Computes D += A B for the fragments of all lanes. */
static void multiply(const fragments *const lane[LANES])
{
    float a[ROWS][DEPTH], b[DEPTH][COLUMNS], d[ROWS][COLUMNS];
    for (int l = 0; l < LANES; l++) {
        int g = l / 4, t = l % 4;
        for (int i = 0; i < 4; i++) d[g + i / 2 * 8][2 * t + i % 2] = lane[l]->d[i];
        for (int r = 0; r < 4; r++) {
            float *at = &a[g + r % 2 * 8][2 * t + r / 2 * 8];
            at[0] = low(lane[l]->a[r]);
            at[1] = high(lane[l]->a[r]);
        }
        for (int r = 0; r < 2; r++) {
            b[2 * t + 8 * r][g] = low(lane[l]->b[r]);
            b[2 * t + 8 * r + 1][g] = high(lane[l]->b[r]);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < DEPTH; k++)
            for (int j = 0; j < COLUMNS; j++) d[i][j] += a[i][k] * b[k][j];
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++) lane[l]->d[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}

void wn__mma_bf16_16816(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    fragments mine = {d, a, b};
    const uint64_t *all = wn__sim_meet(0xffffffffu, (uint64_t)(uintptr_t)&mine, "mma.sync");
    if (wn__sim_is_first()) {
        const fragments *lane[LANES];
        for (int l = 0; l < LANES; l++) lane[l] = (const fragments *)(uintptr_t)all[l];
        multiply(lane);
    }
    wn__sim_part();
}

/* ---- matrices of shared memory ------------------------------------------------------------------------------------
 * */

/* Meets the other lanes; returns the rows that they give. */
static const uint64_t *rows_of_warp(const void *row, const char *what)
{
    unsigned number = wn__sim_now->number;
    if (!wn__sim_is_shared(row, 16)) wn__sim_give_up("ldmatrix: a row outside shared memory", number, number);
    if ((uintptr_t)row % 16 != 0) wn__sim_give_up("ldmatrix: a row that is not on 16 bytes", number, number);
    wn__sim_hooks_touch(row, 16, false);
    return wn__sim_meet(0xffffffffu, (uint64_t)(uintptr_t)row, what);
}

void wn__ldmatrix_x4(uint32_t r[4], const void *row)
{
    const uint64_t *rows = rows_of_warp(row, "ldmatrix");
    unsigned g = wn__sim_now->lane / 4, t = wn__sim_now->lane % 4;
    for (unsigned m = 0; m < 4; m++) memcpy(&r[m], (const char *)(uintptr_t)rows[8 * m + g] + 4 * t, 4);
    wn__sim_part();
}

void wn__ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
    const uint64_t *rows = rows_of_warp(row, "ldmatrix.trans");
    unsigned g = wn__sim_now->lane / 4, t = wn__sim_now->lane % 4;
    for (unsigned m = 0; m < 4; m++) {
        uint16_t first, second;
        memcpy(&first, (const char *)(uintptr_t)rows[8 * m + 2 * t] + 2 * g, 2);
        memcpy(&second, (const char *)(uintptr_t)rows[8 * m + 2 * t + 1] + 2 * g, 2);
        r[m] = (uint32_t)second << 16 | first;
    }
    wn__sim_part();
}

/* ---- copies -------------------------------------------------------------------------------------------------------
 * */

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
    int group;
};
/* The copies of one thread that have not landed, oldest first, and the groups that it has committed. */
struct copies {
    std::vector<copy> under_way;
    int committed;
};
static std::vector<copies> of_thread;

void wn__sim_forget_copies(unsigned threads)
{
    of_thread.resize(threads);
    for (copies &c : of_thread) {
        c.under_way.clear();
        c.committed = 0;
    }
}

static void land(const copy &c)
{
    wn__sim_hooks_land(c.to, c.from, c.bytes);
    if (c.from != NULL) memcpy(c.to, c.from, c.bytes);
    else memset(c.to, 0, c.bytes);
}

/* place: of the kernel. */
static void begin_copy(void *shared, const void *global, size_t bytes, const void *place)
{
    unsigned number = wn__sim_now->number;
    copies &mine = of_thread[number];
    if (!wn__sim_is_shared(shared, bytes)) wn__sim_give_up("cp.async: a copy to outside shared memory", number, number);
    if (global != NULL && !wn__sim_is_device(global, bytes))
        wn__sim_give_up("cp.async: a copy from outside the device", number, number);
    if (((uintptr_t)shared | (uintptr_t)global) % bytes != 0)
        wn__sim_give_up("cp.async: an address that is not on its bytes", number, number);
    copy c = {shared, global, bytes, mine.committed};
    bool is_early =
        wn__sim.threads == WN_SIM_AHEAD || (wn__sim.threads == WN_SIM_SHUFFLED && wn__sim_random() % 2 == 0);
    wn__sim_hooks_copy(shared, global, bytes, place);
    if (is_early) land(c);
    else mine.under_way.push_back(c);
}

void wn__cp_async16(void *shared, const void *global)
{
    if (global == NULL) wn__sim_give_up("cp.async: no address", wn__sim_now->number, wn__sim_now->number);
    else begin_copy(shared, global, 16, __builtin_return_address(0));
}

void wn__cp_async4(void *shared, const void *global)
{
    if (global == NULL) wn__sim_give_up("cp.async: no address", wn__sim_now->number, wn__sim_now->number);
    else begin_copy(shared, global, 4, __builtin_return_address(0));
}

void wn__cp_async16_or_zeros(void *shared, const void *global, bool is_real)
{
    begin_copy(shared, is_real ? global : NULL, 16, __builtin_return_address(0));
}

void wn__prefetch(const void *global)
{
    unsigned number = wn__sim_now->number;
    if (!wn__sim_is_device(global, 1)) wn__sim_give_up("prefetch: an address outside the device", number, number);
    wn__sim.count.prefetches++;
}

void wn__cp_async_commit(void)
{
    of_thread[wn__sim_now->number].committed++;
}

void wn__sim_wait_copies(int newest)
{
    copies &mine = of_thread[wn__sim_now->number];
    size_t n = 0;
    while (n < mine.under_way.size() && mine.under_way[n].group < mine.committed - newest) land(mine.under_way[n++]);
    mine.under_way.erase(mine.under_way.begin(), mine.under_way.begin() + (long)n);
}

void wn__sim_end_copies(void)
{
    copies &mine = of_thread[wn__sim_now->number];
    for (const copy &c : mine.under_way) land(c);
    mine.under_way.clear();
}
