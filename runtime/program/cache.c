/* The plan cache: see cache.h. A table of 64 is scanned, for a compare of hashes costs less than any structure
 * would. IR and schedule are counted, so that a plan in use outlives its entry. */
#include "cache.h"
#include <string.h>

#define MOST_PLANS 64

struct entry {
    uint64_t hash;
    int64_t used; /* tick of the cache's clock at its last hit */
    uint8_t *key;
    int64_t key_bytes;
    struct wn__ir *ir;
    struct wn__schedule *schedule;
};
static struct entry table[MOST_PLANS];
static int64_t now, made;

static struct entry *find(const uint8_t *key, int64_t n, uint64_t hash)
{
    for (int32_t i = 0; i < MOST_PLANS; i++) {
        struct entry *e = &table[i];
        if (e->ir != NULL && e->hash == hash && e->key_bytes == n && memcmp(e->key, key, (size_t)n) == 0) return e;
    }
    return NULL;
}

struct wn__ir *wn__cache_find(const struct wn__bytes *key, struct wn__schedule **schedule)
{
    struct entry *e = find(key->data, key->count, wn__bytes_hash(key->data, key->count));
    if (e == NULL) return NULL;
    e->used = ++now;
    e->ir->refs++;
    e->schedule->refs++;
    *schedule = e->schedule;
    return e->ir;
}

struct wn__schedule *wn__cache_find_schedule(const struct wn__ir *ir, const char *recipe)
{
    for (int32_t i = 0; i < MOST_PLANS; i++) {
        const struct entry *e = &table[i];
        if (e->ir == NULL || e->ir->key2_bytes != ir->key2_bytes) continue;
        if (memcmp(e->ir->key2, ir->key2, (size_t)ir->key2_bytes) != 0 || strcmp(e->schedule->recipe, recipe) != 0)
            continue;
        e->schedule->refs++;
        return e->schedule;
    }
    return NULL;
}

static void drop(struct entry *e)
{
    wn__free(e->key);
    wn__ir_unref(e->ir);
    wn__schedule_unref(e->schedule);
    memset(e, 0, sizeof *e);
}

int32_t wn__cache_put(const struct wn__bytes *key, struct wn__ir *ir, struct wn__schedule *s)
{
    uint64_t hash = wn__bytes_hash(key->data, key->count);
    if (find(key->data, key->count, hash) != NULL) return WN_OK;
    uint8_t *copy = wn__alloc(key->count);
    if (copy == NULL) return WN_OOM;
    memcpy(copy, key->data, (size_t)key->count);
    struct entry *e = &table[0];
    for (int32_t i = 1; i < MOST_PLANS && e->ir != NULL; i++)
        if (table[i].ir == NULL || table[i].used < e->used) e = &table[i];
    if (e->ir != NULL) drop(e);
    *e = (struct entry){hash, ++now, copy, key->count, ir, s};
    made++;
    ir->refs++;
    s->refs++;
    return WN_OK;
}

void wn__cache_forget(const struct wn__bytes *key)
{
    struct entry *e = find(key->data, key->count, wn__bytes_hash(key->data, key->count));
    if (e != NULL) drop(e);
}

void wn__cache_clear(void)
{
    for (int32_t i = 0; i < MOST_PLANS; i++)
        if (table[i].ir != NULL) drop(&table[i]);
}

int64_t wn__cache_count(void)
{
    int64_t n = 0;
    for (int32_t i = 0; i < MOST_PLANS; i++) n += table[i].ir != NULL;
    return n;
}

int64_t wn__cache_made(void)
{
    return made;
}

int64_t wn__cache_bytes(void)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < MOST_PLANS; i++)
        if (table[i].ir != NULL) bytes += table[i].key_bytes + table[i].ir->pool.bytes + table[i].schedule->pool.bytes;
    return bytes;
}
