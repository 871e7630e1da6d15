/* Texts and ids that outlive the nodes that carry them: interned names, module paths, checkpoint regions, source lines.
 * Scopes and texts are interned, so that the same module gives the same ids step after step; a region is a new one each
 * time that code enters it. None of these is ever freed. */
#include <stdio.h>
#include <string.h>
#include "../base/alloc.h"
#include "encode.h"

/* Returns the slot of a text, or the empty one where it belongs. */
static struct wn__name *names_slot(const struct wn__names *w, const char *text, uint64_t hash)
{
    for (int64_t i = (int64_t)(hash & (uint64_t)(w->capacity - 1));; i = (i + 1) & (w->capacity - 1)) {
        struct wn__name *s = &w->slot[i];
        if (s->text == NULL || (s->hash == hash && strcmp(s->text, text) == 0)) return s;
    }
}

static int32_t names_room(struct wn__names *w)
{
    if (2 * w->count < w->capacity) return WN_OK;
    struct wn__names bigger = {NULL, w->capacity ? 2 * w->capacity : 64, w->count};
    bigger.slot = wn__alloc(bigger.capacity * (int64_t)sizeof *bigger.slot);
    if (bigger.slot == NULL) return WN_OOM;
    for (int64_t i = 0; i < w->capacity; i++)
        if (w->slot[i].text != NULL) *names_slot(&bigger, w->slot[i].text, w->slot[i].hash) = w->slot[i];
    wn__free(w->slot);
    *w = bigger;
    return WN_OK;
}

static uint64_t hash_of(const char *text)
{
    return wn__bytes_hash((const uint8_t *)text, (int64_t)strlen(text));
}

const struct wn__name *wn__names_known(const struct wn__names *w, const char *text)
{
    const struct wn__name *s = w->count > 0 ? names_slot(w, text, hash_of(text)) : NULL;
    return s != NULL && s->text != NULL ? s : NULL;
}

struct wn__name *wn__names_get(struct wn__names *w, const char *text)
{
    size_t length = strlen(text);
    uint64_t hash = hash_of(text);
    if (names_room(w) != WN_OK) return NULL;
    struct wn__name *s = names_slot(w, text, hash);
    if (s->text != NULL) return s;
    char *copy = wn__alloc((int64_t)length + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, length);
    *s = (struct wn__name){hash, -1, copy};
    w->count++;
    return s;
}

void wn__names_release(struct wn__names *w)
{
    for (int64_t i = 0; i < w->capacity; i++) wn__free(w->slot[i].text);
    wn__free(w->slot);
    *w = (struct wn__names){0};
}

const char *wn__intern(const char *text)
{
    static struct wn__names known;
    struct wn__name *s = wn__names_get(&known, text == NULL ? "" : text);
    return s == NULL ? NULL : s->text;
}

static struct wn__scope *scopes; /* (n_scopes) the scope of id i + 1; id 0 is the root */
static int64_t n_scopes, scopes_capacity;

static int32_t scope_add(int32_t parent, const char *name, const char *type)
{
    char path[512];
    const char *above = wn__scope_get(parent)->path;
    snprintf(path, sizeof path, "%s%s%s", above, above[0] && name[0] ? "." : "", name);
    struct wn__scope s = {parent, wn__intern(name), wn__intern(type), wn__intern(path)};
    if (s.name == NULL || s.type == NULL || s.path == NULL) return WN_OOM;
    WN_TRY(wn__grow(&scopes, &scopes_capacity, n_scopes + 1, sizeof *scopes));
    scopes[n_scopes++] = s;
    return WN_OK;
}

int32_t wn__scope_of(int32_t parent, const char *name, const char *type, int32_t variant)
{
    static struct wn__names keys;
    char key[1024];
    if (parent < 0 || parent > n_scopes) return -wn__fail(WN_VALUE, "scope: no scope %d", parent);
    size_t length = strlen(name), type_length = strlen(type);
    if (length > 480 || type_length > 480)
        return -wn__fail(WN_VALUE, "scope: a name of %zu and a type of %zu letters; each may have 480", length,
                         type_length);
    snprintf(key, sizeof key, "%d/%d/%zu/%.480s/%.480s", parent, variant, length, name, type);
    struct wn__name *s = wn__names_get(&keys, key);
    if (s == NULL) return -WN_OOM;
    if (s->id < 0) {
        if (scope_add(parent, name, type) != WN_OK) return -WN_OOM;
        s->id = (int32_t)n_scopes;
    }
    return s->id;
}

const struct wn__scope *wn__scope_get(int32_t id)
{
    static const struct wn__scope root = {-1, "", "", ""};
    return id > 0 && id <= n_scopes ? &scopes[id - 1] : &root;
}

static int32_t *region_parents; /* (n_regions) the parent of the region of id i + 1; id 0 is none */
static int64_t n_regions, regions_capacity;

int32_t wn__region_new(int32_t parent, const char *name)
{
    (void)name;
    if (parent < 0 || parent > n_regions) return -wn__fail(WN_VALUE, "region: no region %d", parent);
    if (wn__grow(&region_parents, &regions_capacity, n_regions + 1, sizeof *region_parents) != WN_OK) return -WN_OOM;
    region_parents[n_regions] = parent;
    return (int32_t)++n_regions;
}

int32_t wn__region_parent(int32_t id)
{
    return id > 0 && id <= n_regions ? region_parents[id - 1] : 0;
}

static const char **lines; /* (n_lines) the line of id i + 1 */
static int64_t n_lines, lines_capacity;

int32_t wn__line_of(const char *text)
{
    static struct wn__names known;
    struct wn__name *s = wn__names_get(&known, text);
    if (s == NULL) return 0;
    if (s->id >= 0) return s->id;
    if (wn__grow(&lines, &lines_capacity, n_lines + 1, sizeof *lines) != WN_OK) return 0;
    lines[n_lines] = s->text;
    return s->id = (int32_t)++n_lines;
}

const char *wn__line_text(int32_t id)
{
    return id > 0 && id <= n_lines ? lines[id - 1] : "";
}
