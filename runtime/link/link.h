/* A link: carries messages among the ranks of a job, the processes that mpirun or srun started as one.
 *
 * One thread calls the library behind the link (mpi/door.h): it looks at what is under way and sleeps. Whoever waits
 * for a job has its turn with these calls at first, as waking a thread takes as long as a small message.
 *
 * The thread of the script starts jobs and waits for them. A link that has failed stays broken: a rank is gone then, or
 * nobody knows which messages the others wait for, and every later call has the words of the first failure. */
#ifndef WN_LINK_LINK_H
#define WN_LINK_LINK_H
#include <stdint.h>
#include "../base/message.h"
#include "../base/status.h"
#include "mpi/door.h"

/* Says who this process is. */
struct wn__link {
    int32_t rank, size;
    int32_t per_node; /* ranks r with equal r / per_node are taken to be on one machine */
    int32_t number;   /* of this rank among those that MPI finds on its machine */
    int32_t is_open, is_ghost;
    double timeout;      /* seconds after which a wait is a failure */
    const char *library; /* "Open MPI 4.1.4"; NULL: of a ghost, and until a job is joined */
};

/* Joins a job of `size` ranks as `rank` through the library of a kind, "openmpi" or "mpich", and returns once all have.
 * per_node: so many consecutive ranks are taken to be on one machine; 0: as MPI finds.
 * Status: WN_IO where there is no library, the job is not as the launcher says, or others do not come in time; the
 * process can join none then. */
int32_t wn__link_open(const char *kind, int32_t rank, int32_t size, int32_t per_node, double timeout);
/* Becomes a rank of a job whose others are copies of this one: what they send is what this one sends them. */
int32_t wn__link_ghost(int32_t rank, int32_t size, int32_t per_node);
/* Ends that. WN_VALUE: this is no ghost. */
int32_t wn__link_alone(void);
/* Returns the link of this process; its size is 1 until it is opened. */
const struct wn__link *wn__link_get(void);

struct wn__job;
/* Puts n transfers, for the thread to begin. Jobs of a channel are put in the same order by every rank. The bytes stay
 * where they are until the job has ended, and for good where the link breaks before: MPI may still write into them.
 * ready: NULL, or
 * gets the address of a number: the messages of the channel stay here until somebody, on any thread, has set it to 1.
 * Status: WN_OOM, WN_IO. */
int32_t wn__link_start(int32_t channel, const struct wn__message *list, int32_t n, int32_t **ready,
                       struct wn__job **out);
/* Has the thread begin what was started: several jobs at once, as a hand-over takes longer than a small message. One
 * that waits for a job does so too. */
void wn__link_urge(void);
/* Waits at most `seconds` for a job, which is freed once *has_ended is 1, and never after a failure. Status: that of a
 * link which breaks or is broken, WN_IO mostly. */
int32_t wn__link_wait(struct wn__job *job, double seconds, int32_t *has_ended);
/* Returns the rank that a job waits for, and writes what it said last into text: (room) bytes. -1: nobody. */
int32_t wn__link_late(const struct wn__job *job, char *text, int64_t room);
/* Returns WN_OK while the other ranks are there, for a rank that has waited `seconds` for them by other means than a
 * job. Else the link is broken, and its status is returned: it was, a rank has left before it came to this call, ^C was
 * pressed some seconds ago, or the timeout is over. */
int32_t wn__link_look(double seconds);
/* Tells whether rank 0 has come to the call of this rank and is heard: it finds out then who is late. */
int32_t wn__link_first_watches(void);
/* Breaks the link on all ranks, with the message that was just set; returns its code. */
int32_t wn__link_break(int32_t code);
/* Tells the other ranks which call this one is at: its number, and its words. */
void wn__link_tell(int64_t calls, const char *said);
#endif
