/* The API of the library itself: its start and environment, messages, ops, switches, and where recording
 * stands. The files of this room are the only place where handles and the rooms below meet; a call that
 * makes something first releases what finalizers have put into the queue. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <signal.h>
#include "../base/clock.h"
#include "../base/interrupt.h"
#include "../base/warning.h"
#include "../device/host_offload.h"
#include "../plan/ir/cache.h"
#include "../plan/ir/costs.h"
#include "api.h"

static char notice[320];
static int32_t forked;

const char *wn_warning(void)
{
    return wn__warning_take();
}

double wn_now(void)
{
    return wn__now();
}

/* ---- the library --------------------------------------------------------------------------------------- */

static int32_t read_switch(const char *name, int64_t *out)
{
    const char *text = getenv(name);
    char *end;
    *out = 0;
    if (text == NULL || text[0] == 0) return WN_OK;
    *out = strtoll(text, &end, 10);
    if (*end == 0 && *out >= 0) return WN_OK;
    return wn__fail(WN_VALUE, "%s=%s makes no sense; it takes a number that is not negative", name, text);
}

static void note_fork(void)
{
    forked = 1;
}

/* Reads WANE_DEVICE, the device of created values where a script names none. */
static int32_t read_device(void)
{
    const char *name = getenv("WANE_DEVICE");
    if (name == NULL || name[0] == 0) return WN_OK;
    if (strcmp(name, "auto") == 0) {
        wn__here.device = wn__device_auto();
        return WN_OK;
    }
    for (int32_t i = 0; i < wn__device_count(); i++) {
        if (strcmp(wn__device(i)->name, name) != 0) continue;
        WN_TRY(wn__device_usable(i, "WANE_DEVICE"));
        wn__here.device = i;
        return WN_OK;
    }
    return wn__fail(WN_DEVICE, "WANE_DEVICE=%s: there is no such device; use auto, cpu, cuda or meta", name);
}

static void note(const char *format, ...)
{
    size_t n = strlen(notice);
    if (n > 0) n += (size_t)snprintf(notice + n, sizeof notice - n, "; ");
    va_list args;
    va_start(args, format);
    vsnprintf(notice + n, sizeof notice - n, format, args);
    va_end(args);
}

/* Notes a WANE_THREADS that makes no sense: the kernels have fallen back, so nothing need stop. */
static void read_threads(void)
{
    const char *text = getenv("WANE_THREADS");
    char *end;
    long n = text == NULL || text[0] == 0 ? 1 : strtol(text, &end, 10);
    if (text == NULL || text[0] == 0 || (*end == 0 && n >= 1 && n <= 64)) return;
    note("WANE_THREADS=%.32s makes no sense (1 to 64); what this process may use is used: %d", text,
         wn__device(0)->target.threads);
}

/* Reads WANE_ONEDNN. Notes a word that makes no sense, and takes "auto" for it. */
static enum wn_library_use read_onednn(void)
{
    static const char *const words[] = {[WN_LIBRARY_AUTO] = "auto", [WN_LIBRARY_OFF] = "off", [WN_LIBRARY_ON] = "on"};
    const char *text = getenv("WANE_ONEDNN");
    if (text == NULL || text[0] == 0) return WN_LIBRARY_AUTO;
    for (int32_t i = 0; i < (int32_t)(sizeof words / sizeof words[0]); i++)
        if (strcmp(text, words[i]) == 0) return i;
    note("WANE_ONEDNN=%.32s makes no sense (off, auto or on); auto is used", text);
    return WN_LIBRARY_AUTO;
}

/* Finds the devices, with the kernels that WANE_KERNELS and WANE_ONEDNN ask for. Notes what they cannot have. */
static void find_devices(void)
{
    const struct wn__kernel_choice choice = {.library = read_onednn(), .kernels = getenv("WANE_KERNELS")};
    const char *unmet = wn__device_start(&choice);
    if (unmet != NULL) note("%s", unmet);
}

