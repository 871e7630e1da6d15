/* The heap of the GPU: gives out parts of segments, which are what cudaMalloc gives. The driver takes whole pages of
 * 2 MiB for an allocation of a MiB or more, and waits for the device when one is freed, so:
 *
 *   alone   | part                                              |   a part of a MiB or more; given back with it
 *   small   | part | part | idle | part | idle                  |   2 MiB for parts that are smaller
 *   group   | part | part | part |          ...          | part |   exactly what a hint has told of, of any size
 *
 * A part goes to the least idle range of its kind that holds it. A segment without parts is given back at once, but for
 * one of the small ones, which a trim gives back. So what cudaMemGetInfo counts exceeds the parts by less than 2 MiB
 * for each segment, and by the parts of groups that were given back before the last of their group.
 *
 * Where the GPU has no memory left, empty segments are given back, then idle ranges of any kind are used.
 *
 * Parts change hands in the order of the compute stream: what it was given before still finds the old bytes. */
#include "device.cuh"

enum { GRANULE = 256 }; /* parts begin at multiples */
static const int64_t LARGE = 1 << 20, SMALL_BYTES = 2 << 20;

#ifdef WN_SIMULATED
/* The simulated device has red zones between parts. A segment is GAP longer than its bytes: the simulation has a red
 * zone behind them. */
enum { GAP = WN_SIM_GAP };
#define TAKE_SEGMENT(p, bytes) wn__sim_segment(p, bytes)
#define TELL_TAKEN(p, bytes) wn__sim_part_take(p, bytes, wn__gpu.compute)
#define TELL_GIVEN(p) wn__sim_part_give(p, wn__gpu.compute)
#else
enum { GAP = 0 };
#define TAKE_SEGMENT(p, bytes) cudaMalloc(p, bytes)
#define TELL_TAKEN(p, bytes) (void)0
#define TELL_GIVEN(p) (void)0
#endif

enum kind { ALONE, SMALL, GROUP, KINDS };

struct block {
    int64_t at, bytes; /* offset in the segment */
    int32_t is_idle;
};

/* Invariant: the blocks are in the order of their offsets and cover [0, bytes + GAP) without overlap; no two idle ones
 * are neighbours; `most` is the bytes of the largest idle one, 0 where there is none. */
struct segment {
    struct segment *next;
    char *base;
    enum kind kind;
    int64_t bytes, most;
    int64_t n, room;
    struct block *block; /* (room) n of them are used */
};

/* A place for a part: an idle block of a segment. */
struct place {
    struct segment *segment; /* NULL: there is none */
    int64_t block;
};

static struct segment *segments;

/* The allocations that a hint has told of and that were not asked for yet. */
static struct {
    int64_t bytes, count;    /* of parts, with the gaps behind them; and how many there are */
    struct segment *segment; /* that they are taken from, once the first was */
} coming;

/* ---- blocks of a segment --------------------------------------------------------------------------------------- */

static void find_most(struct segment *s)
{
    s->most = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->block[i].is_idle) s->most = wn_max(s->most, s->block[i].bytes);
}

/* Makes room for one block more. WN_OOM. */
static int32_t make_room(struct segment *s)
{
    if (s->n < s->room) return WN_OK;
    struct block *more = (struct block *)wn__gpu.host->alloc(2 * s->room * (int64_t)sizeof *more);
    if (more == NULL) return WN_OOM;
    memcpy(more, s->block, (size_t)s->n * sizeof *more);
    wn__gpu.host->free(s->block);
    s->block = more;
    s->room *= 2;
    return WN_OK;
}

/* Gives the bytes of block i + 1 to block i. */
static void join(struct segment *s, int64_t i)
{
    s->block[i].bytes += s->block[i + 1].bytes;
    s->n--;
    memmove(&s->block[i + 1], &s->block[i + 2], (size_t)(s->n - i - 1) * sizeof *s->block);
}

/* Makes the first `bytes` of an idle block a part: *out is its address. WN_OOM. */
static int32_t take_block(struct place p, int64_t bytes, void **out)
{
    struct segment *s = p.segment;
    WN_TRY(make_room(s));
    struct block *b = &s->block[p.block];
    const int64_t left = b->bytes - bytes;
    if (left > 0) {
        memmove(b + 2, b + 1, (size_t)(s->n - p.block - 1) * sizeof *b);
        b[1].at = b->at + bytes;
        b[1].bytes = left;
        b[1].is_idle = 1;
        s->n++;
    }
    const int32_t was_most = b->bytes == s->most;
    b->bytes = bytes;
    b->is_idle = 0;
    if (was_most) find_most(s);
    *out = s->base + b->at;
    return WN_OK;
}

