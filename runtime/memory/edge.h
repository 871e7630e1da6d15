/* The edge between a device's memory and the host: copies bytes of a value, which are plain and row-major on the host,
 * whatever the value's layout on the device. Values are printed, saved, loaded and read through these two functions. */
#ifndef WN_MEMORY_EDGE_H
#define WN_MEMORY_EDGE_H
#include "../device/device.h"

/* Copies bytes [at, at + n) of a value of type t, in row-major order, from device address `from` to `bytes` on the
 * host. WN_VALUE: the value is not plain, and `at` or n cuts an element. */
int32_t wn__edge_get(struct wn_device *d, const struct wn_type *t, const void *from, int64_t at, void *bytes,
                     int64_t n);
/* Copies n bytes from the host to bytes [at, at + n), in row-major order, of a value of type t at device address `to`.
 * WN_VALUE: the value is not plain, and `at` or n cuts an element. */
int32_t wn__edge_put(struct wn_device *d, const struct wn_type *t, void *to, int64_t at, const void *bytes, int64_t n);
#endif
