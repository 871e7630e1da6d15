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

/* Gives device i its target, one for all devices of a backend. Returns NULL, or which choice the backend cannot
 * follow. */
static const char *set_target(int32_t i, const struct wn__kernel_choice *choice)
{
    const struct wn__backend *b = devices[i]->backend;
    int32_t first = 0;
    while (devices[first]->backend != b) first++;
    devices[i]->target = first < i ? devices[first]->target : b->target;
    return first < i || b->start == NULL ? NULL : b->start(choice, &devices[i]->target);
}

static int32_t is_started;

const char *wn__device_start(const struct wn__kernel_choice *choice)
{
    const char *why = NULL;
    is_started = 1;
    for (int32_t i = 0; i < wn__device_count(); i++) {
        const char *unmet = set_target(i, choice);
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
    for (int32_t i = 0; i < wn__device_count(); i++) n += devices[i]->bias == 0;
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

const char *wn__device_kernels(const struct wn_device *d)
{
    return d->backend->name == NULL ? "" : d->backend->name();
}

const char *wn__device_processor(const struct wn_device *d)
{
    return d->backend->processor == NULL ? "" : d->backend->processor();
}

int32_t wn__device_tunable(const struct wn_device *d, int32_t i, struct wn_tunable *out)
{
    return d->backend->tunable != NULL && d->backend->tunable(i, out);
}

int32_t wn__device_tune(const struct wn_device *d, int32_t i, int64_t value)
{
    struct wn_tunable row;
    if (!wn__device_tunable(d, i, &row)) return wn__fail(WN_VALUE, "tune: there is no tunable %d", i);
    return d->backend->tune(i, value);
}
