/* The threads of a block: fibers of the host's thread, and what lets them go on.
 *
 * A thread gets a stack when it begins, and the next one that begins takes over the stack of one that has ended; so a
 * kernel without barriers runs on one stack without a single change. A thread that waits leaves for another that can
 * run; where none can, the block is in a deadlock and the kernel ends with an error. */
#include <algorithm>
#include <deque>
#include <link.h>
#include <random>
#include <sys/mman.h>
#include <vector>
#include "state.h"
#include "fiber.h"
#include "hooks.h"
#include "tensor.h"

enum { NEW, READY, AT_BARRIER, IN_WARP, ENDED };
enum { DYNAMIC_ZONE = 256, DYNAMIC_BYTE = 0x5a };

struct wn__sim_thread *wn__sim_now;
uint3 wn__sim_block;
dim3 wn__sim_block_dim, wn__sim_grid_dim;

/* A warp operation under way. Lanes that came first wait until every lane of the mask is there. */
struct meeting {
    unsigned mask, came, left;
    bool is_open, is_full;
    const char *what;
    uint64_t given[32];
};

/* The block that runs. */
static struct {
    std::vector<wn__sim_thread> thread;
    std::vector<unsigned> order;    /* threads in the order in which they begin */
    std::deque<unsigned> ready;     /* threads that have begun and can go on */
    unsigned begun, alive, waiting; /* threads begun, not ended, at the barrier */
    int line;                       /* of the __syncthreads that they wait at */
    std::vector<meeting> meetings;
    std::vector<std::vector<int>> of_warp; /* the open meetings of each warp */
    std::vector<char> dynamic;             /* dynamic shared memory, then DYNAMIC_ZONE bytes that stay as they are */
    size_t dynamic_bytes;
    const char *kernel;
    const std::function<void()> *body;
    bool is_given_up; /* an error has ended the kernel */
} block;

static std::vector<char *> stacks;
static std::vector<int> idle; /* stacks that no thread has */
static void *scheduler;       /* stack pointer of the host's thread */

static void run_threads(void);
static void leave(void **from);

void *wn__sim_dynamic_shared(void)
{
    return block.dynamic.data();
}

/* Leaves the running thread for good; its stack is begun anew in the next block. */
void wn__sim_give_up(const char *what, unsigned a, unsigned b)
{
    void *nowhere;
    wn__sim_fault(cudaErrorLaunchFailure, "%s: %s (threads %u and %u of block %u,%u,%u)", block.kernel, what, a, b,
                  wn__sim_block.x, wn__sim_block.y, wn__sim_block.z);
    block.is_given_up = true;
    if (wn__sim_now != NULL) leave(&nowhere);
}

/* ---- changing threads ------------------------------------------------------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void **, const void *, size_t);
extern "C" void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
extern "C" void __asan_unpoison_memory_region(const volatile void *, size_t);
/* A frame that is left for good must have no red zones: the next thread on this stack would meet them. */
#define WITHOUT_RED_ZONES __attribute__((no_sanitize("address"), noinline))
static const void *host_stack;
static size_t host_size;
/* stack: number of the stack that is changed to; -1: that of the host. */
WITHOUT_RED_ZONES static void change(void **from, void *to, int stack)
{
    void *fake;
    __sanitizer_start_switch_fiber(&fake, stack < 0 ? host_stack : stacks[stack],
                                   stack < 0 ? host_size : (size_t)WN_SIM_STACK);
    wn__sim_switch(from, to);
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
}
WITHOUT_RED_ZONES static void begin_fiber(void)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &size);
    if (host_stack == NULL) {
        host_stack = bottom;
        host_size = size;
    }
}
static void clean_stack(char *bottom)
{
    __asan_unpoison_memory_region(bottom, WN_SIM_STACK);
}
#else
#define WITHOUT_RED_ZONES
static void change(void **from, void *to, int stack)
{
    (void)stack;
    wn__sim_switch(from, to);
}
static void begin_fiber(void)
{
}
static void clean_stack(char *)
{
}
#endif

