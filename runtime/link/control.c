/* Agrees about calls and gathers: control.h.
 *
 *   rank 0   records of all --> verdict to all --> data, or words of the rank that fails --> sentence to all
 *   others   record to 0    --> verdict        --> data, or own words, if asked for      --> sentence */
#include "control.h"
#include <stdio.h>
#include <string.h>
#include "../base/alloc.h"
#include "../base/clock.h"
#include "../base/digest.h"
#include "../base/warning.h"

#define LONGEST_SAID 512
#define LONGEST_SENTENCE 2048
#define PATIENCE_SECONDS 30.0    /* until rank 0 says whom it waits for */
#define FIRST_SPEAKS_SECONDS 5.0 /* by which others wait longer: rank 0 alone knows who has not come */

/* Goes from each rank to rank 0. */
struct record {
    uint64_t hash; /* of what must be equal */
    int64_t calls; /* number of this call */
    int64_t bytes; /* that it gives */
    int32_t code;  /* that it brings along */
    int32_t is_step;
    int32_t spare[8];
};
_Static_assert(sizeof(struct record) == 64, "a call costs 64 bytes");

/* Comes back from rank 0. */
struct verdict {
    int32_t code;    /* WN_OK: go on */
    int32_t by;      /* the rank whose words are asked for */
    int32_t differs; /* it is at another program than rank 0, and all are at one */
    int32_t spare[13];
};
_Static_assert(sizeof(struct verdict) == 64, "a verdict costs 64 bytes");

enum stage { IDLE, RECORDS, VERDICTS, WORDS, SENTENCE, DATA };

static struct {
    enum stage stage;
    struct wn__job *job; /* of the stage */
    int64_t calls;
    double since;
    int32_t is_told;              /* whom it waits for */
    struct record mine, *records; /* (size), of rank 0 */
    struct verdict verdict;
    char said[LONGEST_SAID], sentence[LONGEST_SENTENCE];
    struct wn__message *list; /* (size) */
    int32_t room;             /* ranks that list and records have room for */
    char *all;                /* what is gathered; MPI may write into it while the call is under way */
    int64_t bytes, total;     /* of this rank; of all that it gets */
    int64_t most;             /* of struct wn__call */
    int32_t has_result;
} now;

/* ---- the stages: each starts a job, and is followed by the next one when that has ended -------------------------- */

static int32_t start(enum stage stage, int32_t channel, int32_t n)
{
    now.stage = stage;
    return wn__link_start(channel, now.list, n, NULL, &now.job);
}

/* Starts a job with rank 0, or with all others where this is rank 0, whose parts of `to` follow each other. */
static int32_t with_first(enum stage stage, struct wn__message each)
{
    const struct wn__link *l = wn__link_get();
    int32_t n = 0;
    if (l->rank != 0) now.list[n++] = each;
    for (int32_t r = 1; r < l->size && l->rank == 0; r++, n++) {
        now.list[n] = each;
        now.list[n].peer = r;
        if (each.in > 0) now.list[n].to = (char *)each.to + r * each.in;
    }
    return start(stage, WN_CHANNEL_CALLS, n);
}

static int32_t start_records(void)
{
    if (wn__link_get()->rank == 0) {
        now.records[0] = now.mine;
        return with_first(RECORDS, (struct wn__message){.in = sizeof now.mine, .to = now.records});
    }
    return with_first(
        RECORDS,
        (struct wn__message){.out = sizeof now.mine, .from = &now.mine, .in = sizeof now.verdict, .to = &now.verdict});
}

/* Finds the first rank that fails, or is about to do something else than rank 0. */
static void judge(void)
{
    struct verdict v = {.code = WN_OK};
    int32_t are_steps = 1;
    for (int32_t r = 0; r < wn__link_get()->size; r++) {
        const struct record *c = &now.records[r], *first = &now.records[0];
        int32_t is_as_much = now.most > 0 || c->bytes == first->bytes;
        int32_t differs = c->hash != first->hash || c->calls != first->calls || !is_as_much;
        are_steps &= c->is_step && c->code == WN_OK;
        if (v.code == WN_OK && c->code != WN_OK) v = (struct verdict){.code = c->code, .by = r};
        else if (v.code == WN_OK && differs) v = (struct verdict){.code = WN_VALUE, .by = r, .differs = 1};
    }
    v.differs &= are_steps;
    now.verdict = v;
}

static int32_t start_verdicts(void)
{
    judge();
    return with_first(VERDICTS, (struct wn__message){.out = sizeof now.verdict, .from = &now.verdict});
}

