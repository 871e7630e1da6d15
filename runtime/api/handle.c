/* The table of handles. A finalizer only puts a number into the queue, which is threaded through the table and so
 * cannot fail; the next call of the API releases what the queue holds. The table and all that handles are of belong
 * to the thread that started the library: every call passes wn__thread_check, here or in wn__enter, so that a call
 * of another thread is refused before it changes anything. */
#include <pthread.h>
#include "api.h"
#include "../program/sequence.h"

struct handle {
    void *what;
    int32_t kind;   /* WN_HANDLE */
    int32_t next;   /* handle that follows in the free list or in the queue; -1: none */
    int32_t queued; /* 1: it is in the queue */
};
static struct handle *table;
static int64_t capacity;
static int32_t used, free_head = -1, queue_head = -1;

static pthread_t owner;
static int32_t has_owner;

void wn__thread_own(void)
{
    owner = pthread_self();
    has_owner = 1;
}

int32_t wn__thread_check(void)
{
    if (!has_owner || pthread_equal(owner, pthread_self())) return WN_OK;
    return wn__fail(WN_VALUE, "Wane is used by one thread, the one that loaded it, and this call comes from another; "
                              "make it there, or start a process for the other work");
}

static int32_t kind_in_table(int32_t id)
{
    return id >= 0 && id < used && !table[id].queued ? table[id].kind : WN_HANDLE_FREE;
}

int32_t wn__handle_kind(int32_t id)
{
    return wn__thread_check() == WN_OK ? kind_in_table(id) : WN_HANDLE_FREE;
}

void *wn__handle_get(int32_t id, int32_t kind)
{
    static const char *const names[] = {"nothing",   "a value", "a state", "a hyper block",
                                        "a program", "a file",  "a lock",  "a sequence"};
    if (wn__thread_check() != WN_OK) return NULL;
    int32_t found = kind_in_table(id);
    if (found == kind) return table[id].what;
    wn__fail(WN_VALUE, "handle %d is %s where %s was expected; was it freed?", id, names[found], names[kind]);
    return NULL;
}

void wn__handle_release(int32_t id)
{
    if (wn__handle_kind(id) == WN_HANDLE_FREE) return;
    table[id].queued = 1;
    table[id].next = queue_head;
    queue_head = id;
}

/* Gives the reference up that a handle held; NULL does nothing. */
static void handle_let_go(int32_t kind, void *what)
{
    if (what == NULL) return;
    switch (kind) {
    case WN_HANDLE_VALUE: wn__node_unref(what); break;
    case WN_HANDLE_CELL: wn__cell_unref(what); break;
    case WN_HANDLE_PROGRAM: wn__program_free(what); break;
    case WN_HANDLE_FILE: wn__file_free(what); break;
    case WN_HANDLE_LOCK: wn__lock_free(what); break;
    case WN_HANDLE_SEQUENCE: wn__sequence_free(what); break;
    case WN_HANDLE_HYPER: wn__hyper_unref(what); break;
    default: break;
    }
}

int32_t wn__handle_of(int32_t code, int32_t kind, void *what)
{
    int32_t id = free_head;
    if (code == WN_OK && id < 0) code = wn__grow(&table, &capacity, used + 1, sizeof *table);
    if (code != WN_OK) {
        handle_let_go(kind, what);
        return -code;
    }
    if (id >= 0) free_head = table[id].next;
    else id = used++;
    table[id] = (struct handle){what, kind, -1, 0};
    return id;
}

void wn__handle_drain(void)
{
    while (queue_head >= 0) {
        int32_t id = queue_head;
        struct handle h = table[id];
        queue_head = h.next;
        if (h.next >= 0)
            __builtin_prefetch(table[h.next].what, 1); /* its count, which is read next, is not in the caches */
        table[id] = (struct handle){NULL, WN_HANDLE_FREE, free_head, 0};
        free_head = id;
        handle_let_go(h.kind, h.what);
    }
}

int32_t wn__handle_value(int32_t id, struct wn_node **out)
{
    WN_TRY(wn__thread_check());
    if (kind_in_table(id) == WN_HANDLE_CELL) return wn__cell_reader(table[id].what, out);
    struct wn_node *n = wn__handle_get(id, WN_HANDLE_VALUE);
    if (n == NULL) return WN_VALUE;
    wn__node_ref(n);
    *out = n;
    return WN_OK;
}
