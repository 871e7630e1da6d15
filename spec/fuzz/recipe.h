/* Reads the text of a recipe (runtime/plan/recipe/text.c) into numbers, and changes some of them. */
#ifndef WN_FUZZ_RECIPE_H
#define WN_FUZZ_RECIPE_H
#include <stdio.h>
#include <stdlib.h>
#include "bytes.h"
#include "plan/recipe/action.h"
#include "wane_inspect.h"

enum { RECIPE_STEPS = 4096, RECIPE_KEEPS = 1 << 16 };
struct recipe {
    struct wn_recipe_step step[RECIPE_STEPS];
    int32_t keep[RECIPE_KEEPS], action[RECIPE_KEEPS], limit[RECIPE_STEPS];
    struct wn_recipe_given given;
};

static int32_t recipe_word(const char *at, int32_t length)
{
    for (int32_t k = 0; k < WN_DECISION_COUNT; k++) {
        const char *name = wn__action_name(k);
        if (name != NULL && (int32_t)strlen(name) == length && strncmp(name, at, (size_t)length) == 0) return k;
    }
    return 0;
}

/* Reads the kept values of a line, such as "h2 h3 offload:disk". Returns 1 when every word was understood. */
static int32_t recipe_keeps(struct recipe *r, const char *at)
{
    while (*at == ' ') {
        at++;
        int32_t length = (int32_t)strcspn(at, " \n");
        if (*at != 'h') {
            r->action[r->given.n_keep - 1] = recipe_word(at, length);
            if (r->action[r->given.n_keep - 1] == 0) return 0;
        } else {
            if (r->given.n_keep >= RECIPE_KEEPS) return 0;
            r->action[r->given.n_keep] = 0;
            r->keep[r->given.n_keep++] = atoi(at + 1);
        }
        at += length;
    }
    return *at == '\n' || *at == 0;
}

static int32_t recipe_step(struct recipe *r, const char *line)
{
    static const char *const words[] = {"F", "Fe", "Free", "B", "Shrink"};
    struct wn_recipe_step *s = &r->step[r->given.n_steps];
    int32_t length = (int32_t)strcspn(line, " \n"), used = 0;
    if (r->given.n_steps >= RECIPE_STEPS) return 0;
    *s = (struct wn_recipe_step){.what = -1, .keep_at = r->given.n_keep};
    for (int32_t k = 0; k < WN_STEP_COUNT; k++)
        if ((int32_t)strlen(words[k]) == length && strncmp(words[k], line, (size_t)length) == 0) s->what = k;
    if (s->what < 0 || sscanf(line + length, " %d%n", &s->block, &used) != 1) return 0;
    const char *at = line + length + used;
    if (*at == '/') s->root = (int32_t)strtol(at + 1, (char **)&at, 10);
    if (*at == ':' && !recipe_keeps(r, at + 1)) return 0;
    s->n_keep = r->given.n_keep - s->keep_at;
    r->given.n_steps++;
    return 1;
}

/* Reads a recipe. Returns 1 when every line was understood. */
static int32_t recipe_read(struct recipe *r, const char *text)
{
    r->given = (struct wn_recipe_given){r->step, r->keep, r->action, r->limit, 0, 0, 0, -1, -1};
    for (const char *line = text; line != NULL && *line != 0;) {
        int32_t number, first, last;
        if (sscanf(line, "block %d: h%d-h%d", &number, &first, &last) == 3) {
            if (r->given.n_blocks >= RECIPE_STEPS) return 0;
            r->limit[r->given.n_blocks++] = last;
        } else if (sscanf(line, "ahead %d", &number) == 1) {
            r->given.prefetch = number;
        } else if (!recipe_step(r, line)) {
            return 0;
        }
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return 1;
}

/* Changes 1 to 4 numbers of a recipe. Returns 0 for a recipe without steps or blocks, which stays as it is. */
static int32_t recipe_change(struct recipe *r, struct bytes *b)
{
    struct wn_recipe_given *g = &r->given;
    int32_t n = 1 + take(b) % 4;
    if (g->n_steps == 0 || g->n_blocks == 0) return 0;
    for (int32_t i = 0; i < n; i++) {
        struct wn_recipe_step *s = &r->step[take(b) % g->n_steps];
        int32_t k = g->n_keep > 0 ? take(b) % g->n_keep : -1;
        switch (take(b) % 10) {
        case 0: s->what = take(b) < 200 ? take(b) % 5 : take_int(b); break;
        case 1: s->block = take(b) < 200 ? 1 + take(b) % g->n_blocks : take_int(b); break;
        case 2: s->root = take_int(b); break;
        case 3: s->n_keep = take(b) < 200 && s->n_keep > 0 ? take(b) % s->n_keep : take_int(b); break;
        case 4: s->keep_at = take_int(b); break;
        case 5: g->prefetch = take_int(b); break;
        case 6: r->limit[take(b) % g->n_blocks] += take_int(b) % 3; break;
        case 7: *s = r->step[take(b) % g->n_steps]; break;
        case 8:
            if (k >= 0) r->keep[k] = take(b) < 200 ? r->keep[k] + 1 : take_int(b);
            break;
        default:
            if (k >= 0) r->action[k] = take(b) < 220 ? take(b) % WN_DECISION_COUNT : take_int(b);
        }
    }
    return 1;
}

static int32_t recipe_is_lossy(const struct recipe *r)
{
    for (int32_t i = 0; i < r->given.n_keep; i++)
        if (wn_action_lossy(r->action[i])) return 1;
    return 0;
}
#endif
