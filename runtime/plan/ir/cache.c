/* Keeps the cache as a list, the thing that was used last first. A step finds its plan at the front; a miss compares
 * one hash an entry, which is nothing beside the planning that follows. */
#include "cache.h"
#include <string.h>
#include "../../base/alloc.h"
#include "../../graph/encode.h"

struct entry {
    struct entry *next;
    struct wn__cache_key key; /* its parts lie behind the entry */
    uint64_t hash;
    void *thing;
    void (*drop)(void *thing);
    int64_t bytes; /* of the thing and the key */
};
static struct entry *first;
static int64_t made[WN_CACHED_KINDS];
int64_t wn__cache_most = 64 << 20;

static uint64_t hash_of(const struct wn__cache_key *k)
{
    return wn__bytes_hash(k->part[0], k->bytes[0]) * 31 + wn__bytes_hash(k->part[1], k->bytes[1]) + k->kind;
}

static int32_t is_part(const struct wn__cache_key *a, const struct wn__cache_key *b, int32_t i)
{
    if (a->bytes[i] != b->bytes[i]) return 0;
    return a->bytes[i] == 0 || memcmp(a->part[i], b->part[i], (size_t)a->bytes[i]) == 0;
}

/* Takes the entry of a key out of the list. NULL: there is none. */
static struct entry *take(const struct wn__cache_key *key)
{
    uint64_t hash = hash_of(key);
    for (struct entry **at = &first; *at != NULL; at = &(*at)->next) {
        struct entry *e = *at;
        if (e->hash != hash || e->key.kind != key->kind || !is_part(&e->key, key, 0) || !is_part(&e->key, key, 1))
            continue;
        *at = e->next;
        return e;
    }
    return NULL;
}

static void put_first(struct entry *e)
{
    e->next = first;
    first = e;
}

static void release(struct entry *e)
{
    if (e == NULL) return;
    e->drop(e->thing);
    wn__free(e);
}

/* Drops every entry behind *at. */
static void cut_behind(struct entry **at)
{
    while (*at != NULL) {
        struct entry *e = *at;
        *at = e->next;
        release(e);
    }
}

void *wn__cached(const struct wn__cache_key *key)
{
    struct entry *e = take(key);
    if (e == NULL) return NULL;
    put_first(e);
    return e->thing;
}

int32_t wn__cache_keep(const struct wn__cache_key *key, void *thing, int64_t bytes, void (*drop)(void *thing))
{
    int64_t n = key->bytes[0] + key->bytes[1];
    struct entry *e = wn__alloc((int64_t)sizeof *e + n);
    if (e == NULL) {
        drop(thing);
        return WN_OOM;
    }
    *e = (struct entry){.key = *key, .hash = hash_of(key), .thing = thing, .drop = drop, .bytes = bytes + n};
    uint8_t *to = (uint8_t *)(e + 1);
    for (int32_t i = 0; i < 2; to += key->bytes[i++]) {
        if (key->bytes[i] > 0) memcpy(to, key->part[i], (size_t)key->bytes[i]);
        e->key.part[i] = to;
    }
    put_first(e);
    made[key->kind]++;
    int64_t sum = e->bytes;
    while (e->next != NULL && sum + e->next->bytes <= wn__cache_most) {
        e = e->next;
        sum += e->bytes;
    }
    cut_behind(&e->next);
    return WN_OK;
}

void wn__cache_drop(const struct wn__cache_key *key)
{
    release(take(key));
}

void wn__cache_drop_all(void)
{
    cut_behind(&first);
}

int64_t wn__cache_holds(enum wn__cache_kind kind, int64_t *bytes)
{
    int64_t n = 0;
    *bytes = 0;
    for (const struct entry *e = first; e != NULL; e = e->next) {
        n += e->key.kind == kind;
        *bytes += e->bytes;
    }
    return n;
}

int64_t wn__cache_made(enum wn__cache_kind kind)
{
    return made[kind];
}
