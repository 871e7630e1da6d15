/* One rank's part of an exchange: what goes to another rank, and what comes from it. */
#ifndef WN_BASE_MESSAGE_H
#define WN_BASE_MESSAGE_H
#include <stdint.h>

struct wn__message {
    int32_t peer;
    int64_t out, in; /* bytes; 0: nothing goes that way */
    const void *from;
    void *to;
};
#endif
