/* The API of rehearsals, in which the run points of a step are opened one after the other without running
 * (program/rehearse.h). */
#include "api.h"
#include "../program/rehearse.h"

static int32_t entered = -1; /* handle of the rehearsal under way; -1: none */

int32_t wn_rehearsal(void)
{
    int32_t code = wn__enter();
    struct wn__rehearsal *r = code == WN_OK ? wn__rehearsal_new() : NULL;
    if (code != WN_OK || r == NULL) return code != WN_OK ? -code : -WN_OOM;
    int32_t id = wn__handle_new(WN_HANDLE_REHEARSAL, r);
    if (id < 0) wn__rehearsal_free(r);
    return id;
}

int32_t wn_rehearse(int32_t rehearsal, int32_t *before)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__need(before, "rehearse"));
    struct wn__rehearsal *r = rehearsal == -1 ? NULL : wn__handle_get(rehearsal, WN_HANDLE_REHEARSAL);
    if (r == NULL && rehearsal != -1) return WN_VALUE;
    *before = wn__rehearsal_enter(r) == NULL ? -1 : entered;
    entered = rehearsal;
    return WN_OK;
}

int32_t wn_rehearse_run(int32_t program)
{
    WN_TRY(wn__enter());
    struct wn_program *p = wn__handle_get(program, WN_HANDLE_PROGRAM);
    if (p == NULL) return WN_VALUE;
    if (wn__rehearsal_now() == NULL)
        return wn__fail(WN_VALUE, "rehearse: no rehearsal is under way; enter one before its programs are opened");
    return wn__rehearse_run(p);
}

int32_t wn_keep_apart(int32_t program)
{
    WN_TRY(wn__enter());
    struct wn_program *p = wn__handle_get(program, WN_HANDLE_PROGRAM);
    return p == NULL ? WN_VALUE : wn__program_keep_apart(p);
}

int32_t wn_beside(int32_t n, const int32_t *programs, struct wn_beside *out)
{
    WN_TRY(wn__enter());
    WN_TRY(wn__check_array(programs, n, 1 << 20, "beside: programs"));
    if (n > 0) WN_TRY(wn__need(out, "beside"));
    struct wn_program **p = wn__alloc((n + 1) * (int64_t)sizeof *p);
    int32_t code = p == NULL ? WN_OOM : WN_OK;
    for (int32_t i = 0; i < n && code == WN_OK; i++) {
        p[i] = wn__handle_get(programs[i], WN_HANDLE_PROGRAM);
        if (p[i] == NULL) code = WN_VALUE;
    }
    if (code == WN_OK) code = wn__beside(p, n, out);
    wn__free(p);
    return code;
}
