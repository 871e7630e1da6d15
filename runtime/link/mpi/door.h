/* The door to MPI: what a library libwane_mpi-<kind>.so offers, in types of plain C, so that libwane.so is built and
 * runs without MPI. mpicc compiles door.c against one kind of MPI; runtime/link/mpi.c opens the library of the
 * launcher's kind.
 *
 * Any thread makes calls, one at a time (MPI_THREAD_SERIALIZED), but `stop`, which the thread of `start` makes.
 * Messages of a channel between two ranks arrive in the order in which they were sent; no call waits for another rank,
 * but `start` and `stop`. A call returns 0, or a number that `text` turns into words. */
#ifndef WN_LINK_DOOR_H
#define WN_LINK_DOOR_H
#include <stdint.h>

/* A communicator of its own for each kind of messages, so that none meets a receive of another kind. */
enum wn_channel {
    WN_CHANNEL_DATA,    /* values that ranks give to each other */
    WN_CHANNEL_REFRESH, /* ranges of states: each rank starts these among those of values where its own plan says */
    WN_CHANNEL_GATHER,  /* states that programs read, too */
    WN_CHANNEL_CALLS,   /* agreement */
    WN_CHANNEL_WORDS,   /* heartbeats and last words, which nobody asked for */
    WN_CHANNEL_COUNT
};

/* Says which ranks share the machine of one. */
struct wn_mpi_machine {
    int32_t ranks, number; /* how many, and the number of this one among them */
    int32_t per_node;      /* ranks r with equal r / per_node are on one machine; 1 where no number says that */
};

struct wn_mpi_door {
    int32_t version;     /* WN_MPI_DOOR; another number is of other sources */
    const char *library; /* "Open MPI 4.1.4" */
    /* Joins the job, and fills in what MPI says of it: the job's size is 1 under a launcher of another kind. */
    int32_t (*start)(int32_t *rank, int32_t *size, struct wn_mpi_machine *machine);
    /* Begin to move a message; its bytes stay where they are until `test` finds it ended. bytes < 2^31. */
    int32_t (*send)(int32_t channel, int32_t peer, const void *from, int64_t bytes, uint64_t *request);
    int32_t (*receive)(int32_t channel, int32_t peer, void *to, int64_t bytes, uint64_t *request);
    int32_t (*test)(uint64_t *request, int32_t *has_ended);
    /* Takes a message of at most `room` bytes from any rank; *bytes = -1: there is none. */
    int32_t (*take)(int32_t channel, void *to, int64_t room, int32_t *peer, int64_t *bytes);
    /* Leaves the job, once every rank does. */
    int32_t (*stop)(void);
    /* Ends the job, all ranks of it. */
    void (*end_job)(int32_t code);
    /* Writes the words of a number into text: (room) bytes. */
    void (*text)(int32_t number, char *text, int64_t room);
};

#define WN_MPI_DOOR 4
/* The only symbol of the library: returns its door. */
typedef const struct wn_mpi_door *(*wn_mpi_door_fn)(void);
#endif
