/* Makes a schedule with places and costs of a recipe: the one road of plans, of proposals and of forecasts. */
#include "schedule.h"

int32_t wn__compile(const struct wn__ir *ir, const struct wn__recipe *r, wn__bind_kernels bind,
                    enum wn__place_effort effort, struct wn__schedule **out)
{
    struct wn__schedule *s = NULL;
    int32_t code = wn__lower(ir, r, &s);
    if (code == WN_OK && bind != NULL) code = bind(ir, s);
    if (code == WN_OK) code = wn__place(ir, s, effort);
    if (code == WN_OK) code = wn__simulate(ir, s);
    if (code != WN_OK) wn__schedule_unref(s);
    *out = code == WN_OK ? s : NULL;
    return code;
}