/* Has rank 0 learn the words of the rank that the verdict is about. */
static int32_t start_words(void)
{
    int32_t rank = wn__link_get()->rank, by = now.verdict.by;
    struct wn__message *m = &now.list[0];
    *m = (struct wn__message){.peer = rank == 0 ? by : 0};
    if (rank == 0 && by == 0) memcpy(now.sentence, now.said, LONGEST_SAID);
    else if (rank == 0) {
        m->in = LONGEST_SAID;
        m->to = now.sentence;
    } else if (rank == by) {
        m->out = LONGEST_SAID;
        m->from = now.said;
    }
    return start(WORDS, WN_CHANNEL_CALLS, 1);
}

static int32_t start_sentence(void)
{
    if (wn__link_get()->rank != 0)
        return with_first(SENTENCE, (struct wn__message){.in = LONGEST_SENTENCE, .to = now.sentence});
    char theirs[LONGEST_SAID];
    int32_t by = now.verdict.by;
    memcpy(theirs, now.sentence, sizeof theirs);
    theirs[sizeof theirs - 1] = 0;
    if (now.records[by].code != WN_OK) snprintf(now.sentence, sizeof now.sentence, "rank %d: %s", by, theirs);
    else
        snprintf(now.sentence, sizeof now.sentence,
                 "rank %d is at another call than rank 0: %s (call %lld) against %s (call %lld); every rank makes the "
                 "same calls in the same order",
                 by, theirs, (long long)now.records[by].calls, now.said, (long long)now.records[0].calls);
    return with_first(SENTENCE, (struct wn__message){.out = LONGEST_SENTENCE, .from = now.sentence});
}

/* Has rank 0 get what each rank has, one behind the other. */
static int32_t start_collection(void)
{
    const struct wn__link *l = wn__link_get();
    int32_t n = 0;
    if (l->rank != 0) now.list[n++] = (struct wn__message){.peer = 0, .out = now.bytes, .from = now.all};
    now.total = now.bytes;
    for (int32_t r = 1; r < l->size && l->rank == 0; r++) {
        int64_t bytes = now.records[r].bytes;
        if (bytes > now.most - now.total)
            return wn__fail(WN_INTERNAL, "the ranks give more than the %lld bytes that are asked for",
                            (long long)now.most);
        now.list[n++] = (struct wn__message){.peer = r, .in = bytes, .to = now.all + now.total};
        now.total += bytes;
    }
    return start(DATA, WN_CHANNEL_DATA, n);
}

static int32_t start_data(void)
{
    if (now.most > 0) return start_collection();
    const struct wn__link *l = wn__link_get();
    int32_t n = 0;
    for (int32_t r = 0; r < l->size; r++)
        if (r != l->rank)
            now.list[n++] = (struct wn__message){.peer = r,
                                                 .out = now.bytes,
                                                 .in = now.bytes,
                                                 .from = now.all + l->rank * now.bytes,
                                                 .to = now.all + r * now.bytes};
    return start(DATA, WN_CHANNEL_DATA, n);
}

/* Ends a call; what it gathered stays for the script. */
static int32_t end(int32_t code, int32_t *has_ended)
{
    now.stage = IDLE;
    now.has_result = code == WN_OK && now.total > 0;
    *has_ended = 1;
    if (code == WN_OK) return WN_OK;
    now.sentence[sizeof now.sentence - 1] = 0;
    return wn__fail(code, "%s", now.sentence);
}

