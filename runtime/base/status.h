/* Status codes and the last error's words.
 * A fallible function returns int32_t: WN_OK, or another code with its message set here.
 * The message belongs to the thread and stands until the next failure. */
#ifndef WN_BASE_STATUS_H
#define WN_BASE_STATUS_H
#include <stdint.h>

enum wn_status {
#define STATUS(name, word) WN_##name,
#include "../status.def"
#undef STATUS
    WN_STATUS_COUNT
};

#if defined(__GNUC__)
#define WN_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define WN_PRINTF(f, a)
#endif

/* Records the message and returns the code, so that callers write `return wn__fail(WN_SHAPE, "...")`. */
int32_t wn__fail(int32_t code, const char *format, ...) WN_PRINTF(2, 3);

/* Puts words before the standing message, which keeps its code. */
int32_t wn__fail_more(int32_t code, const char *format, ...) WN_PRINTF(2, 3);

const char *wn__message(void);
const char *wn__status_word(int32_t code);

#define WN_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        int32_t wn_try_code_ = (expr);                                                                                 \
        if (wn_try_code_ != WN_OK) return wn_try_code_;                                                                \
    } while (0)

/* The same for functions with a cleanup ladder: `code` and the label `fail` are the caller's. */
#define WN_TRY_GOTO(expr)                                                                                              \
    do {                                                                                                               \
        code = (expr);                                                                                                 \
        if (code != WN_OK) goto fail;                                                                                  \
    } while (0)
#endif
