/* The watch over memory: races, bytes, sectors and bank conflicts of kernels that are compiled with -fsanitize=thread,
 * whose calls at every load and store end here instead of in a sanitizer.
 *
 * Two accesses to a byte, one of them a write, race unless one thread makes both, or a barrier of the block or a warp
 * operation of all its lanes is between them, or both are atomic. Blocks of a launch have no order at all, so a block
 * that waits for another by an atomic in memory is taken for a race. Launches are ordered: streams are not watched.
 *
 * A warp instruction is one place in the code, called by the lanes of a warp for the same time each. */
#include "state.h"
#include "hooks.h"

#ifndef WN_SIM_WATCHED
int32_t wn_sim_touched(struct wn_sim_touched *out)
{
    *out = {};
    return 0;
}
#else
#include <algorithm>
#include <dlfcn.h>
#include <memory>
#include <unordered_map>
#include <vector>

enum { PAGE = 4096, MOST_THREADS = 1024, WARP = 32, SECTOR = 32, BANKS = 32, WORD = 4 };

static struct wn_sim_touched touched;

/* The numbers of the launch and of the block that runs, counted over the whole process, and what has ordered its
 * threads: barriers, and operations of each whole warp. */
static struct {
    const char *kernel;
    uint64_t launch, block;
    unsigned barriers, meetings[MOST_THREADS / WARP];
} now;

/* ---- races ------------------------------------------------------------------------------------------------------- */

/* One access, with what had ordered its thread by then. */
struct access {
    uint64_t block : 40; /* 0: none */
    uint64_t thread : 16, is_atomic : 1;
    uint32_t barriers, meetings;
};
/* The last accesses to a byte. Of two readers that are different threads, one differs from any writer. */
struct cell {
    access write, read[2];
};
/* The cells of a page of addresses. They are void where `time` is not that of the launch, or for shared memory of the
 * block. */
struct page {
    uint64_t time;
    cell at[PAGE];
};
static std::unordered_map<uintptr_t, std::unique_ptr<page>> pages;

/* Returns the cell of an address. time: number of the launch or block outside of which its accesses say nothing. */
static cell *cell_of(uintptr_t address, uint64_t time)
{
    static uintptr_t last_number;
    static page *last;
    uintptr_t number = address / PAGE;
    if (last == NULL || number != last_number) {
        std::unique_ptr<page> &p = pages[number];
        if (!p) p.reset(new page());
        last = p.get();
        last_number = number;
    }
    if (last->time != time) {
        *last = page();
        last->time = time;
    }
    return &last->at[address % PAGE];
}

static bool is_ordered(const access &a, const access &b)
{
    if (a.block == 0 || (a.is_atomic && b.is_atomic)) return true;
    if (a.block != b.block) return false;
    if (a.thread == b.thread || a.barriers != b.barriers) return true;
    return a.thread / WARP == b.thread / WARP && a.meetings != b.meetings;
}

/* Counts a race, and reports the first since the counters were read. */
static void tell(const access &a, const access &b, const char *what, const void *place)
{
    Dl_info info = {};
    if (touched.races++ > 0) return;
    bool is_known = dladdr(place, &info) != 0;
    wn__sim_fault(cudaSuccess, "%s: %s of thread %u of block %lld and thread %u of block %lld, at %s+0x%zx", now.kernel,
                  what, (unsigned)a.thread, (long long)(a.block - now.launch), (unsigned)b.thread,
                  (long long)(b.block - now.launch), is_known ? info.dli_fname : "",
                  (size_t)((const char *)place - (const char *)info.dli_fbase));
}

/* Notes an access to each of `bytes` at an address, and looks for a race with the last ones. */
static void note(uintptr_t address, size_t bytes, const access &me, bool is_write, const void *place, uint64_t time)
{
    bool is_told = false;
    for (size_t i = 0; i < bytes; i++) {
        cell *c = cell_of(address + i, time);
        const access *before = !is_ordered(c->write, me)                 ? &c->write
                               : is_write && !is_ordered(c->read[0], me) ? &c->read[0]
                               : is_write && !is_ordered(c->read[1], me) ? &c->read[1]
                                                                         : NULL;
        if (before != NULL && !is_told)
            tell(*before, me,
                 before != &c->write ? "a read and a write"
                 : is_write          ? "two writes"
                                     : "a write and a read",
                 place);
        is_told = is_told || before != NULL;
        if (is_write) {
            c->write = me;
        } else {
            if (c->read[0].thread != me.thread || c->read[0].block != me.block) c->read[1] = c->read[0];
            c->read[0] = me;
        }
    }
}