static void take_stack(wn__sim_thread *t)
{
    if (idle.empty()) {
        void *p = mmap(NULL, WN_SIM_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mprotect(p, 4096, PROT_NONE);
        idle.push_back((int)stacks.size());
        stacks.push_back((char *)p);
    }
    t->stack = idle.back();
    idle.pop_back();
    t->stack_pointer = wn__sim_fiber(stacks[t->stack], run_threads);
}

static wn__sim_thread *begin_next(void)
{
    wn__sim_thread *t = &block.thread[block.order[block.begun++]];
    t->state = READY;
    return t;
}

/* Returns a thread that can run: one that was woken, else one that has not begun; NULL: there is none. */
static wn__sim_thread *pick(void)
{
    bool is_fresh = block.begun < block.order.size();
    if (block.is_given_up) return NULL;
    if (!block.ready.empty() && !(wn__sim.threads == WN_SIM_SHUFFLED && is_fresh && wn__sim_random() % 4 == 0)) {
        size_t at = wn__sim.threads == WN_SIM_SHUFFLED ? wn__sim_random() % block.ready.size()
                    : wn__sim.threads == WN_SIM_AHEAD  ? block.ready.size() - 1
                                                       : 0;
        unsigned number = block.ready[at];
        block.ready.erase(block.ready.begin() + (long)at);
        return &block.thread[number];
    }
    if (!is_fresh) return NULL;
    wn__sim_thread *t = begin_next();
    take_stack(t);
    return t;
}

/* Leaves the running thread for another one, or for the host where none can run. from: keeps its stack pointer. */
WITHOUT_RED_ZONES static void leave(void **from)
{
    wn__sim_thread *t = pick();
    if (t != NULL && &t->stack_pointer == from) return;
    wn__sim.count.switches++;
    wn__sim_now = t;
    change(from, t != NULL ? t->stack_pointer : scheduler, t != NULL ? t->stack : -1);
}

static void wait_here(int state)
{
    wn__sim_thread *me = wn__sim_now;
    me->state = state;
    leave(&me->stack_pointer);
    wn__sim_now = me;
}

static void wake(wn__sim_thread *t)
{
    t->state = READY;
    block.ready.push_back(t->number);
}

/* ---- barriers and warps ----------------------------------------------------------------------------------------- */

static void open_barrier(void)
{
    if (block.waiting == 0 || block.waiting != block.alive) return;
    block.waiting = 0;
    wn__sim_hooks_barrier();
    for (unsigned i : block.order)
        if (block.thread[i].state == AT_BARRIER) wake(&block.thread[i]);
}

void wn__sim_syncthreads(int line)
{
    wn__sim_thread *me = wn__sim_now;
    if (block.waiting == 0) block.line = line;
    if (block.line != line)
        wn__sim_give_up("threads of a block wait at different __syncthreads", me->number, me->number);
    me->state = AT_BARRIER;
    block.waiting++;
    open_barrier();
    leave(&me->stack_pointer);
    wn__sim_now = me;
}

/* Opens a meeting for the lanes of a mask. Returns its number. */
static int open_meeting(unsigned mask, const char *what)
{
    unsigned first = wn__sim_now->warp * 32;
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        if (first + i >= block.thread.size() || block.thread[first + i].state == ENDED) {
            wn__sim_give_up("a warp operation names a lane that has left", wn__sim_now->number, first + i);
            break;
        }
    }
    size_t k = 0;
    while (k < block.meetings.size() && block.meetings[k].is_open) k++;
    if (k == block.meetings.size()) block.meetings.push_back(meeting{});
    block.meetings[k] = meeting{mask, 0, 0, true, false, what, {0}};
    block.of_warp[wn__sim_now->warp].push_back((int)k);
    return (int)k;
}