/* Starts the stage behind one that has ended. */
static int32_t next(int32_t *has_ended)
{
    int32_t is_first = wn__link_get()->rank == 0;
    switch (now.stage) {
    case RECORDS:
        if (is_first) return start_verdicts();
        break;
    case WORDS: return start_sentence();
    case SENTENCE: return end(now.verdict.code, has_ended);
    case DATA: return end(WN_OK, has_ended);
    default: break;
    }
    if (now.verdict.code != WN_OK) return start_words();
    return now.total > 0 || now.most > 0 ? start_data() : end(WN_OK, has_ended);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Takes room for what is gathered, with the bytes of this rank in their place. Room in which a broken call may still
 * receive is not freed. */
static int32_t take_room(const void *mine, int64_t bytes, int64_t most)
{
    const struct wn__link *l = wn__link_get();
    int32_t is_equal = most == 0;
    wn__free(now.all);
    now.all = NULL;
    now.bytes = bytes;
    now.most = most;
    now.total = is_equal ? bytes * l->size : l->rank == 0 ? most : bytes;
    if (now.total == 0) return WN_OK;
    now.all = bytes > INT64_MAX / l->size ? NULL : wn__alloc(now.total);
    if (now.all == NULL)
        return wn__fail(WN_OOM, "out of memory: %lld bytes of all ranks, of %lld here", (long long)now.total,
                        (long long)bytes);
    if (bytes > 0) memcpy(now.all + (is_equal ? l->rank * bytes : 0), mine, (size_t)bytes);
    return WN_OK;
}

/* Notes the call: its record, and its words. A rank without memory brings that along as its failure. */
static void take_call(const struct wn__call *call, const void *mine, int64_t bytes)
{
    int32_t code = call->code;
    const char *words = code == WN_OK ? call->said : call->words;
    if (code == WN_OK && take_room(mine, bytes, call->most) != WN_OK) {
        code = WN_OOM;
        words = wn__message();
    }
    now.calls++;
    now.mine = (struct record){.hash = wn__digest(WN_DIGEST_START, call->needed, (int64_t)strlen(call->needed)),
                               .calls = now.calls,
                               .bytes = bytes,
                               .code = code,
                               .is_step = call->is_step};
    snprintf(now.said, sizeof now.said, "%s", words);
    now.verdict = (struct verdict){.code = WN_OK};
    now.since = wn__now();
    now.is_told = now.has_result = 0;
    wn__link_tell(now.calls, call->said);
}

int32_t wn__control_begin(const struct wn__call *call, const void *mine, int64_t bytes)
{
    const struct wn__link *l = wn__link_get();
    if (now.stage != IDLE) return wn__fail(WN_VALUE, "dist: a call is under way");
    if (now.room < l->size) { /* a process may be a ghost of one job after another */
        wn__free(now.list);
        wn__free(now.records);
        now.list = NULL;
        now.records = NULL;
        now.room = l->size;
    }
    if (now.list == NULL) now.list = wn__alloc((int64_t)sizeof *now.list * (l->size + 1));
    if (now.records == NULL) now.records = wn__alloc((int64_t)sizeof *now.records * l->size);
    if (now.list == NULL || now.records == NULL) return wn__link_break(WN_OOM);
    take_call(call, mine, bytes);
    if (l->is_ghost && now.mine.code != WN_OK) {
        int32_t ended;
        snprintf(now.sentence, sizeof now.sentence, "%s", now.said);
        return end(now.mine.code, &ended);
    }
    int32_t code = l->is_ghost ? start_data() : start_records();
    if (code == WN_OK) return WN_OK;
    now.stage = IDLE;
    return wn__link_break(code);
}

/* Says whom a job waits for, once, and fails when that takes longer than the timeout. Rank 0 alone knows who is late
 * while it waits too. */
static int32_t look_at_clock(const struct wn__job *job)
{
    const struct wn__link *l = wn__link_get();
    double waited = wn__now() - now.since;
    char late[256];
    if (l->is_ghost || (waited < PATIENCE_SECONDS && waited < l->timeout)) return WN_OK;
    if (l->rank != 0 && (waited < l->timeout + FIRST_SPEAKS_SECONDS || wn__link_first_watches())) return WN_OK;
    wn__link_late(job, late, sizeof late);
    if (waited > l->timeout)
        return wn__link_break(wn__fail(WN_IO, "rank %d waited %.0f s for %s", l->rank, waited, late));
    if (!now.is_told) wn__warn("rank 0 has waited %.0f s at %s for %s", waited, now.said, late);
    now.is_told = 1;
    return WN_OK;
}

int32_t wn__control_go(double seconds, int32_t *has_ended)
{
    double until = wn__now() + seconds;
    *has_ended = now.stage == IDLE;
    while (!*has_ended) {
        int32_t job_has_ended, is_judged = 0, code = wn__link_wait(now.job, until - wn__now(), &job_has_ended);
        if (code == WN_OK && job_has_ended) {
            code = next(has_ended);
            is_judged = *has_ended;
        } else if (code == WN_OK) code = look_at_clock(now.job);
        if (code != WN_OK && !is_judged) {
            now.stage = IDLE;
            now.all = NULL; /* MPI may still write there */
            return wn__link_break(code);
        }
        WN_TRY(code);
        if (!job_has_ended) return WN_OK;
    }
    return WN_OK;
}

int32_t wn__control_call(const struct wn__call *call, const void *mine, int64_t bytes)
{
    int32_t has_ended = 0;
    WN_TRY(wn__control_begin(call, mine, bytes));
    while (!has_ended) WN_TRY(wn__control_go(1, &has_ended));
    return WN_OK;
}

int32_t wn__control_differs(void)
{
    return now.stage == IDLE && now.verdict.differs ? now.verdict.by : -1;
}

int32_t wn__control_finish(struct wn__job *job)
{
    int32_t has_ended = 0, code = WN_OK;
    now.since = wn__now();
    now.is_told = 0;
    while (!has_ended && code == WN_OK) {
        code = wn__link_wait(job, 1, &has_ended);
        if (code == WN_OK && !has_ended) code = look_at_clock(job);
    }
    return code == WN_OK ? WN_OK : wn__link_break(code);
}

const void *wn__control_result(void)
{
    return now.has_result ? now.all : NULL;
}

int64_t wn__control_calls(void)
{
    return now.calls;
}

int64_t wn__control_bytes(void)
{
    return now.total;
}

void wn__control_late(char *text, int64_t room)
{
    text[0] = 0;
    if (now.stage != IDLE) wn__link_late(now.job, text, room);
}
