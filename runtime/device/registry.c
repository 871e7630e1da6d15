/* The devices of this process, in a fixed order: a device's id is its place here. */
#include "device.h"
#include <stddef.h>

static struct wn_device *const table[] = {&wn__device_cpu, &wn__device_meta, &wn__device_mirror};

int32_t wn__device_start(int32_t onednn)
{
    wn__cpu_start(onednn);
    wn__device_mirror.threads = wn__device_meta.threads = wn__device_cpu.threads;
    wn__device_mirror.target = wn__device_meta.target = wn__device_cpu.target;
    wn__device_mirror.weight_layout = wn__device_meta.weight_layout = wn__device_cpu.weight_layout;
    return WN_OK;
}

int32_t wn__device_count(void)
{
    return (int32_t)(sizeof table / sizeof table[0]);
}

int32_t wn__device_listed(void)
{
    int32_t n = 0;
    for (int32_t i = 0; i < wn__device_count(); i++) n += !table[i]->hidden;
    return n;
}

struct wn_device *wn__device(int32_t id)
{
    return id >= 0 && id < wn__device_count() ? table[id] : NULL;
}
