/* The API of sequences: the run points of one step of a script, planned or run (program/sequence.h), and of the account
 * of what each holds beside the others. */
#include "api.h"
#include "../program/sequence.h"
#include "../run/run.h"

int32_t wn_sequence(int32_t mode)
{
    WN_TRY_ID(wn__enter());
    if (mode < WN_SEQUENCE_PLANNED || mode > WN_SEQUENCE_UNDONE)
        return -wn__fail(WN_VALUE, "sequence: %d is no way; 0 is planned, 1 run, 2 undone", mode);
    struct wn__sequence *s = wn__sequence_new(mode);
    return wn__handle_of(s == NULL ? WN_OOM : WN_OK, WN_HANDLE_SEQUENCE, s);
}

int32_t wn_sequence_enter(int32_t sequence)
{
    WN_TRY(wn__enter());
    struct wn__sequence *s = sequence == -1 ? NULL : wn__handle_get(sequence, WN_HANDLE_SEQUENCE);
    if (s == NULL && sequence != -1) return WN_VALUE;
    wn__sequence_enter(s);
    return WN_OK;
}

static int32_t need_planned(void)
{
    if (wn__sequence_is_planned()) return WN_OK;
    return wn__fail(WN_VALUE, "sequence: none is being planned; enter one before its programs are opened");
}

int32_t wn_sequence_add(int32_t program)
{
    WN_TRY(wn__enter());
    struct wn_program *p = wn__get_program(program);
    if (p == NULL) return WN_VALUE;
    WN_TRY(need_planned());
    return wn__sequence_add(p);
}

int32_t wn_sequence_repeat(void)
{
    WN_TRY_ID(wn__enter());
    WN_TRY_ID(need_planned());
    return wn__sequence_repeat();
}

int32_t wn_sequence_undo(int32_t sequence)
{
    WN_TRY(wn__enter());
    struct wn__sequence *s = wn__handle_get(sequence, WN_HANDLE_SEQUENCE);
    if (s == NULL) return WN_VALUE;
    if (s == wn__sequence_now()) return wn__fail(WN_VALUE, "sequence: it is under way; leave it before it is undone");
    return wn__sequence_undo(s);
}

int32_t wn_sequence_seek(int32_t sequence, int32_t at)
{
    WN_TRY(wn__enter());
    struct wn__sequence *s = wn__handle_get(sequence, WN_HANDLE_SEQUENCE);
    if (s == NULL) return WN_VALUE;
    wn__sequence_seek(s, at);
    return WN_OK;
}

/* Fills the parts. The first values of each are those that are missing where the sequence is before its program. */
static int32_t fill(struct wn_program *const *p, int32_t n, struct wn_part *out)
{
    struct wn__sequence *s = wn__sequence_now();
    int32_t code = wn__parts_check(p, n);
    for (int32_t i = 0; i < n && code == WN_OK; i++) wn__part(p, n, i, &out[i]);
    for (int32_t i = 0; i < n && code == WN_OK; i++) {
        if (s != NULL) wn__sequence_seek(s, i);
        code = wn__program_first(p[i], &out[i].first);
    }
    if (s != NULL) wn__sequence_seek(s, -1);
    if (code == WN_OK) wn__parts_end(p, n, out);
    return code;
}

int32_t wn_parts(int32_t n, const int32_t *programs, struct wn_part *out)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_array(programs, n, 1 << 20, "parts: programs"));
    if (n > 0) WN_TRY(wn__need(out, "parts"));
    struct wn_program **p = wn__alloc((n + 1) * (int64_t)sizeof *p);
    int32_t code = p == NULL ? WN_OOM : WN_OK;
    for (int32_t i = 0; i < n && code == WN_OK; i++) {
        p[i] = wn__get_program(programs[i]);
        if (p[i] == NULL) code = WN_VALUE;
    }
    if (code == WN_OK) code = fill(p, n, out);
    wn__free(p);
    return code;
}

int32_t wn_decide_by(int32_t program, double policy)
{
    WN_TRY(wn__enter());
    struct wn_program *p = wn__get_program(program);
    return p == NULL ? WN_VALUE : wn__program_decide_by(p, (int64_t)policy);
}
