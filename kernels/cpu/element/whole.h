/* Results of i32 that 32 bits do not hold, of the ops with the flag WHOLE: threads compute in 64 bits and tell of them.
 * The message has the one of the first element, whoever told of it first. */
#ifndef WN_CPU_WHOLE_H
#define WN_CPU_WHOLE_H
#include <stdatomic.h>
#include "../../../runtime/base/outside.h"
#include "../common/cpu.h"

struct wn__whole {
    atomic_flag is_busy; /* guards the rest */
    int32_t is_outside;  /* an element is outside */
    int64_t element, value;
};
#define WN_WHOLE_NONE ((struct wn__whole){.is_busy = ATOMIC_FLAG_INIT})

static inline int32_t wn__whole_fits(int64_t value)
{
    return value == (int32_t)value;
}

/* Tells of an element whose value does not fit. */
static inline void wn__whole_tell(struct wn__whole *w, int64_t element, int64_t value)
{
    while (atomic_flag_test_and_set(&w->is_busy)) {}
    if (!w->is_outside || element < w->element) {
        w->is_outside = 1;
        w->element = element;
        w->value = value;
    }
    atomic_flag_clear(&w->is_busy);
}

/* Returns WN_VALUE if a thread told of an element. */
static inline int32_t wn__whole_check(const struct wn__whole *w, const struct wn_desc *d)
{
    return w->is_outside ? wn__fail_outside(d, w->element, (double)w->value) : WN_OK;
}
#endif
