/* Texts and ids that outlive the nodes that carry them: interned names, module paths, checkpoint regions, source lines.
 * Scopes and texts are interned, so that the same module gives the same ids step after step; a region is a new one each
 * time that code enters it. Nothing of this is ever freed. */
#include <stdio.h>
#include <string.h>
#include "../base/alloc.h"
#include "graph.h"

struct name {
    uint64_t hash;
    int32_t id; /* of a line or a scope; -1: none */
    char *text; /* NULL: the slot is empty */
};
/* A hash table of texts, open addressing; it doubles when half of its slots are taken. */
struct names {
    struct name *slot;
    int64_t capacity, count;
};

static uint64_t hash_bytes(uint64_t h, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    return h;
}

/* Returns the slot of a text, or the empty one where it belongs. */
static struct name *names_slot(const struct names *w, const char *text, uint64_t hash)
{
    for (int64_t i = (int64_t)(hash & (uint64_t)(w->capacity - 1));; i = (i + 1) & (w->capacity - 1)) {
        struct name *s = &w->slot[i];
        if (s->text == NULL || (s->hash == hash && strcmp(s->text, text) == 0)) return s;
    }
}

static int32_t names_room(struct names *w)
{
    if (2 * w->count < w->capacity) return WN_OK;
    struct names bigger = {NULL, w->capacity ? 2 * w->capacity : 64, w->count};
    bigger.slot = wn__alloc(bigger.capacity * (int64_t)sizeof *bigger.slot);
    if (bigger.slot == NULL) return WN_OOM;
    for (int64_t i = 0; i < w->capacity; i++)
        if (w->slot[i].text != NULL) *names_slot(&bigger, w->slot[i].text, w->slot[i].hash) = w->slot[i];
    wn__free(w->slot);
    *w = bigger;
    return WN_OK;
}

/* Returns the entry of a text, made with id -1 when it is new; NULL: WN_OOM. */
static struct name *names_find(struct names *w, const char *text)
{
    size_t length = strlen(text);
    uint64_t hash = hash_bytes(14695981039346656037u, text, length);
    if (names_room(w) != WN_OK) return NULL;
    struct name *s = names_slot(w, text, hash);
    if (s->text != NULL) return s;
    char *copy = wn__alloc((int64_t)length + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, length);
    *s = (struct name){hash, -1, copy};
    w->count++;
    return s;
}

const char *wn__intern(const char *text)
{
    static struct names known;
    struct name *s = names_find(&known, text == NULL ? "" : text);
    return s == NULL ? NULL : s->text;
}

static struct wn__scope *scopes; /* [0] is the root */
static int64_t n_scopes, scopes_capacity;

static int32_t scope_add(int32_t parent, const char *name, const char *type)
{
    char path[512];
    const char *above = scopes[parent].path;
    snprintf(path, sizeof path, "%s%s%s", above, above[0] && name[0] ? "." : "", name);
    struct wn__scope s = {parent, wn__intern(name), wn__intern(type), wn__intern(path)};
    if (s.name == NULL || s.type == NULL || s.path == NULL) return WN_OOM;
    WN_TRY(wn__grow(&scopes, &scopes_capacity, n_scopes + 1, sizeof *scopes));
    scopes[n_scopes++] = s;
    return WN_OK;
}

static int32_t scope_root(void)
{
    if (n_scopes > 0) return WN_OK;
    WN_TRY(wn__grow(&scopes, &scopes_capacity, 1, sizeof *scopes));
    scopes[0] = (struct wn__scope){-1, "", "", ""};
    n_scopes = 1;
    return WN_OK;
}

int32_t wn__scope_of(int32_t parent, const char *name, const char *type, int32_t variant)
{
    static struct names keys;
    char key[1024];
    if (scope_root() != WN_OK) return -WN_OOM;
    if (parent < 0 || parent >= n_scopes) return -wn__fail(WN_VALUE, "scope: no scope %d", parent);
    size_t length = strlen(name), type_length = strlen(type);
    if (length > 480 || type_length > 480)
        return -wn__fail(WN_VALUE, "scope: a name of %zu and a type of %zu letters; each may have 480", length,
                         type_length);
    snprintf(key, sizeof key, "%d/%d/%zu/%.480s/%.480s", parent, variant, length, name, type);
    struct name *s = names_find(&keys, key);
    if (s == NULL) return -WN_OOM;
    if (s->id < 0) {
        if (scope_add(parent, name, type) != WN_OK) return -WN_OOM;
        s->id = (int32_t)n_scopes - 1;
    }
    return s->id;
}

const struct wn__scope *wn__scope_get(int32_t id)
{
    static const struct wn__scope root = {-1, "", "", ""};
    return id > 0 && id < n_scopes ? &scopes[id] : &root;
}

int32_t wn__scope_is(int32_t id)
{
    return id == 0 || (id > 0 && id < n_scopes);
}

static int32_t *region_parents; /* (n_regions) by id */
static int64_t n_regions, regions_capacity;

int32_t wn__region_new(int32_t parent, const char *name)
{
    (void)name;
    if (n_regions == 0) n_regions = 1;
    if (parent < 0 || parent >= n_regions) return -wn__fail(WN_VALUE, "region: no region %d", parent);
    if (wn__grow(&region_parents, &regions_capacity, n_regions + 1, sizeof *region_parents) != WN_OK) return -WN_OOM;
    region_parents[n_regions] = parent;
    return (int32_t)n_regions++;
}

int32_t wn__region_parent(int32_t id)
{
    return id > 0 && id < n_regions ? region_parents[id] : 0;
}

int32_t wn__region_is(int32_t id)
{
    return id == 0 || (id > 0 && id < n_regions);
}

static const char **lines; /* (n_lines) by id; [0] is not used */
static int64_t n_lines, lines_capacity;

int32_t wn__line_of(const char *text)
{
    static struct names known;
    struct name *s = names_find(&known, text);
    if (s == NULL) return 0;
    if (s->id >= 0) return s->id;
    if (n_lines == 0) n_lines = 1;
    if (wn__grow(&lines, &lines_capacity, n_lines + 1, sizeof *lines) != WN_OK) return 0;
    lines[n_lines] = s->text;
    s->id = (int32_t)n_lines++;
    return s->id;
}

const char *wn__line_text(int32_t id)
{
    return id > 0 && id < n_lines ? lines[id] : "";
}
