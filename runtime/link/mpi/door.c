/* The door to MPI (door.h), compiled by the mpicc of one kind: `make mpi`. MPI reports errors to the caller here, so
 * that one of them ends a run with its words and not the process. */
#include "door.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits the caller's 64 bits");

static MPI_Comm channels[WN_CHANNEL_COUNT];
static const int TAG = 1;

/* Fills *m for a rank. Machines with as many consecutive ranks each have a per_node. */
static int32_t find_machine(int32_t rank, struct wn_mpi_machine *m)
{
    MPI_Comm node;
    int here = 0, at = 0, code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(node, &here);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(node, &at);
    if (code == MPI_SUCCESS) code = MPI_Comm_free(&node);
    int mine[3] = {here, -here, here > 0 && rank % here == at}, least[3] = {0};
    if (code == MPI_SUCCESS) code = MPI_Allreduce(mine, least, 3, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    *m = (struct wn_mpi_machine){.ranks = here, .number = at, .per_node = least[0] == -least[1] && least[2] ? here : 1};
    return code;
}

static int32_t start(int32_t *rank, int32_t *size, struct wn_mpi_machine *machine)
{
    int got, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &got);
    if (code == MPI_SUCCESS && got < MPI_THREAD_SERIALIZED) code = MPI_ERR_OTHER;
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, size);
    if (code == MPI_SUCCESS) code = find_machine(*rank, machine);
    for (int k = 0; k < WN_CHANNEL_COUNT && code == MPI_SUCCESS; k++) code = MPI_Comm_dup(MPI_COMM_WORLD, &channels[k]);
    return code;
}

static int32_t send(int32_t channel, int32_t peer, const void *from, int64_t bytes, uint64_t *request)
{
    MPI_Request r;
    int code = MPI_Isend(from, (int)bytes, MPI_BYTE, peer, TAG, channels[channel], &r);
    if (code == MPI_SUCCESS) memcpy(request, &r, sizeof r);
    return code;
}

static int32_t receive(int32_t channel, int32_t peer, void *to, int64_t bytes, uint64_t *request)
{
    MPI_Request r;
    int code = MPI_Irecv(to, (int)bytes, MPI_BYTE, peer, TAG, channels[channel], &r);
    if (code == MPI_SUCCESS) memcpy(request, &r, sizeof r);
    return code;
}

static int32_t test(uint64_t *request, int32_t *has_ended)
{
    MPI_Request r;
    int flag = 0;
    memcpy(&r, request, sizeof r);
    int code = MPI_Test(&r, &flag, MPI_STATUS_IGNORE);
    memcpy(request, &r, sizeof r);
    *has_ended = flag;
    return code;
}

static int32_t take(int32_t channel, void *to, int64_t room, int32_t *peer, int64_t *bytes)
{
    MPI_Status status;
    int flag = 0, count = 0;
    *bytes = -1;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, TAG, channels[channel], &flag, &status);
    if (code != MPI_SUCCESS || !flag) return code;
    *peer = status.MPI_SOURCE;
    code = MPI_Recv(to, (int)room, MPI_BYTE, *peer, TAG, channels[channel], &status);
    if (code == MPI_SUCCESS) code = MPI_Get_count(&status, MPI_BYTE, &count);
    if (code == MPI_SUCCESS) *bytes = count;
    return code;
}

static int32_t stop(void)
{
    return MPI_Finalize();
}

static void end_job(int32_t code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void text_of(int32_t number, char *text, int64_t room)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (MPI_Error_string(number, words, &n) != MPI_SUCCESS) snprintf(words, sizeof words, "MPI's error %d", number);
    snprintf(text, (size_t)room, "%s", words);
}

static const char *library(void)
{
    static char text[128], words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0;
    MPI_Get_library_version(words, &n);
    static const struct kind {
        const char *opens, *name, *ends; /* how the words open, the name, what ends the version behind them */
    } kinds[] = {{"Open MPI v", "Open MPI ", ", \n"}, {"MPICH Version:", "MPICH ", "\n"}, {"", "", "\n"}};
    const struct kind *k = kinds;
    while (strncmp(words, k->opens, strlen(k->opens)) != 0) k++;
    const char *version = words + strlen(k->opens);
    version += strspn(version, " \t");
    snprintf(text, sizeof text, "%s%.*s", k->name, (int)strcspn(version, k->ends), version);
    return text;
}

__attribute__((visibility("default"))) const struct wn_mpi_door *wn_mpi_door(void);

const struct wn_mpi_door *wn_mpi_door(void)
{
    static struct wn_mpi_door door = {.version = WN_MPI_DOOR,
                                      .start = start,
                                      .send = send,
                                      .receive = receive,
                                      .test = test,
                                      .take = take,
                                      .stop = stop,
                                      .end_job = end_job,
                                      .text = text_of};
    door.library = library();
    return &door;
}
