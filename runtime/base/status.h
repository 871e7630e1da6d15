/* Status codes, and the message of the last failure. A function that can fail returns int32_t: WN_OK, or the code of a
 * failure whose message it has set. The message belongs to the thread and stays until the thread's next failure. */
#ifndef WN_BASE_STATUS_H
#define WN_BASE_STATUS_H
#include <stdint.h>

enum wn_status {
#define STATUS(name, text) WN_##name,
#include "../status.def"
#undef STATUS
    WN_STATUS_COUNT
};

#if defined(__GNUC__)
#define WN_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define WN_PRINTF(f, a)
#endif

/* Sets the thread's message and returns `code`, so that callers write `return wn__fail(WN_SHAPE, "%d dims", n);`. */
int32_t wn__fail(int32_t code, const char *format, ...) WN_PRINTF(2, 3);

/* Puts text before the thread's message and returns `code`. */
int32_t wn__fail_more(int32_t code, const char *format, ...) WN_PRINTF(2, 3);

/* Returns the thread's message, "" if nothing has failed on it. The text changes with the next failure. */
const char *wn__message(void);
/* Returns the name of a status as scripts see it, "unknown" for a number that is no status. */
const char *wn__status_name(int32_t code);

/* Evaluates `expr` and returns its status from the enclosing function unless it is WN_OK. */
#define WN_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        int32_t wn_try_code_ = (expr);                                                                                 \
        if (wn_try_code_ != WN_OK) return wn_try_code_;                                                                \
    } while (0)

/* Assigns the status of `expr` to the caller's `code`, and goes to the caller's label `fail` unless it is WN_OK. */
#define WN_TRY_GOTO(expr)                                                                                              \
    do {                                                                                                               \
        code = (expr);                                                                                                 \
        if (code != WN_OK) goto fail;                                                                                  \
    } while (0)

/* Evaluates `expr` and keeps its status in `code`, which is the first failure of a pass: does nothing where `code` is a
 * failure already, and leaves one that `expr` itself put there. */
#define WN_KEEP(code, expr)                                                                                            \
    do {                                                                                                               \
        int32_t wn_keep_code_ = (code) == WN_OK ? (expr) : WN_OK;                                                      \
        if ((code) == WN_OK) (code) = wn_keep_code_;                                                                   \
    } while (0)
#endif