const uint64_t *wn__sim_meet(unsigned mask, uint64_t value, const char *what)
{
    wn__sim_thread *me = wn__sim_now;
    unsigned bit = 1u << me->lane;
    int k = -1;
    if (!(mask & bit)) wn__sim_give_up("a thread is not in the mask that it names", me->number, me->number);
    for (int i : block.of_warp[me->warp])
        if (!block.meetings[i].is_full && block.meetings[i].mask == mask && !(block.meetings[i].came & bit)) k = i;
    if (k < 0) k = open_meeting(mask, what);
    if (strcmp(block.meetings[k].what, what) != 0)
        wn__sim_give_up("lanes of a warp meet in different operations", me->number, me->number);
    block.meetings[k].given[me->lane] = value;
    block.meetings[k].came |= bit;
    me->meeting = k;
    if (block.meetings[k].came != mask) {
        wait_here(IN_WARP);
        return block.meetings[k].given;
    }
    block.meetings[k].is_full = true;
    wn__sim_hooks_warp(me->warp, mask);
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        wn__sim_thread *t = &block.thread[me->warp * 32 + i];
        if (t->state == IN_WARP && t->meeting == k) wake(t);
    }
    return block.meetings[k].given;
}

void wn__sim_part(void)
{
    int k = wn__sim_now->meeting;
    block.meetings[k].left |= 1u << wn__sim_now->lane;
    if (block.meetings[k].left != block.meetings[k].mask) return;
    std::vector<int> &open = block.of_warp[wn__sim_now->warp];
    block.meetings[k].is_open = false;
    open.erase(std::find(open.begin(), open.end(), k));
}

bool wn__sim_is_first(void)
{
    return block.meetings[wn__sim_now->meeting].left == 0;
}

/* Ends the running thread, and finds what waits for it in vain. */
static void end_thread(void)
{
    wn__sim_thread *me = wn__sim_now;
    wn__sim_end_copies();
    me->state = ENDED;
    block.alive--;
    for (int i : block.of_warp[me->warp])
        if (!block.meetings[i].is_full && (block.meetings[i].mask >> me->lane & 1))
            wn__sim_give_up("a thread has left while its warp waits for it", me->number, me->number);
    open_barrier();
}

/* Begins a fiber: runs threads one after the other, until one of those that wait must go on first. */
WITHOUT_RED_ZONES static void run_threads(void)
{
    begin_fiber();
    for (;;) {
        int stack = wn__sim_now->stack;
        (*block.body)();
        end_thread();
        if (!block.is_given_up && block.begun < block.order.size()) {
            wn__sim_now = begin_next();
            wn__sim_now->stack = stack;
            continue;
        }
        void *nowhere;
        idle.push_back(stack);
        leave(&nowhere);
    }
}

/* ---- blocks ----------------------------------------------------------------------------------------------------- */

/* The thread-local bytes of this library, which are the static shared memory of its kernels. */
struct image {
    char *at;
    size_t bytes;
};
static int find_image(struct dl_phdr_info *info, size_t, void *out)
{
    const char *here = (const char *)&wn__sim_now;
    bool is_mine = false;
    size_t bytes = 0;
    for (int k = 0; k < info->dlpi_phnum; k++) {
        const char *from = (const char *)info->dlpi_addr + info->dlpi_phdr[k].p_vaddr;
        size_t size = info->dlpi_phdr[k].p_memsz;
        if (info->dlpi_phdr[k].p_type == PT_LOAD && here >= from && here < from + size) is_mine = true;
        if (info->dlpi_phdr[k].p_type == PT_TLS) bytes = size;
    }
    if (!is_mine) return 0;
    ((image *)out)->at = (char *)info->dlpi_tls_data;
    ((image *)out)->bytes = bytes;
    return 1;
}

static image shared_image(void)
{
    static thread_local volatile char touched; /* makes the loader take the image */
    static image found;
    touched = (char)(touched + 1);
    if (found.at == NULL) dl_iterate_phdr(find_image, &found);
    return found;
}

bool wn__sim_is_shared(const void *p, size_t bytes)
{
    const char *at = (const char *)p, *dynamic = block.dynamic.data();
    image shared = shared_image();
    return (at >= shared.at && at + bytes <= shared.at + shared.bytes) ||
           (at >= dynamic && at + bytes <= dynamic + block.dynamic_bytes);
}

