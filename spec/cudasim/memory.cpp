/* Memory of the simulated device: one range of addresses that the host's code cannot touch between kernels and copies.
 *
 *   arena   | allocation | red zone | ... free ... | allocation | red zone |     every allocation begins at 256 bytes
 *
 * The arena begins with a red zone too. What is taken and what is given back is filled with 0xff, a NaN in every
 * float. A red zone has other bytes for each allocation, and is looked at when the allocation is freed and on demand;
 * under AddressSanitizer the first access to one ends the process. Pinned memory of the host is copied when the stream
 * gets there, other memory of the host when the call is made, as in CUDA.
 *
 * A segment is an allocation whose parts a heap gives out, and tells of. Bytes outside of parts are nobody's:
 *
 *   segment   | part | red zone | ... idle ... | part | red zone |     the last red zone is that of the allocation
 *
 * What a stream was given before a part changes hands still finds the part's old bytes, as on a GPU.
 *
 * As the driver does, an allocation of a MiB or more takes whole pages of 2 MiB. */
#include <algorithm>
#include <map>
#include <stdlib.h>
#include <sys/mman.h>
#include "state.h"

enum { ALIGN = 256, RED_ZONE = WN_SIM_GAP, MIB = 1 << 20 };

static const size_t arena_bytes = (size_t)16 << 30; /* of addresses; pages are taken as they are touched */
static char *arena;
static std::map<size_t, size_t> used;     /* offset in the arena -> bytes; at 0 a red zone alone */
static std::map<size_t, size_t> pinned;   /* address -> bytes */
static std::map<size_t, size_t> segments; /* offset of those of `used` -> the end of all parts that it ever had */
static std::map<size_t, size_t> parts;    /* offset in the arena -> bytes */
static int opened;                        /* how often memory was opened */
static size_t top;                        /* the highest byte of the arena that was ever used */
static size_t touched;                    /* bytes of `used` that may be touched: all, or those that parts have had */

/* Under AddressSanitizer these forbid and allow access to bytes of the arena. */
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_poison_memory_region(const volatile void *, size_t);
extern "C" void __asan_unpoison_memory_region(const volatile void *, size_t);
#define FORBID(p, bytes) __asan_poison_memory_region(p, bytes)
#define ALLOW(p, bytes) __asan_unpoison_memory_region(p, bytes)
#define UNSEEN __attribute__((no_sanitize("address")))
#else
#define FORBID(p, bytes) ((void)(p))
#define ALLOW(p, bytes) ((void)(p))
#define UNSEEN
#endif

/* Closes the arena where nobody has opened it. Where more bytes than the guard may be touched it stays open: closing it
 * takes longer than most kernels. Measured: 4 us at 4 KiB, 270 us at 8 MiB, both ways. */