/* Reads a variable that is on or off into *is_on, which is on. Notes a word that makes no sense, and takes "on" for it.
 * used: what is used then. */
static void read_on_or_off(const char *variable, const char *used, int32_t *is_on)
{
    const char *text = getenv(variable);
    if (text == NULL || text[0] == 0 || strcmp(text, "on") == 0) return;
    *is_on = strcmp(text, "off") != 0;
    if (*is_on) note("%s=%.32s makes no sense (on or off); %s are used", variable, text, used);
}

/* Sets the folder of files of offloaded values: WANE_OFFLOAD_DIR, else TMPDIR, else /var/tmp, because /tmp may be in
 * memory. */
static int32_t read_folder(void)
{
    const char *named = getenv("WANE_OFFLOAD_DIR"), *temporary = getenv("TMPDIR");
    if (named != NULL && named[0] != 0) return wn__host_offload_folder(named);
    return wn__host_offload_folder(temporary != NULL && temporary[0] != 0 ? temporary : "/var/tmp");
}

int32_t wn_start(void)
{
    static int32_t started;
    if (started) return wn__thread_check();
    int64_t fail, poison, trace, sync;
    WN_TRY(read_switch("WANE_FAIL_ALLOC", &fail));
    WN_TRY(read_switch("WANE_POISON", &poison));
    WN_TRY(read_switch("WANE_TRACE", &trace));
    WN_TRY(read_switch("WANE_SYNC", &sync));
    find_devices();
    wn__machine_here(&wn__device(0)->target);
    WN_TRY(read_device());
    read_threads();
    read_on_or_off("WANE_CUDA_GRAPHS", "graphs", &wn__captures_on);
    read_on_or_off("WANE_CUDA_ROWS", "padded rows", &wn__rows_on);
    WN_TRY(read_folder());
    pthread_atfork(NULL, NULL, note_fork);
    wn__sync_on = sync != 0;
    wn__poison_on = poison != 0;
    wn__trace_on = trace != 0;
    wn__alloc_fails_in = fail;
    wn__thread_own();
    if (notice[0] != 0) wn__warn("%s", notice); /* a script shows it when it first runs something */
    started = 1;
    return WN_OK;
}

const char *wn_message(void)
{
    return wn__message();
}

const char *wn_status_name(int32_t code)
{
    return wn__status_name(code);
}

const char *wn_version(void)
{
    return "0.1.0";
}

const char *wn_notice(void)
{
    return notice;
}

const char *wn_kernels(void)
{
    return wn__device_kernels(wn__device(0));
}

int32_t wn_threads(void)
{
    return wn__device(0)->target.threads;
}

void wn_interrupt(int32_t on)
{
    wn__interrupted = on;
}

int32_t wn_interrupted(void)
{
    return wn__interrupted;
}

/* The signals by which a run is asked to stop: ^C; what ends a job whose time is over; what Slurm sends before. */
static const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
enum { SIGNALS = sizeof signals / sizeof signals[0] };
static struct sigaction former[SIGNALS];
static int32_t is_heard[SIGNALS];
static volatile int32_t is_asking; /* 1: a signal asks a running program to stop; 0: it does nothing */

static void note_signal(int number)
{
    (void)number;
    if (is_asking) wn__interrupted = 1;
}

/* Sets no SA_RESTART, so that a prompt that waits for a line comes back from its read. */
int32_t wn_signal_on(int32_t on)
{
    struct sigaction action = {.sa_handler = note_signal};
    sigemptyset(&action.sa_mask);
    for (int32_t k = 0; k < SIGNALS && on != WN_SIGNAL_IGNORED; k++) {
        int32_t is_wanted = on == WN_SIGNAL_ALL || (on == WN_SIGNAL_INT && signals[k] == SIGINT);
        if (is_wanted == is_heard[k]) continue;
        if (sigaction(signals[k], is_wanted ? &action : &former[k], is_wanted ? &former[k] : NULL) != 0)
            return wn__fail(WN_IO, "signal_on: the handler of signal %d could not be changed", signals[k]);
        is_heard[k] = is_wanted;
    }
    is_asking = on == WN_SIGNAL_INT || on == WN_SIGNAL_ALL;
    return WN_OK;
}

