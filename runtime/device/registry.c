/* The devices of this process and the targets of plans, in the order of device.def. A device is looked for once, when
 * the library starts; one that is not here keeps its id. */
#include <stddef.h>
#include <string.h>
#include "registry.h"

static struct wn_device *const devices[] = {
#define DEVICE(name) &wn__device_##name,
#define TARGET(name)
#include "device.def"
#undef DEVICE
#undef TARGET
};

static const struct wn__target *const targets[] = {
#define DEVICE(name)
#define TARGET(name) &wn__backend_##name.target,
#include "device.def"
#undef DEVICE
#undef TARGET
};

static int32_t n_targets(void)
{
    return (int32_t)(sizeof targets / sizeof targets[0]);
}

/* Returns NULL, or which choice the device cannot follow. */
static const char *set_target(struct wn_device *d, const struct wn__kernel_choice *choice)
{
    d->target = d->delegate != NULL ? d->delegate->target : d->backend->target;
    return d->delegate == NULL && d->backend->start != NULL ? d->backend->start(choice, &d->target) : NULL;
}

static int32_t is_started;

const char *wn__device_start(const struct wn__kernel_choice *choice)
{
    const char *why = NULL;
    is_started = 1;
    for (int32_t i = 0; i < wn__device_count(); i++) {
        const char *unmet = set_target(devices[i], choice);
        if (why == NULL) why = unmet;
        if (devices[i]->open != NULL) devices[i]->open(devices[i]);
        wn__device_complete(devices[i]);
    }
    return why;
}

int32_t wn__device_count(void)
{
    return (int32_t)(sizeof devices / sizeof devices[0]);
}

int32_t wn__device_listed(void)
{
    int32_t n = 0;
    for (int32_t i = 0; i < wn__device_count(); i++) n += !devices[i]->hidden;
    return n;
}

struct wn_device *wn__device(int32_t id)
{
    if (!is_started) wn__device_start(&(struct wn__kernel_choice){.library = WN_LIBRARY_OFF});
    return id >= 0 && id < wn__device_count() ? devices[id] : NULL;
}

int32_t wn__device_auto(void)
{
    for (int32_t i = 0; i < wn__device_count(); i++)
        if (wn__device(i)->is_preferred && wn__device(i)->absent == NULL) return i;
    return 0;
}

int32_t wn__device_usable(int32_t id, const char *what)
{
    const struct wn_device *d = wn__device(id);
    if (d == NULL) return wn__fail(WN_DEVICE, "%s: there is no device %d", what, id);
    if (d->absent != NULL) return wn__fail(WN_DEVICE, "%s: %s is not here: %s", what, d->name, d->absent);
    return d->lost == NULL ? WN_OK : wn__fail(WN_DEVICE, "%s: %s", what, d->lost);
}

void wn__device_rates(const char *target, const struct wn_profile *rates)
{
    for (int32_t i = 0; i < wn__device_count(); i++)
        if (strcmp(wn__device(i)->target.name, target) == 0) wn__device(i)->target.rates = *rates;
}

const struct wn__target *wn__device_target(int32_t kind)
{
    return kind >= 0 && kind < n_targets() ? targets[kind] : NULL;
}

static const struct wn__backend *backend_of(const struct wn_device *d)
{
    while (d->delegate != NULL) d = d->delegate;
    return d->backend;
}

const char *wn__device_kernels(const struct wn_device *d)
{
    const struct wn__backend *b = backend_of(d);
    return b->name == NULL ? "" : b->name();
}

const char *wn__device_processor(const struct wn_device *d)
{
    const struct wn__backend *b = backend_of(d);
    return b->processor == NULL ? "" : b->processor();
}

int32_t wn__device_tunable(const struct wn_device *d, int32_t i, struct wn_tunable *out)
{
    const struct wn__backend *b = backend_of(d);
    return b->tunable != NULL && b->tunable(i, out);
}

int32_t wn__device_tune(const struct wn_device *d, int32_t i, int64_t value)
{
    struct wn_tunable row;
    if (!wn__device_tunable(d, i, &row)) return wn__fail(WN_VALUE, "tune: there is no tunable %d", i);
    return backend_of(d)->tune(i, value);
}