/* Makes the block at an offset idle, and joins it with idle neighbours. */
static void give_block(struct segment *s, int64_t at)
{
    int64_t i = 0, end = s->n;
    while (end - i > 1) {
        const int64_t middle = i + (end - i) / 2;
        if (s->block[middle].at <= at) i = middle;
        else end = middle;
    }
    s->block[i].is_idle = 1;
    if (i + 1 < s->n && s->block[i + 1].is_idle) join(s, i);
    if (i > 0 && s->block[i - 1].is_idle) join(s, --i);
    s->most = wn_max(s->most, s->block[i].bytes);
}

/* Makes *best the least idle block of a segment that holds `bytes`, where that is less than what it is already. */
static void look_into(struct segment *s, int64_t bytes, struct place *best)
{
    if (s->most < bytes) return;
    for (int64_t i = 0; i < s->n; i++) {
        const struct block *b = &s->block[i];
        if (!b->is_idle || b->bytes < bytes) continue;
        if (best->segment != NULL && best->segment->block[best->block].bytes <= b->bytes) continue;
        best->segment = s;
        best->block = i;
    }
}

/* Returns the least idle block that holds `bytes`, of the segments of a kind; KINDS: of all. */
static struct place find_block(int32_t kind, int64_t bytes)
{
    struct place best = {NULL, 0};
    for (struct segment *s = segments; s != NULL; s = s->next)
        if (kind == KINDS || s->kind == kind) look_into(s, bytes, &best);
    return best;
}

/* ---- segments --------------------------------------------------------------------------------------------------- */

static int32_t is_empty(const struct segment *s)
{
    return s->n == 1 && s->block[0].is_idle;
}

static void free_segment(struct segment *s)
{
    wn__gpu.host->free(s->block);
    wn__gpu.host->free(s);
}

/* Gives a segment back that has no parts. */
static void drop(struct wn_device *d, struct segment *s)
{
    struct segment **link = &segments;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    if (coming.segment == s) coming.segment = NULL;
    if (d->lost == NULL) (void)wn__gpu_check(d, cudaFree(s->base), "giving memory back");
    free_segment(s);
}

/* Gives back the segments that have no parts. Returns how many there were. */
static int32_t drop_empty(struct wn_device *d)
{
    int32_t n = 0;
    for (struct segment *s = segments, *next; s != NULL; s = next) {
        next = s->next;
        if (!is_empty(s)) continue;
        drop(d, s);
        n++;
    }
    return n;
}

/* Takes memory of the GPU: *out is NULL where it has none, also without the segments that have no parts. */
static int32_t take_memory(struct wn_device *d, int64_t bytes, char **out)
{
    cudaError_t e;
    do {
        *out = NULL;
        e = TAKE_SEGMENT((void **)out, (size_t)bytes);
        if (e == cudaErrorMemoryAllocation) (void)cudaGetLastError();
    } while (e == cudaErrorMemoryAllocation && drop_empty(d) > 0);
    return e == cudaErrorMemoryAllocation ? WN_OK : wn__gpu_check(d, e, "taking memory");
}

/* Makes a segment of one idle block: place->segment is NULL where the GPU has no memory for it. count: parts that are
 * expected. */
static int32_t make_segment(struct wn_device *d, enum kind kind, int64_t bytes, int64_t count, struct place *out)
{
    struct segment *s = (struct segment *)wn__gpu.host->alloc((int64_t)sizeof *s);
    out->segment = NULL;
    out->block = 0;
    if (s == NULL) return WN_OOM;
    s->room = count + 1;
    s->block = (struct block *)wn__gpu.host->alloc(s->room * (int64_t)sizeof *s->block);
    int32_t code = s->block == NULL ? WN_OOM : take_memory(d, bytes, &s->base);
    if (code != WN_OK || s->base == NULL) {
        free_segment(s);
        return code;
    }
    s->kind = kind;
    s->bytes = bytes;
    s->most = bytes + GAP;
    s->n = 1;
    s->block[0].bytes = bytes + GAP;
    s->block[0].is_idle = 1;
    s->next = segments;
    segments = s;
    out->segment = s;
    return WN_OK;
}

