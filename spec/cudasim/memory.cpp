/* Memory of the simulated device: one range of addresses that the host's code cannot touch between kernels and copies.
 *
 *   arena   | allocation | red zone | ... free ... | allocation | red zone |     every allocation begins at 256 bytes
 *
 * The arena begins with a red zone too. What is taken and what is given back is filled with 0xff, a NaN in every
 * float. A red zone has other bytes for each allocation, and is looked at when the allocation is freed and on demand;
 * under AddressSanitizer the first access to one ends the process. Pinned memory of the host is copied when the stream
 * gets there, other memory of the host when the call is made, as in CUDA. */
#include <map>
#include <stdlib.h>
#include <sys/mman.h>
#include "state.h"

enum { ALIGN = 256, RED_ZONE = 256 };

static const size_t arena_bytes = (size_t)16 << 30; /* of addresses; pages are taken as they are touched */
static char *arena;
static std::map<size_t, size_t> used;   /* offset in the arena -> bytes; at 0 a red zone alone */
static std::map<size_t, size_t> pinned; /* address -> bytes */
static int opened;                      /* how often memory was opened */
static size_t top;                      /* the highest byte of the arena that was ever used */

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

/* Closes the arena where nobody has opened it. More bytes than the guard stay open: closing them takes longer than most
 * kernels. Measured: 4 us at 4 KiB, 270 us at 8 MiB, both ways. */
static void protect(void)
{
    bool is_closed = opened == 0 && (int64_t)top <= wn__sim.guard;
    if (top > 0) mprotect(arena, top, is_closed ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void wn__sim_open_memory(int32_t open)
{
    opened += open ? 1 : -1;
    if ((int64_t)top <= wn__sim.guard && opened == (open ? 1 : 0)) protect();
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

/* Raises the top: the new bytes are open, or closed as the others are. */
static void reach(size_t end)
{
    if (end <= top) return;
    top = (end + 4095) / 4096 * 4096;
    protect();
}

static void make_arena(void)
{
    arena = (char *)mmap(NULL, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    reach(span(0));
    used[0] = 0;
    fill(0, 0);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = NULL;
    if (wn__sim_must_fail(WN_SIM_MALLOC)) return wn__sim_result(cudaErrorMemoryAllocation);
    if (bytes == 0) return wn__sim_result(cudaSuccess);
    if (arena == NULL) make_arena();
    size_t at = wn__sim.count.live + (int64_t)bytes > wn__sim.limit ? arena_bytes : find_room(bytes);
    if (at == arena_bytes) return wn__sim_result(cudaErrorMemoryAllocation);
    reach(at + span(bytes));
    used[at] = bytes;
    wn__sim.count.allocations++;
    wn__sim.count.live += (int64_t)bytes;
    if (wn__sim.count.live > wn__sim.count.peak) wn__sim.count.peak = wn__sim.count.live;
    fill(at, bytes);
    *p = arena + at;
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaFree(void *p)
{
    cudaDeviceSynchronize();
    if (p == NULL) return wn__sim_result(cudaSuccess);
    auto found = used.find((size_t)((char *)p - arena));
    if (found == used.end()) return wn__sim_result(cudaErrorInvalidValue);
    wn__sim_open_memory(1);
    ALLOW(p, span(found->second));
    if (is_overrun(found->first, found->second) && wn__sim.sticky == cudaSuccess)
        wn__sim.sticky = cudaErrorIllegalAddress;
    memset(p, 0xff, found->second);
    FORBID(p, span(found->second));
    wn__sim_open_memory(0);
    wn__sim.count.live -= (int64_t)found->second;
    used.erase(found);
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = (size_t)wn__sim.limit;
    *free_bytes = (size_t)(wn__sim.limit - wn__sim.count.live);
    return wn__sim_result(cudaSuccess);
}

void wn_sim_limit(int64_t bytes)
{
    wn__sim.limit = bytes;
}

int32_t wn_sim_overrun(void)
{
    int32_t bad = 0;
    cudaDeviceSynchronize();
    wn__sim_open_memory(1);
    for (const auto &u : used) bad |= is_overrun(u.first, u.second);
    wn__sim_open_memory(0);
    return bad;
}

bool wn__sim_is_device(const void *p, size_t bytes)
{
    const char *at = (const char *)p;
    return arena != NULL && at >= arena && at + bytes <= arena + arena_bytes;
}

cudaError_t cudaDeviceReset(void)
{
    cudaDeviceSynchronize();
    while (used.size() > 1) cudaFree(arena + used.rbegin()->first);
    wn_sim_mend();
    return cudaSuccess;
}

/* ---- the host's memory, and copies ------------------------------------------------------------------------------ */

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    *p = NULL;
    if (wn__sim_must_fail(WN_SIM_HOST_ALLOC)) return wn__sim_result(cudaErrorMemoryAllocation);
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*p == NULL) return wn__sim_result(cudaErrorMemoryAllocation);
    memset(*p, 0xff, bytes);
    pinned[(size_t)*p] = bytes;
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return cudaHostAlloc(p, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p)
{
    cudaDeviceSynchronize();
    pinned.erase((size_t)p);
    free(p);
    return wn__sim_result(cudaSuccess);
}

/* Returns whether `bytes` from `at` are inside one range of a map. */
static bool is_within(const std::map<size_t, size_t> &ranges, size_t at, size_t bytes)
{
    auto next = ranges.upper_bound(at);
    if (next == ranges.begin()) return false;
    --next;
    return at + bytes <= next->first + next->second;
}

static bool is_on_device(const void *p, size_t bytes)
{
    return wn__sim_is_device(p, bytes) && is_within(used, (size_t)((const char *)p - arena), bytes);
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
    wn__sim.count.copies++;
    if (kind == cudaMemcpyHostToDevice) wn__sim.count.to_device += (int64_t)bytes;
    if (kind == cudaMemcpyDeviceToHost) wn__sim.count.to_host += (int64_t)bytes;
    if (kind == cudaMemcpyHostToDevice && !is_within(pinned, (size_t)from, bytes)) {
        char *staged = (char *)malloc(bytes);
        memcpy(staged, from, bytes);
        wn__sim_enqueue(s, [=] {
            move(to, staged, bytes);
            free(staged);
        });
        return wn__sim_result(cudaSuccess);
    }
    wn__sim_enqueue(s, [=] { move(to, from, bytes); });
    if (kind == cudaMemcpyDeviceToHost && !is_within(pinned, (size_t)to, bytes)) return cudaStreamSynchronize(s);
    return wn__sim_result(cudaSuccess);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    cudaError_t e = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return e == cudaSuccess ? cudaStreamSynchronize(NULL) : e;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t s)
{
    if (wn__sim_must_fail(WN_SIM_COPY)) return wn__sim_result(cudaErrorInvalidValue);
    if (width == 0 || height == 0) return wn__sim_result(cudaSuccess);
    size_t to_bytes = to_pitch * (height - 1) + width, from_bytes = from_pitch * (height - 1) + width;
    if (kind != cudaMemcpyDeviceToDevice || !is_on_device(to, to_bytes) || !is_on_device(from, from_bytes))
        return wn__sim_result(cudaErrorInvalidValue);
    wn__sim.count.copies++;
    wn__sim_enqueue(s, [=] {
        for (size_t i = 0; i < height; i++) move((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    });
    return wn__sim_result(cudaSuccess);
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
    return cudaMemsetAsync(to, byte, bytes, NULL);
}
