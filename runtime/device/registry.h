/* Declares what the files of this folder know of each other: the devices and the backends of device.def. */
#ifndef WN_DEVICE_REGISTRY_H
#define WN_DEVICE_REGISTRY_H
#include "device.h"
#include "host_offload.h"

#define DEVICE(name) extern struct wn_device wn__device_##name;
#define TARGET(name) extern const struct wn__backend wn__backend_##name;
#include "device.def"
#undef DEVICE
#undef TARGET

/* Fills the optional slots that are NULL (defaults.c). */
void wn__device_complete(struct wn_device *d);
#endif
