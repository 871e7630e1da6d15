/* The edge between a device's memory and the host: bytes of a value, plain and row-major on the host, whatever its
 * layout on the device. Everything printed, saved, loaded or read goes through here. */
#ifndef WN_MEMORY_EDGE_H
#define WN_MEMORY_EDGE_H
#include "../device/device.h"

/* Bytes [at, at + n) of a value of type t, which lies at `from` on the device; whole elements where it is not plain
 * (WN_VALUE). */
int32_t wn__edge_get(struct wn_device *d, const struct wn_type *t, const void *from, int64_t at, void *bytes,
                     int64_t n);
int32_t wn__edge_put(struct wn_device *d, const struct wn_type *t, void *to, int64_t at, const void *bytes, int64_t n);
#endif