static void protect(void)
{
    bool is_closed = opened == 0 && (int64_t)touched <= wn__sim.guard;
    if (top > 0) mprotect(arena, top, is_closed ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void wn__sim_open_memory(int32_t open)
{
    opened += open ? 1 : -1;
    if ((int64_t)touched <= wn__sim.guard && opened == (open ? 1 : 0)) protect();
}

void wn_sim_guard(int64_t bytes)
{
    wn__sim.guard = bytes;
    protect();
}

static size_t span(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN + RED_ZONE;
}

/* Returns byte k of the red zone of the allocation at an offset: parts of NaNs that differ between allocations. */
static unsigned char red_byte(size_t offset, size_t k)
{
    unsigned word = 0xff80ff81u + (unsigned)(offset / ALIGN % 120) * 0x00010001u;
    return (unsigned char)(word >> k % 4 * 8);
}

/* Returns whether the red zone of an allocation was written, and reports it. */
UNSEEN static bool is_overrun(size_t offset, size_t bytes)
{
    for (size_t k = bytes; k < span(bytes); k++) {
        if ((unsigned char)arena[offset + k] == red_byte(offset, k)) continue;
        wn__sim_fault(cudaSuccess, "something wrote byte %zu of an allocation of %zu bytes", k, bytes);
        return true;
    }
    return false;
}

/* Fills an allocation with NaN, and its red zone. */
static void fill(size_t offset, size_t bytes)
{
    wn__sim_open_memory(1);
    ALLOW(arena + offset, span(bytes));
    memset(arena + offset, 0xff, bytes);
    for (size_t k = bytes; k < span(bytes); k++) arena[offset + k] = (char)red_byte(offset, k);
    FORBID(arena + offset + bytes, span(bytes) - bytes);
    wn__sim_open_memory(0);
}

/* Returns the offset of a free range; arena_bytes: there is none. */
static size_t find_room(size_t bytes)
{
    size_t at = 0;
    for (const auto &u : used) {
        if (u.first - at >= span(bytes)) return at;
        at = u.first + span(u.second);
    }
    return at + span(bytes) <= arena_bytes ? at : arena_bytes;
}

/* Notes that [from, end) may be touched: bytes beyond the top are open from then on, or closed as the others are. */
static void reach(size_t from, size_t end)
{
    touched += end - from;
    top = std::max(top, (end + 4095) / 4096 * 4096);
    protect();
}

static void make_arena(void)
{
    arena = (char *)mmap(NULL, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    reach(0, span(0));
    used[0] = 0;
    fill(0, 0);
}

/* Returns the bytes that the driver takes for an allocation. Those below a MiB share pages, which is not shown. */
static int64_t charge(size_t bytes)
{
    return (int64_t)(bytes < MIB ? bytes : (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
}

static void count(int64_t live, int64_t taken)
{
    wn__sim.count.live += live;
    wn__sim.count.taken += taken;
    wn__sim.count.peak = std::max(wn__sim.count.peak, wn__sim.count.live);
}

/* Takes an allocation: *p is NULL where there is none. Its bytes are not touched yet. */
static cudaError_t take(void **p, size_t bytes)
{
    *p = NULL;
    cudaError_t forbidden = wn__sim_capture_forbids();
    if (forbidden != cudaSuccess) return forbidden;
    if (wn__sim_must_fail(WN_SIM_MALLOC)) return cudaErrorMemoryAllocation;
    if (bytes == 0) return cudaSuccess;
    if (arena == NULL) make_arena();
    size_t at = wn__sim.count.taken + charge(bytes) > wn__sim.limit ? arena_bytes : find_room(bytes);
    if (at == arena_bytes) return cudaErrorMemoryAllocation;
    used[at] = bytes;
    wn__sim.count.allocations++;
    count((int64_t)bytes, charge(bytes));
    *p = arena + at;
    return cudaSuccess;
}

static size_t offset_of(const void *p)
{
    return (size_t)((const char *)p - arena);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t e = take(p, bytes);
    if (*p == NULL) return wn__sim_result(e);
    reach(offset_of(*p), offset_of(*p) + span(bytes));
    fill(offset_of(*p), bytes);
    return wn__sim_result(e);
}

/* Looks at the red zone of a range that is given back, fills both with NaN, and forbids them. */
static void clear(size_t offset, size_t bytes)
{
    wn__sim_open_memory(1);
    ALLOW(arena + offset, span(bytes));
    if (is_overrun(offset, bytes) && wn__sim.sticky == cudaSuccess) wn__sim.sticky = cudaErrorIllegalAddress;
    memset(arena + offset, 0xff, span(bytes));
    FORBID(arena + offset, span(bytes));
    wn__sim_open_memory(0);
}

cudaError_t cudaFree(void *p)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    wn__sim_drain();
    if (p == NULL) return wn__sim_result(cudaSuccess);
    auto found = used.find(offset_of(p));
    if (found == used.end()) return wn__sim_result(cudaErrorInvalidValue);
    auto segment = segments.find(found->first);
    touched -= segment == segments.end() ? span(found->second) : segment->second;
    if (segment == segments.end()) clear(found->first, found->second);
    else segments.erase(segment);
    auto part = parts.lower_bound(found->first), end = parts.lower_bound(found->first + found->second);
    if (part != end)
        wn__sim_fault(cudaErrorIllegalAddress, "a segment of %zu bytes was freed with a part in it", found->second);
    wn__sim.count.parts -= std::distance(part, end);
    parts.erase(part, end);
    count(-(int64_t)found->second, -charge(found->second));
    used.erase(found);
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = (size_t)wn__sim.limit;
    *free_bytes = (size_t)std::max((int64_t)0, wn__sim.limit - wn__sim.count.taken);
    return wn__sim_result(cudaSuccess);
}

void wn_sim_limit(int64_t bytes)
{
    wn__sim.limit = bytes;
}

int32_t wn_sim_overrun(void)
{
    int32_t bad = 0;
    wn__sim_drain();
    wn__sim_open_memory(1);
    for (const auto &u : used) bad |= segments.count(u.first) == 0 && is_overrun(u.first, u.second);
    for (const auto &part : parts) bad |= is_overrun(part.first, part.second);
    wn__sim_open_memory(0);
    return bad;
}

/* ---- segments and their parts ----------------------------------------------------------------------------------- */

/* Returns the last range of a map that begins at an offset or before it; end(): none does. */
static std::map<size_t, size_t>::iterator before(std::map<size_t, size_t> &ranges, size_t at)
{
    auto next = ranges.upper_bound(at);
    return next == ranges.begin() ? ranges.end() : --next;
}

cudaError_t wn__sim_segment(void **p, size_t bytes)
{
    cudaError_t e = take(p, bytes);
    if (*p != NULL) {
        segments[offset_of(*p)] = 0;
        FORBID(*p, span(bytes));
    }
    return wn__sim_result(e);
}

/* Looks whether bytes that are nobody's are still those that a part left there. */
UNSEEN static void look_at_idle(size_t offset, size_t bytes)
{
    for (size_t k = 0; k < bytes; k++) {
        if ((unsigned char)arena[offset + k] == 0xff) continue;
        wn__sim_fault(cudaErrorIllegalAddress, "something wrote byte %zu of idle memory of a segment", k);
        return;
    }
}

void wn__sim_part_take(void *p, size_t bytes, cudaStream_t s)
{
    const size_t at = offset_of(p), end = at + span(bytes);
    auto owner = before(segments, at);
    auto last = before(parts, end - 1);
    bool is_inside = owner != segments.end() && end <= owner->first + span(used[owner->first]);
    if (!is_inside || at % ALIGN != 0 || (last != parts.end() && last->first + span(last->second) > at)) {
        wn__sim_fault(cudaErrorIllegalAddress, "a part of %zu bytes is %s", bytes,
                      !is_inside ? "outside of its segment" : "where another one is");
        return;
    }
    parts[at] = bytes;
    wn__sim.count.parts++;
    const size_t reached = owner->first + owner->second;
    if (end > reached) reach(reached, end);
    owner->second = std::max(reached, end) - owner->first;
    wn__sim_enqueue(s, [=] {
        wn__sim_open_memory(1);
        if (at < reached) look_at_idle(at, std::min(end, reached) - at);
        wn__sim_open_memory(0);
        fill(at, bytes);
    });
}

void wn__sim_part_give(void *p, cudaStream_t s)
{
    auto found = parts.find(offset_of(p));
    if (found == parts.end()) {
        wn__sim_fault(cudaErrorIllegalAddress, "a part is given back that nobody has");
        return;
    }
    const size_t at = found->first, bytes = found->second;
    parts.erase(found);
    wn__sim.count.parts--;
    wn__sim_enqueue(s, [=] { clear(at, bytes); });
}

bool wn__sim_is_device(const void *p, size_t bytes)
{
    const char *at = (const char *)p;
    return arena != NULL && at >= arena && at + bytes <= arena + arena_bytes;
}

cudaError_t cudaDeviceReset(void)
{
    wn__sim_drain();
    while (used.size() > 1) cudaFree(arena + used.rbegin()->first);
    wn_sim_mend();
    return cudaSuccess;
}

/* ---- the host's memory, and copies ------------------------------------------------------------------------------ */

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    *p = NULL;
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    if (wn__sim_must_fail(WN_SIM_HOST_ALLOC)) return wn__sim_result(cudaErrorMemoryAllocation);
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*p == NULL) return wn__sim_result(cudaErrorMemoryAllocation);
    memset(*p, 0xff, bytes);
    pinned[(size_t)*p] = bytes;
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaFreeHost(void *p)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    wn__sim_drain();
    pinned.erase((size_t)p);
    free(p);
    return wn__sim_result(cudaSuccess);
}

/* Returns whether `bytes` from `at` are inside one range of a map. */
static bool is_within(std::map<size_t, size_t> &ranges, size_t at, size_t bytes)
{
    auto found = before(ranges, at);
    return found != ranges.end() && at + bytes <= found->first + found->second;
}

/* Returns whether `bytes` at p are inside one allocation, and inside one part where that is a segment. */
static bool is_on_device(const void *p, size_t bytes)
{
    if (!wn__sim_is_device(p, bytes) || !is_within(used, offset_of(p), bytes)) return false;
    return segments.count(before(used, offset_of(p))->first) == 0 || is_within(parts, offset_of(p), bytes);
}

static bool fits(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    bool there = is_on_device(to, bytes), here = is_on_device(from, bytes);
    return kind == cudaMemcpyHostToDevice   ? there && !here
           : kind == cudaMemcpyDeviceToHost ? !there && here
                                            : kind == cudaMemcpyDeviceToDevice && there && here;
}

static void move(void *to, const void *from, size_t bytes)
{
    wn__sim_open_memory(1);
    if (wn__sim.sticky == cudaSuccess) memcpy(to, from, bytes);
    wn__sim_open_memory(0);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
    if (wn__sim_must_fail(WN_SIM_COPY)) return wn__sim_result(cudaErrorInvalidValue);
    if (bytes == 0) return wn__sim_result(cudaSuccess);
    if (kind == cudaMemcpyDefault)
        kind = !is_on_device(to, bytes)    ? cudaMemcpyDeviceToHost
               : is_on_device(from, bytes) ? cudaMemcpyDeviceToDevice
                                           : cudaMemcpyHostToDevice;
    if (!fits(to, from, bytes, kind)) {
        wn__sim_fault(cudaErrorIllegalAddress, "a copy of %zu bytes does not fit its direction or its allocation",
                      bytes);
        return wn__sim_result(cudaErrorInvalidValue);
    }
    bool is_pinned = is_within(pinned, (size_t)(kind == cudaMemcpyHostToDevice ? from : to), bytes);
    if (wn__sim_is_capturing(s) && kind != cudaMemcpyDeviceToDevice && !is_pinned)
        WN_SIM_REFUSE(wn__sim_capture_forbids());
    wn__sim.count.copies++;
    if (kind == cudaMemcpyHostToDevice) wn__sim.count.to_device += (int64_t)bytes;
    if (kind == cudaMemcpyDeviceToHost) wn__sim.count.to_host += (int64_t)bytes;
    if (kind == cudaMemcpyHostToDevice && !is_pinned) {
        char *staged = (char *)malloc(bytes);
        memcpy(staged, from, bytes);
        wn__sim_enqueue(s, [=] {
            move(to, staged, bytes);
            free(staged);
        });
        return wn__sim_result(cudaSuccess);
    }
    wn__sim_enqueue(s, [=] { move(to, from, bytes); });
    if (kind == cudaMemcpyDeviceToHost && !is_pinned) return cudaStreamSynchronize(s);
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    cudaError_t e = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return e == cudaSuccess ? cudaStreamSynchronize(NULL) : e;
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s)
{
    if (!is_on_device(to, bytes)) return wn__sim_result(cudaErrorInvalidValue);
    wn__sim_enqueue(s, [=] {
        wn__sim_open_memory(1);
        if (wn__sim.sticky == cudaSuccess) memset(to, byte, bytes);
        wn__sim_open_memory(0);
    });
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes)
{
    WN_SIM_REFUSE(wn__sim_capture_forbids());
    return cudaMemsetAsync(to, byte, bytes, NULL);
}