void wn_oom_last(struct wn_oom *out)
{
    if (out != NULL) *out = wn__oom_last;
}

int32_t wn__enter(void)
{
    WN_TRY(wn__thread_check());
    wn__handle_drain();
    if (!forked) return WN_OK;
    return wn__fail(WN_VALUE, "this process was forked from one that used Wane, which its threads do not survive; "
                              "start a new process instead");
}

/* ---- the op table ---------------------------------------------------------------------------------------- */

int32_t wn_op_count(void)
{
    return WN_OP_COUNT;
}

int32_t wn_op_get(int32_t op, struct wn_op_info *out)
{
    WN_TRY(wn__need(out, "op"));
    if (op < 0 || op >= WN_OP_COUNT) return wn__fail(WN_VALUE, "op: there is no op %d", op);
    const struct wn__op_row *r = &wn__op_rows[op];
    *out = (struct wn_op_info){.name = r->name,
                               .least = r->least,
                               .most = r->most,
                               .flags = r->flags,
                               .differentiable = wn__op_rules[op]->grad != NULL,
                               .operands = r->operands,
                               .autocast = r->autocast,
                               .positions = r->positions};
    return WN_OK;
}

int32_t wn_op_id(const char *name)
{
    return name == NULL ? -1 : wn__op_find(name);
}

/* ---- switches for specs --------------------------------------------------------------------------------------- */

int32_t wn_debug(const char *option, int64_t value)
{
    WN_TRY(wn__thread_check());
    WN_TRY(wn__need(option, "debug"));
    if (strcmp(option, "poison") == 0) wn__poison_on = value != 0;
    else if (strcmp(option, "check") == 0) wn__check_on = value != 0;
    else if (strcmp(option, "replay") == 0) wn__replay_on = value != 0;
    else if (strcmp(option, "replay_fault") == 0) wn__replay_fault = value > 0 ? (int32_t)value : 0;
    else if (strcmp(option, "trace") == 0) wn__trace_on = value != 0;
    else if (strcmp(option, "fail_alloc") == 0) wn__alloc_fails_in = value > 0 ? value : 0;
    else if (strcmp(option, "fail_write") == 0) wn__file_fails_in = value > 0 ? value : 0;
    else if (strcmp(option, "unnamed_files") == 0) wn__file_unnamed_on = value != 0;
    else if (strcmp(option, "no_locks") == 0) wn__lock_denied = value != 0;
    else if (strcmp(option, "fail_offload") == 0) wn__host_offload_fault[WN_WAY_OUT] = (int32_t)value;
    else if (strcmp(option, "fail_fetch") == 0) wn__host_offload_fault[WN_WAY_IN] = (int32_t)value;
    else if (strcmp(option, "disk_full") == 0) wn__host_offload_full = value != 0;
    else if (strcmp(option, "move_delay") == 0) wn__host_offload_delay_us = (int32_t)value;
    else if (strcmp(option, "rewrite") == 0) wn__rewrite_on = value != 0;
    else if (strcmp(option, "graphs") == 0) wn__captures_on = value != 0;
    else if (strcmp(option, "rows") == 0) wn__rows_on = value != 0;
    else if (strcmp(option, "cache_bytes") == 0) wn__cache_most = value;
    else if (strcmp(option, "forget_plans") == 0) wn__cache_drop_all();
    else if (strcmp(option, "left_out") == 0) wn__left_out = value;
    else
        return wn__fail(
            WN_VALUE,
            "debug: no option '%s'; there are poison, check, replay, replay_fault, trace, rewrite, graphs, fail_alloc, "
            "fail_write, unnamed_files, no_locks, fail_offload, fail_fetch, disk_full, move_delay, cache_bytes, "
            "forget_plans, left_out",
            option);
    return WN_OK;
}