/* Fills shared memory with NaN, and brings all threads back to their beginning. */
static void begin_block(void)
{
    unsigned n = (unsigned)block.thread.size();
    image shared = shared_image();
    if (shared.at != NULL) memset(shared.at, 0xff, shared.bytes);
    memset(block.dynamic.data(), 0xff, block.dynamic_bytes);
    wn__sim_hooks_block();
    wn__sim_forget_copies(n);
    if (wn__sim.threads == WN_SIM_SHUFFLED)
        std::shuffle(block.order.begin(), block.order.end(), std::minstd_rand((unsigned)wn__sim_random()));
    for (wn__sim_thread &t : block.thread) t.state = NEW;
    block.alive = n;
    block.waiting = block.begun = 0;
    block.ready.clear();
    block.meetings.clear();
    block.of_warp.assign((n + 31) / 32, std::vector<int>());
}

/* Ends a block in which no thread can run: names one that waits at a barrier, and one that waits for its warp. */
static void give_up_deadlock(void)
{
    unsigned at_barrier = 0, in_warp = 0;
    for (const wn__sim_thread &t : block.thread) {
        if (t.state == AT_BARRIER) at_barrier = t.number;
        if (t.state == IN_WARP) in_warp = t.number;
    }
    wn__sim_give_up("every thread waits, at __syncthreads or for its warp, and none can run", at_barrier, in_warp);
}

static void end_block(void)
{
    wn__sim_now = NULL;
    wn__sim_hooks_block_end();
    wn__sim.count.blocks++;
    wn__sim.count.threads += (int64_t)block.thread.size();
    for (size_t i = block.dynamic_bytes; i < block.dynamic.size() && !block.is_given_up; i++)
        if (block.dynamic[i] != DYNAMIC_BYTE) wn__sim_give_up("a write past the end of dynamic shared memory", 0, 0);
    if (!block.is_given_up) return;
    idle.clear(); /* fibers that were given up are begun anew */
    for (size_t i = 0; i < stacks.size(); i++) {
        clean_stack(stacks[i]);
        idle.push_back((int)i);
    }
}

static void run_block(void)
{
    begin_block();
    while (block.alive > 0 && !block.is_given_up) {
        wn__sim_thread *t = pick();
        if (t == NULL) {
            give_up_deadlock();
            break;
        }
        wn__sim_now = t;
        wn__sim.count.switches++;
        change(&scheduler, t->stack_pointer, t->stack);
    }
    end_block();
}

void wn__sim_run(const struct wn__sim_grid &g, const std::function<void()> &kernel)
{
    unsigned n = g.threads.x * g.threads.y * g.threads.z;
    uint64_t blocks = (uint64_t)g.blocks.x * g.blocks.y * g.blocks.z;
    block.kernel = g.name;
    block.body = &kernel;
    block.is_given_up = false;
    block.dynamic_bytes = g.shared;
    block.dynamic.assign(g.shared + DYNAMIC_ZONE, DYNAMIC_BYTE);
    block.thread.assign(n, wn__sim_thread{});
    block.order.resize(n);
    wn__sim_block_dim = g.threads;
    wn__sim_grid_dim = g.blocks;
    for (unsigned i = 0; i < n; i++) {
        wn__sim_thread *t = &block.thread[i];
        t->number = i;
        t->lane = i % 32;
        t->warp = i / 32;
        t->at = uint3{i % g.threads.x, i / g.threads.x % g.threads.y, i / (g.threads.x * g.threads.y)};
        block.order[i] = wn__sim.threads == WN_SIM_REVERSE ? n - 1 - i : i;
    }
    wn__sim_hooks_launch(g.name);
    for (uint64_t i = 0; i < blocks && !block.is_given_up; i++) {
        uint64_t k = wn__sim.threads == WN_SIM_REVERSE ? blocks - 1 - i : i;
        wn__sim_block = uint3{(unsigned)(k % g.blocks.x), (unsigned)(k / g.blocks.x % g.blocks.y),
                              (unsigned)(k / ((uint64_t)g.blocks.x * g.blocks.y))};
        run_block();
    }
}
