/* The thread of a link, and the state that it shares with the thread of the script; for the files of this room. */
#ifndef WN_LINK_THREAD_H
#define WN_LINK_THREAD_H
#include <pthread.h>
#include "link.h"

#define WN_DEAF_SECONDS 5.0 /* without a word after which a rank is said to be silent: some heartbeats */

/* WN_WORD_OVER: rank 0 says that all have left. */
enum wn__word_kind { WN_WORD_BEAT, WN_WORD_LEFT, WN_WORD_OVER, WN_WORD_BROKEN, WN_WORD_COUNT };

/* A word: a message that a rank sends without being asked, a heartbeat each second or its last words. */
struct wn__word {
    int32_t kind;
    int32_t code;   /* of WN_WORD_BROKEN: the status */
    int64_t calls;  /* how many calls of all ranks the sender has begun */
    char said[496]; /* the last of them; of WN_WORD_BROKEN why */
};

/* Holds what is known of a rank. */
struct wn__peer {
    double heard; /* when it spoke last, on the clock of wn__now; 0: never; HUGE_VAL: it has left; rank 0 speaks on */
    int32_t has_left;
    int64_t calls;
    char said[128];
};

/* One message of at most 2^30 bytes: MPI counts in int. */
struct wn__piece {
    char *at;
    int64_t bytes;
    int32_t peer, is_receive, has_ended;
    uint64_t request;
};

struct wn__job {
    struct wn__job *next;
    int32_t channel, is_listed, has_begun, has_ended;
    int32_t awaits;   /* the first rank whose part has not ended; -1: none */
    int32_t is_ready; /* what goes out is there */
    int32_t is_word;
    int64_t n;
    struct wn__piece *pieces; /* (n) */
    struct wn__piece own;     /* of a word, whose only piece it is */
    struct wn__word word;     /* of a word: what is sent */
};

enum wn__link_phase { WN_LINK_CLOSED, WN_LINK_OPENING, WN_LINK_OPEN, WN_LINK_LEAVING };

/* Names how the thread sleeps: not at all, for moments while messages are under way, or until a job is put. */
enum wn__sleep { WN_SLEEP_NONE, WN_SLEEP_BUSY, WN_SLEEP_IDLE };

/* Invariant: whoever has the turn alone calls the door and touches the pieces of a job that has begun; everything else
 * is guarded by the lock, but what is set before the thread starts. The lock is taken behind the turn, never the other
 * way round. The thread allocates nothing. */
struct wn__link_state {
    struct wn__link is;
    const struct wn_mpi_door *door;
    pthread_t thread;
    pthread_mutex_t turn;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* after a job has ended, a word has come, and each change of `phase` and `broken` */
    pthread_cond_t put;     /* after a job was put */
    enum wn__link_phase phase;
    struct wn__job *jobs, **last; /* in the order of their start; where the next one is linked */
    double young;                 /* seconds for which whoever waits for a job carries it, before it sleeps */
    int32_t is_new;               /* a job was put since the thread looked */
    int32_t is_busy;              /* messages are under way */
    int32_t is_awaited;           /* the script sleeps until a job has ended */
    enum wn__sleep sleep;         /* of the thread */
    struct wn__job *words;        /* (size, WN_WORD_COUNT): one of each kind to each rank */
    struct wn__peer *peers;       /* (size) */
    int64_t calls;
    char said[128];
    char broken[496]; /* why the link is broken; "": it is not */
    int32_t code;     /* its status */
    int32_t is_dead;  /* it broke in MPI itself: nothing more is sent */
    int32_t is_over;  /* all ranks have left */
    int32_t is_told;  /* that this rank waits at its end */
    double ending;    /* when this rank left or the link broke, whichever was later */
    int32_t process;  /* whose thread it is: a child after a fork has none */
};
extern struct wn__link_state wn__link_state;

/* The thread's main function: joins the job, carries messages until all ranks have left, and leaves it. */
void *wn__link_serve(void *unused);
/* Begins the jobs that are new and may begin, and takes those out of the list that have ended; of a broken link words
 * alone. Needs the turn, and not the lock. */
void wn__link_carry(void);
/* The lock is held during each of these. wn__link_put wakes nobody. */
void wn__link_put(struct wn__job *job);
/* Says a word to a rank, or to all others (-1). A heartbeat is left out while the one before is under way. */
void wn__link_say(enum wn__word_kind kind, const char *said, int32_t to);
/* Writes a rank, and what is known of it, into text: (room) bytes. -1: nobody. */
void wn__link_describe(int32_t rank, char *text, int64_t room);
/* Breaks the link here, unless it is broken. */
void wn__link_break_here(int32_t code, const char *text);
#endif