/* ---- a place for a part ------------------------------------------------------------------------------------------ */

/* Finds a place among those of the group that comes: in a range that holds all of it. */
static int32_t find_in_group(struct wn_device *d, int64_t bytes, struct place *out)
{
    if (coming.segment == NULL) {
        *out = find_block(GROUP, coming.bytes);
        if (out->segment == NULL) WN_TRY(make_segment(d, GROUP, coming.bytes - GAP, coming.count, out));
        coming.segment = out->segment;
    }
    out->segment = NULL;
    if (coming.segment != NULL) look_into(coming.segment, bytes, out);
    coming.bytes -= bytes;
    coming.count--;
    return WN_OK;
}

/* Finds a place for a part that no hint told of. */
static int32_t find_single(struct wn_device *d, int64_t bytes, struct place *out)
{
    const int64_t own = bytes - GAP;
    if (own < LARGE) *out = find_block(SMALL, bytes);
    if (own < LARGE && out->segment == NULL) WN_TRY(make_segment(d, SMALL, SMALL_BYTES, 31, out));
    if (out->segment == NULL) WN_TRY(make_segment(d, own < LARGE ? SMALL : ALONE, own, 1, out));
    if (out->segment == NULL) *out = find_block(KINDS, bytes);
    return WN_OK;
}

void wn__gpu_room(struct wn_device *d, struct wn_room *out)
{
    size_t free_bytes = 0, total = 0;
    memset(out, 0, sizeof *out);
    if (d->lost != NULL || !wn__gpu.is_ready) return;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) (void)cudaGetLastError();
    out->total = (int64_t)total;
    out->free = (int64_t)free_bytes;
    for (const struct segment *s = segments; s != NULL; s = s->next) {
        out->taken += s->bytes;
        out->segments++;
    }
}

static int32_t refuse(struct wn_device *d, int64_t bytes)
{
    struct wn_room room;
    wn__gpu_room(d, &room);
    const int64_t others = wn_max(0, room.total - room.free - room.taken);
    return wn__fail(WN_OOM,
                    "out of memory: %lld bytes wanted on cuda, %lld of %lld are free; this process holds %lld in %d "
                    "segments, other processes and the driver %lld; free values, recompute more, or end what else "
                    "uses the GPU",
                    (long long)bytes, (long long)room.free, (long long)room.total, (long long)room.taken,
                    (int)room.segments, (long long)others);
}

int32_t wn__gpu_alloc(struct wn_device *d, int64_t bytes, void **out)
{
    const int64_t need = wn_round_up(bytes, GRANULE) + GAP;
    struct place place = {NULL, 0};
    WN_TRY(wn__gpu_ready(d));
    if (coming.bytes >= need) WN_TRY(find_in_group(d, need, &place));
    if (place.segment == NULL) WN_TRY(find_single(d, need, &place));
    if (place.segment == NULL) return refuse(d, bytes);
    int32_t code = take_block(place, need, out);
    if (code == WN_OK) TELL_TAKEN(*out, (size_t)bytes);
    else if (is_empty(place.segment)) drop(d, place.segment);
    return code;
}

void wn__gpu_hint(struct wn_device *d, int64_t bytes, int64_t count)
{
    (void)d;
    coming.bytes = bytes < LARGE ? 0 : bytes + count * GAP;
    coming.count = count;
    coming.segment = NULL;
}

void wn__gpu_release(struct wn_device *d, void *p, int64_t bytes)
{
    struct segment *s = segments;
    int32_t spare = 0;
    (void)bytes;
    while (s != NULL && ((char *)p < s->base || (char *)p >= s->base + s->bytes)) s = s->next;
    if (s == NULL) return;
    TELL_GIVEN(p);
    give_block(s, (char *)p - s->base);
    if (!is_empty(s)) return;
    for (const struct segment *other = segments; other != NULL; other = other->next)
        spare |= other != s && other->kind == SMALL && is_empty(other);
    if (spare || s->kind != SMALL || s->bytes != SMALL_BYTES) drop(d, s);
}

void wn__gpu_trim(struct wn_device *d)
{
    (void)drop_empty(d);
}