/* ---- warp instructions --------------------------------------------------------------------------------------------
 * */

/* One lane's access by a warp instruction. */
struct record {
    uint64_t instruction; /* place << 40 | warp << 32 | time */
    uintptr_t address;
    unsigned bytes, lane;
};
/* A place in the code: how often each thread of the block has been there. */
struct place {
    uint64_t number, block;
    unsigned times[MOST_THREADS];
};
static std::unordered_map<const void *, std::unique_ptr<place>> places;
static std::vector<record> device_records, shared_records;

static void keep(std::vector<record> *records, uintptr_t address, size_t bytes, const void *at)
{
    std::unique_ptr<place> &p = places[at];
    if (!p) {
        p.reset(new place());
        p->number = places.size();
    }
    if (p->block != now.block) {
        memset(p->times, 0, sizeof p->times);
        p->block = now.block;
    }
    uint64_t time = p->times[wn__sim_now->number]++;
    records->push_back(record{p->number << 40 | (uint64_t)wn__sim_now->warp << 32 | time, address, (unsigned)bytes,
                              wn__sim_now->lane});
}

/* Counts the sectors of one warp instruction on device memory. r: (n), sorted by address. */
static void count_sectors(const record *r, size_t n)
{
    uintptr_t end = 0, next_sector = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        uintptr_t to = r[i].address + r[i].bytes, from = std::max(r[i].address, end);
        if (to > from) bytes += (int64_t)(to - from);
        end = std::max(end, to);
        uintptr_t first = std::max(r[i].address / SECTOR, next_sector), last = (to - 1) / SECTOR;
        if (last >= first) touched.sectors += (int64_t)(last - first + 1);
        next_sector = std::max(next_sector, last + 1);
    }
    touched.least_sectors += (bytes + SECTOR - 1) / SECTOR;
}

/* Returns the turns that the banks take for one part of a warp: the most words that one bank is asked for. */
static int64_t turns_of(std::vector<uintptr_t> *words)
{
    int64_t of_bank[BANKS] = {}, most = 0;
    std::sort(words->begin(), words->end());
    words->erase(std::unique(words->begin(), words->end()), words->end());
    for (uintptr_t w : *words) most = std::max(most, ++of_bank[w % BANKS]);
    return most;
}

/* Counts the conflicts of one warp instruction on shared memory. A warp asks for at most 128 bytes at once: with 8
 * bytes a lane by halves, with 16 by quarters. */
static void count_conflicts(const record *r, size_t n)
{
    unsigned lanes = WARP;
    for (size_t i = 0; i < n; i++)
        while (lanes > 1 && r[i].bytes * lanes > WARP * WORD) lanes /= 2;
    touched.shared_calls++;
    for (unsigned first = 0; first < WARP; first += lanes) {
        std::vector<uintptr_t> words;
        for (size_t i = 0; i < n; i++) {
            if (r[i].lane < first || r[i].lane >= first + lanes) continue;
            for (uintptr_t w = r[i].address / WORD; w <= (r[i].address + r[i].bytes - 1) / WORD; w++)
                words.push_back(w);
        }
        touched.conflicts += std::max<int64_t>(turns_of(&words) - 1, 0);
    }
}

/* Counts all instructions that are kept, and forgets them. Requires that no warp is within one. */
static void count(std::vector<record> *records, void (*count_one)(const record *, size_t))
{
    std::sort(records->begin(), records->end(), [](const record &a, const record &b) {
        return a.instruction != b.instruction ? a.instruction < b.instruction : a.address < b.address;
    });
    for (size_t i = 0, n = 0; i < records->size(); i += n) {
        for (n = 1; i + n < records->size() && (*records)[i + n].instruction == (*records)[i].instruction;) n++;
        count_one(&(*records)[i], n);
    }
    records->clear();
}