int64_t wn_debug_get(const char *option)
{
    if (option == NULL) return -1;
    if (strcmp(option, "poison") == 0) return wn__poison_on;
    if (strcmp(option, "check") == 0) return wn__check_on;
    if (strcmp(option, "replay") == 0) return wn__replay_on;
    if (strcmp(option, "replay_fault") == 0) return wn__replay_fault;
    if (strcmp(option, "trace") == 0) return wn__trace_on;
    if (strcmp(option, "rewrite") == 0) return wn__rewrite_on;
    if (strcmp(option, "graphs") == 0) return wn__captures_on;
    if (strcmp(option, "rows") == 0) return wn__rows_on;
    if (strcmp(option, "cache_bytes") == 0) return wn__cache_most;
    if (strcmp(option, "plans_made") == 0) return wn__cache_made(WN_CACHED_PLAN);
    if (strcmp(option, "plans") == 0 || strcmp(option, "plan_bytes") == 0) {
        int64_t bytes, n = wn__cache_holds(WN_CACHED_PLAN, &bytes);
        return strcmp(option, "plans") == 0 ? n : bytes;
    }
    if (strcmp(option, "placed_boxes") == 0) return wn__placed_boxes;
    if (strcmp(option, "fail_alloc") == 0) return wn__alloc_fails_in;
    if (strcmp(option, "host_allocations") == 0) return wn__alloc_count();
    if (strcmp(option, "fail_write") == 0) return wn__file_fails_in;
    return -1;
}

int32_t wn_anomaly(int32_t what)
{
    int32_t before = wn__anomaly_on;
    if (wn__thread_check() == WN_OK && what >= 0 && what <= WN_ANOMALY_NAN) wn__anomaly_on = what;
    return before;
}

void wn_anomaly_last(struct wn_anomaly *out)
{
    if (out != NULL) *out = wn__anomaly_found;
}

/* ---- where recording stands ------------------------------------------------------------------------------------ */

int32_t wn_scope(int32_t parent, const char *name, const char *type, int32_t variant)
{
    WN_TRY_ID(wn__thread_check());
    WN_TRY_ID(wn__need(name, "scope: its name"));
    WN_TRY_ID(wn__need(type, "scope: its type"));
    return wn__scope_of(parent, name, type, variant);
}

struct wn_context *wn_here(void)
{
    return &wn__here;
}

int32_t wn_region_new(int32_t parent, const char *name)
{
    WN_TRY_ID(wn__thread_check());
    return wn__region_new(parent, name);
}

int32_t wn_weight_layout(int32_t device, const struct wn_type *weight)
{
    const struct wn_device *d = wn__device(device);
    if (d == NULL || weight == NULL) return WN_PLAIN;
    int32_t layout = d->target.weight_layout;
    if (layout == WN_PANEL48 && weight->ndim == 4) layout = WN_CONV48;
    return wn__layout_fits(layout, weight) ? layout : WN_PLAIN;
}

int32_t wn_device_set(int32_t device)
{
    WN_TRY_ID(wn__thread_check());
    int32_t before = wn__here.device;
    if (wn__device(device) != NULL && wn__device(device)->absent == NULL) wn__here.device = device;
    return before;
}

int32_t wn_seed(uint64_t seed)
{
    WN_TRY(wn__thread_check());
    wn__here.seed = seed;
    wn__here.counter = wn__here.updated = 0;
    return WN_OK;
}

void wn_counter_set(uint64_t next)
{
    if (wn__thread_check() != WN_OK) return;
    wn__here.counter = next;
    if (wn__here.updated == 0) wn__here.updated = next + 1;
}

void wn_counter_back(void)
{
    uint64_t updated = wn__here.updated;
    if (wn__thread_check() == WN_OK && updated > 0 && updated <= wn__here.counter) wn__here.counter = updated - 1;
}

const char *wn_line_text(int32_t line)
{
    return wn__line_text(line);
}

int32_t wn_line(const char *text)
{
    WN_TRY_ID(wn__thread_check());
    return text == NULL ? 0 : wn__line_of(text);
}
