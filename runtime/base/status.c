/* Keeps the message of a thread's last failure.
 *
 * Each thread has one buffer, so a failure on one thread never changes what another thread reads. A message is one
 * line; it is cut at MESSAGE_BYTES - 1 bytes. No function of this file allocates, prints or exits, so a message is
 * never lost for want of memory. The new text is formed in a second buffer and copied, so a caller may pass the current
 * message as an argument of the next one. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "status.h"

enum { MESSAGE_BYTES = 1024 };

static _Thread_local char message[MESSAGE_BYTES];

static const char *const names[] = {
#define STATUS(name, text) text,
#include "../status.def"
#undef STATUS
};
_Static_assert(sizeof names / sizeof names[0] == WN_STATUS_COUNT, "one name a status");

int32_t wn__fail(int32_t code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    va_end(args);
    memcpy(message, text, strlen(text) + 1);
    return code;
}

int32_t wn__fail_more(int32_t code, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    va_end(args);
    return wn__fail(code, "%s%s", text, message);
}

const char *wn__message(void)
{
    return message;
}

const char *wn__status_name(int32_t code)
{
    return code >= 0 && code < WN_STATUS_COUNT ? names[code] : "unknown";
}
