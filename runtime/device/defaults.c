/* The defaults of a device's optional slots, whose meanings are in device.h: each does without the device what
 * needs no device. */
#include <stddef.h>
#include "../base/clock.h"
#include "registry.h"

/* ---- memory -------------------------------------------------------------------------------------------- */

static int32_t choose_the_only(struct wn_device *d, int32_t number)
{
    (void)d, (void)number;
    return WN_OK;
}

static void ignore_hint(struct wn_device *d, int64_t bytes, int64_t count)
{
    (void)d, (void)bytes, (void)count;
}

static void trim_nothing(struct wn_device *d)
{
    (void)d;
}

static void know_nothing(struct wn_device *d, struct wn_room *out)
{
    (void)d;
    *out = (struct wn_room){0};
}

/* ---- kernels -------------------------------------------------------------------------------------------- */

static wn_kernel_fn own_kernel(struct wn_device *d, const struct wn_desc *desc)
{
    return d->backend->find == NULL ? NULL : d->backend->find(desc);
}

static int32_t prepare_nothing(struct wn_device *d, const struct wn_desc *desc, int64_t *bytes, const void **out)
{
    (void)d, (void)desc, (void)bytes;
    *out = NULL;
    return WN_OK;
}

static int32_t call_kernel(struct wn_device *d, wn_kernel_fn fn, const struct wn_desc *desc, const struct wn_buffers *b)
{
    (void)d;
    return fn(desc, b, NULL);
}

static int32_t wait_for_nothing(struct wn_device *d)
{
    (void)d;
    return WN_OK;
}

static int32_t get_at_once(struct wn_device *d, void *host, const void *from, int64_t bytes)
{
    return d->get(d, host, from, bytes);
}

/* ---- the host's clock ----------------------------------------------------------------------------------- */

static struct {
    double *seconds, began;
} timer;

static int32_t open_host_timer(struct wn_device *d, int32_t n, double *seconds)
{
    (void)d, (void)n;
    timer.seconds = seconds;
    return WN_OK;
}

static int32_t mark_by_host(struct wn_device *d, int32_t i, int32_t end)
{
    WN_TRY(d->sync(d));
    if (end) timer.seconds[i] = wn__now() - timer.began;
    else timer.began = wn__now();
    return WN_OK;
}

static void close_host_timer(struct wn_device *d)
{
    (void)d;
    timer.seconds = NULL;
}

/* ---- offload buffers -------------------------------------------------------------------------------------------- */

static int32_t refuse_offload_buffer(struct wn_device *d, int32_t place, int64_t bytes, int32_t most,
                                     struct wn_offload_buffer **out)
{
    (void)place, (void)bytes, (void)most, (void)out;
    return wn__fail(WN_UNSUPPORTED, "offload: %s has no way to move values out of its memory in this version", d->name);
}

static void complete_offload_buffers(struct wn_device *d)
{
    d->offload_buffer_open = d->target.is_unified_memory ? wn__host_offload_open : refuse_offload_buffer;
    d->offload_buffer_close = wn__host_offload_close;
    d->offload_buffer_start = wn__host_offload_start;
    d->offload_buffer_wait = wn__host_offload_wait;
    d->offload_buffer_left = wn__host_offload_left;
    d->offload_buffer_stop = wn__host_offload_stop;
}

void wn__device_complete(struct wn_device *d)
{
    if (d->choose == NULL) d->choose = choose_the_only;
    if (d->hint == NULL) d->hint = ignore_hint;
    if (d->trim == NULL) d->trim = trim_nothing;
    if (d->room == NULL) d->room = know_nothing;
    if (d->kernel == NULL) d->kernel = own_kernel;
    if (d->prepare == NULL) d->prepare = prepare_nothing;
    if (d->launch == NULL) d->launch = call_kernel;
    if (d->read == NULL) d->read = get_at_once;
    if (d->sync == NULL) d->sync = wait_for_nothing;
    if (d->timer_open == NULL) {
        d->timer_open = open_host_timer;
        d->timer_mark = mark_by_host;
        d->timer_close = close_host_timer;
    }
    if (d->offload_buffer_open == NULL) complete_offload_buffers(d);
}