static void count_all(void)
{
    count(&device_records, count_sectors);
    count(&shared_records, count_conflicts);
}

/* ---- what the simulator and the compiler tell ---------------------------------------------------------------------
 * */

void wn__sim_hooks_launch(const char *kernel)
{
    now.kernel = kernel;
    now.launch = now.block + 1;
}

void wn__sim_hooks_block(void)
{
    now.block++;
    now.barriers = 0;
    memset(now.meetings, 0, sizeof now.meetings);
}

void wn__sim_hooks_block_end(void)
{
    count_all();
}

void wn__sim_hooks_barrier(void)
{
    now.barriers++;
    count_all();
}

void wn__sim_hooks_warp(unsigned warp, unsigned mask)
{
    unsigned threads = wn__sim_block_dim.x * wn__sim_block_dim.y * wn__sim_block_dim.z - warp * WARP;
    unsigned all = threads >= WARP ? 0xffffffffu : (1u << threads) - 1;
    if (mask == all) now.meetings[warp]++;
}

/* Looks for races of an access. Returns where its warp instruction is kept; NULL: it is none of a kernel. */
static std::vector<record> *look(const void *p, size_t bytes, bool is_write, bool is_atomic, const void *at)
{
    if (wn__sim_now == NULL || bytes == 0) return NULL;
    bool is_device = wn__sim_is_device(p, bytes);
    if (!is_device && !wn__sim_is_shared(p, bytes)) return NULL;
    access me = {now.block, (uint16_t)wn__sim_now->number, is_atomic, now.barriers, now.meetings[wn__sim_now->warp]};
    if (is_device) (is_write ? touched.written : touched.read) += (int64_t)bytes;
    note((uintptr_t)p, bytes, me, is_write, at, is_device ? now.launch : now.block);
    return is_device ? &device_records : &shared_records;
}

static void touch(const void *p, size_t bytes, bool is_write, bool is_atomic, const void *at)
{
    std::vector<record> *records = look(p, bytes, is_write, is_atomic, at);
    if (records != NULL) keep(records, (uintptr_t)p, bytes, at);
}

void wn__sim_hooks_touch(const void *p, size_t bytes, bool is_write)
{
    touch(p, bytes, is_write, false, __builtin_return_address(0));
}

void wn__sim_hooks_copy(const void *to, const void *from, size_t bytes, const void *place)
{
    touch(to, bytes, true, false, place);
    if (from != NULL) keep(&device_records, (uintptr_t)from, bytes, (const char *)place - 1); /* a place of its own */
}

void wn__sim_hooks_land(const void *to, const void *from, size_t bytes)
{
    if (from != NULL) look(from, bytes, false, false, __builtin_return_address(0));
    look(to, bytes, true, false, __builtin_return_address(0));
}

int32_t wn_sim_touched(struct wn_sim_touched *out)
{
    *out = touched;
    touched = {};
    return 1;
}

extern "C" {
void wn__sim_note_atomic(void *p, size_t bytes)
{
    touch(p, bytes, true, true, __builtin_return_address(0));
}

void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
/* A number of the host that another thread looks at: no kernel touches it. */
void __tsan_atomic32_store(volatile int32_t *at, int32_t value, int)
{
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_vptr_read(void **)
{
}
void __tsan_read_range(void *p, size_t bytes)
{
    touch(p, bytes, false, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t bytes)
{
    touch(p, bytes, true, false, __builtin_return_address(0));
}
/* Defines what the compiler calls for an access of N bytes. */
#define ACCESS(name, N, is_write)                                                                                      \
    void __tsan_##name##N(void *p)                                                                                     \
    {                                                                                                                  \
        touch(p, N, is_write, false, __builtin_return_address(0));                                                     \
    }
#define ACCESSES(N)                                                                                                    \
    ACCESS(read, N, false)                                                                                             \
    ACCESS(write, N, true)                                                                                             \
    ACCESS(unaligned_read, N, false)                                                                                   \
    ACCESS(unaligned_write, N, true)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
}
#endif
