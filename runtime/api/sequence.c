/* The API of sequences: the run points of one step of a script, planned or run (program/sequence.h). */
#include "api.h"
#include "../program/sequence.h"

int32_t wn_sequence(int32_t mode)
{
    int32_t code = wn__enter();
    if (code == WN_OK && (mode < WN_SEQUENCE_PLANNED || mode > WN_SEQUENCE_UNDONE))
        code = wn__fail(WN_VALUE, "sequence: %d is no way; 0 is planned, 1 run, 2 undone", mode);
    struct wn__sequence *s = code == WN_OK ? wn__sequence_new(mode) : NULL;
    if (code != WN_OK || s == NULL) return code != WN_OK ? -code : -WN_OOM;
    int32_t id = wn__handle_new(WN_HANDLE_SEQUENCE, s);
    if (id < 0) wn__sequence_free(s);
    return id;
}

int32_t wn_sequence_enter(int32_t sequence)
{
    WN_TRY(wn__enter());
    struct wn__sequence *s = sequence == -1 ? NULL : wn__handle_get(sequence, WN_HANDLE_SEQUENCE);
    if (s == NULL && sequence != -1) return WN_VALUE;
    wn__sequence_enter(s);
    return WN_OK;
}

int32_t wn_sequence_add(int32_t program)
{
    WN_TRY(wn__enter());
    struct wn_program *p = wn__handle_get(program, WN_HANDLE_PROGRAM);
    if (p == NULL) return WN_VALUE;
    if (!wn__sequence_is_planned())
        return wn__fail(WN_VALUE, "sequence: none is being planned; enter one before its programs are opened");
    return wn__sequence_add(p);
}

int32_t wn_sequence_undo(int32_t sequence)
{
    WN_TRY(wn__enter());
    struct wn__sequence *s = wn__handle_get(sequence, WN_HANDLE_SEQUENCE);
    if (s == NULL) return WN_VALUE;
    if (s == wn__sequence_now()) return wn__fail(WN_VALUE, "sequence: it is under way; leave it before it is undone");
    return wn__sequence_undo(s);
}

/* Calls f with the programs of n handles. */
static int32_t with_programs(int32_t n, const int32_t *programs, void *out,
                             int32_t (*f)(struct wn_program *const *p, int32_t n, void *out))
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_array(programs, n, 1 << 20, "sequence: programs"));
    if (n > 0) WN_TRY(wn__need(out, "sequence"));
    struct wn_program **p = wn__alloc((n + 1) * (int64_t)sizeof *p);
    int32_t code = p == NULL ? WN_OOM : WN_OK;
    for (int32_t i = 0; i < n && code == WN_OK; i++) {
        p[i] = wn__handle_get(programs[i], WN_HANDLE_PROGRAM);
        if (p[i] == NULL) code = WN_VALUE;
    }
    if (code == WN_OK) code = f(p, n, out);
    wn__free(p);
    return code;
}

static int32_t beside(struct wn_program *const *p, int32_t n, void *out)
{
    return wn__beside(p, n, out);
}

static int32_t held(struct wn_program *const *p, int32_t n, void *out)
{
    return n > 0 ? wn__held_now(p, n, out) : WN_OK;
}

int32_t wn_beside(int32_t n, const int32_t *programs, struct wn_beside *out)
{
    return with_programs(n, programs, out, beside);
}

int32_t wn_held(int32_t n, const int32_t *programs, int64_t *kinds)
{
    return with_programs(n, programs, kinds, held);
}

int32_t wn_decide_by(int32_t program, double policy)
{
    WN_TRY(wn__enter());
    struct wn_program *p = wn__handle_get(program, WN_HANDLE_PROGRAM);
    return p == NULL ? WN_VALUE : wn__program_decide_by(p, (int64_t)policy);
}
