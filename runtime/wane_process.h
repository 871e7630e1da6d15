/* Declares what the API reaches outside of this process: files, locks of files, other processes, and the ranks of a
 * job. Handles, statuses and ids are those of wane.h. */
#ifndef WANE_PROCESS_H
#define WANE_PROCESS_H
#include "wane.h"

/* ---- files: tensors pass through a small block, never as a whole ------------------------------------------------ */

/* Returns a handle of a file to write. Nothing is seen in the folder until wn_file_commit. Id: WN_IO when the folder
 * cannot be written, or the path is something else than a regular file.
 *   local id = binding.id(C.wn_file_create 'model.safetensors')
 *   binding.check(C.wn_file_save(id, weight.id))
 *   binding.check(C.wn_file_commit(id)) */
WN_API int32_t wn_file_create(const char *path);
/* Appends n bytes. Status: WN_IO when the disk is full. */
WN_API int32_t wn_file_write(int32_t file, const void *bytes, int64_t n);
/* Appends the plain row-major bytes of a held value or a cell. */
WN_API int32_t wn_file_save(int32_t file, int32_t handle);
/* Puts the file on disk and in the place of the old one, by one rename, and closes it. */
WN_API int32_t wn_file_commit(int32_t file);
/* Returns a handle of a file to read. Id: WN_IO when there is none, or it is no regular file. */
WN_API int32_t wn_file_open(const char *path);
/* Returns the bytes of a file; -1 for what is no file. */
WN_API double wn_file_size(int32_t file);
/* Reads n bytes from byte `at`. Status: WN_IO when the file has fewer. */
WN_API int32_t wn_file_read(int32_t file, int64_t at, void *bytes, int64_t n);
/* Returns the bytes of one element of a kind (io/convert.h), "F16"; 0: there is no such kind. */
WN_API int32_t wn_element_bytes(const char *kind);
/* Returns the dtype that elements of a kind become; -1: there is no such kind. */
WN_API int32_t wn_element_dtype(const char *kind);
/* A tensor in a file. The fields from `cell` on are of wn_file_load alone.
 *
 *     columns = 0: elements as they are            columns = 3: a matrix whose other form the cell holds
 *     file   a b c d e f                           file   a b            cell, rows of 3   a c e
 *     cell   ...a b c d e f...                            c d                              b d f
 *            ^first                                       e f */
struct wn_file_piece {
    int64_t at;              /* byte where it begins */
    const char *kind, *name; /* of its elements; its name, for messages */
    int32_t file;            /* handle of the file */
    int32_t swap;            /* 1: the bytes of an element are in the other order than this machine's */
    int32_t cell;            /* handle of the cell that takes it */
    int64_t first, count;    /* element of the cell, row by row, that its first becomes; number of elements */
    int64_t columns;         /* 0, or the columns of the matrix in the cell that the file has as columns x rows */
    int64_t rows, from; /* 0, or the rows of this matrix where its elements [from, from + count), row by row, are the
                         * piece: a rank has a range of it */
};
/* Returns a handle of a value of that type and device with the elements of a piece. Floats become floats and
 * integers become integers. Id: WN_VALUE names the first element that the dtype does not hold, WN_DTYPE when the
 * kind cannot become it. */
WN_API int32_t wn_file_data(const struct wn_file_piece *piece, const struct wn_type *type, int32_t device);
/* Writes n pieces into their cells, in the dtypes of the cells. The pieces of a cell follow each other from its first
 * element to its last, else WN_VALUE. All pieces are checked and all storage is taken before the first cell is
 * written, so a failure before changes nothing; when reading fails later, cells that had a value are invalid until
 * they are written, and others are as they were. Status: as of wn_file_data; WN_DEVICE for a cell of meta. */
WN_API int32_t wn_file_load(int32_t n, const struct wn_file_piece *pieces);
/* Checks a path before work is spent on it. Status: WN_IO when a pipe, socket, device or folder has this name. */
WN_API int32_t wn_file_check(const char *path, int32_t is_written);
/* Returns an upper bound of the bytes that the value of a text of n bytes takes in Lua beside its letters, known before
 * the value is made: the header of a file may hold anything. A text that is no JSON has a bound too. */
WN_API double wn_json_cost(const char *text, int64_t n);

/* ---- locks ------------------------------------------------------------------------------------------------------ */

/* Returns a handle of the right to write a file, kept by PATH.lock beside it until wn_free, or until this
 * process ends, however it ends. *is_kept 0: the file system has no locks, so nothing is kept. Id: WN_IO names the
 * process that has it and since when, or PATH.lock where that is a link or a file that is no lock; such a file stays as
 * it is. */
WN_API int32_t wn_lock(const char *path, int32_t *is_kept);

/* ---- processes: a sweep runs each of its points in one
 * --------------------------------------------------------------- */

/* How a process ended. */
struct wn_ended {
    int32_t ended;  /* 0: not yet */
    int32_t code;   /* of its exit */
    int32_t signal; /* that ended it; 0: none */
};
/* Starts a process and returns its number, or -(status): WN_IO when it cannot be started. argv, and set
 * ("NAME=value", in place of variables of these names in this process's environment), end with NULL. Appends what it
 * prints to the file `output`; it reads nothing and is in a process group of its own. */
WN_API int32_t wn_spawn(const char *path, const char *const *argv, const char *const *set, const char *output);
/* Waits at most `seconds` for a process that this one started and fills *out; ended is 0 when time is up or an
 * interrupt came (wn_interrupted). Status: WN_IO when there is no such child. */
WN_API int32_t wn_wait(int32_t pid, double seconds, struct wn_ended *out);
/* Kills a process that this one started, and what that started. Status: WN_IO when it is none, or has ended. */
WN_API int32_t wn_kill(int32_t pid);
/* Makes the system kill this process when its parent, process `parent`, ends. Status: WN_IO when that has ended. */
WN_API int32_t wn_exit_with_parent(int32_t parent);
/* Returns the number of this process. */
WN_API int32_t wn_process(void);
/* Returns the name of a signal, "KILL"; NULL: there is no such signal. */
WN_API const char *wn_signal_name(int32_t number);
/* Folds n bytes into *state: FNV-1a of 64 bits, whose first state is 0xcbf29ce484222325. */
WN_API void wn_digest(uint64_t *state, const void *bytes, int64_t n);

/* ---- ranks: the processes that mpirun or srun started as one job ------------------------------------------------- */

/* Says who this process is. */
struct wn_dist {
    int32_t rank, size; /* 0 of 1 until a job is joined */
    int32_t per_node;   /* so many consecutive ranks share a machine; 1 where that differs */
    int32_t is_open, is_ghost;
    int64_t calls;        /* of all ranks that this one has begun */
    const char *library;  /* "Open MPI 4.1.4"; NULL until a job is joined, and of a ghost */
    const char *gpu_link; /* "NCCL 2.21.5", or "pinned memory: " and why; NULL until wn_dist_gpus, and without a GPU */
};
/* Returns the kinds of MPI that a job can be joined through, in one line, or how to have one. Nothing is opened. */
WN_API const char *wn_mpi(void);
/* Fills *out with who this process is. */
WN_API int32_t wn_dist_get(struct wn_dist *out);
/* Joins the job that a launcher started, through MPI of a kind, "openmpi" or "mpich", and returns once all ranks
 * have, or fails after `timeout` seconds. The process leaves the job when it exits. Status: WN_IO where there is no
 * such library, and where MPI sees another job than the launcher tells of; WN_VALUE for a second start. */
WN_API int32_t wn_dist_start(const char *kind, int32_t rank, int32_t size, int32_t per_node, double timeout);
enum { WN_DIST_GPU = 448 };
/* Fills in what the other ranks have to know of this one's GPU: WN_DIST_GPU bytes. */
WN_API int32_t wn_dist_gpu(void *facts);
/* Decides whether GPUs exchange by NCCL. all: those bytes of all ranks, in their order. Status: WN_VALUE where ranks
 * have GPUs of other kinds, or other versions of it. */
WN_API int32_t wn_dist_gpus(const void *all, int64_t bytes);
/* Becomes a rank of a job whose other ranks are copies of this one, per_node of them on a machine; nothing is sent. */
WN_API int32_t wn_dist_ghost(int32_t rank, int32_t size, int32_t per_node);
/* Ends that, for plans of a job by a process that is none of it. Status: WN_VALUE where this is no ghost. */
WN_API int32_t wn_dist_alone(void);
/* Says how the ranks of this job have a parameter's gradient and the states of its optimizer: each of its own range, by
 * a cut whose left-over stripes go to part `start` first; start = -1: each of the whole. Fills *next with where the cut
 * of the next parameter starts, so that many small ones are dealt evenly. Equal calls on all ranks. Status: WN_VALUE
 * where the parameter has a gradient. A parameter in ranges is laid out plain: what was recorded of it before is
 * stale. */
WN_API int32_t wn_dist_slice(int32_t cell, int32_t start, int32_t *next);
/* Names how much a rank has of a parameter: all of its value, its own range, or that range in plans alone. */
enum { WN_DIST_WHOLE, WN_DIST_RANGE, WN_DIST_TRIED };
/* Has each rank keep its own range of the value of such a parameter alone, too: programs that read it gather it, and so
 * all ranks run them. WN_DIST_WHOLE takes that back before it has a value; WN_DIST_TRIED leaves a value as it is, which
 * allows plans and no run, until that is taken back. Status: WN_VALUE where the value is in ranges already;
 * WN_UNSUPPORTED on a GPU. */
WN_API int32_t wn_dist_shard(int32_t cell, int32_t how);
/* Fills in which elements of a parameter a rank has the gradient and the states of, where their cut starts, -1 where it
 * has the whole, and whether it has these of the value alone, too. rank: -1 is this one. */
WN_API int32_t wn_dist_range(int32_t cell, int32_t rank, int64_t *first, int64_t *count, int32_t *start,
                             int32_t *is_sharded);
/* A call that all ranks make. */
struct wn_dist_call {
    const char *said;   /* "gather (3, 4) f32 at train.lua:31": for messages */
    const char *needed; /* "gather (3, 4) f32": must be equal on all ranks */
    int32_t code;       /* 0, or the status with which this rank has failed before: all fail with it then */
    const char *words;  /* of that failure */
    int64_t bytes;      /* that this rank gives, each as many */
    const void *mine;   /* (bytes) */
    int64_t most;       /* above 0: rank 0 alone gets what each has, at most so many bytes */
};
/* Begins a call; its bytes are copied. Status: WN_VALUE while one is under way; that of a broken link. */
WN_API int32_t wn_dist_begin(const struct wn_dist_call *call);
/* Goes on with the call for at most `seconds`. Status: of the rank that failed; WN_VALUE where ranks make different
 * calls; WN_IO once a rank has left, or is waited for longer than `timeout`, and WN_INTERRUPT some seconds after ^C:
 * every later call fails with the same words then. */
WN_API int32_t wn_dist_go(double seconds, int32_t *has_ended);
/* Copies what the last call gathered, in the order of ranks. Status: WN_VALUE where that is none, or not n bytes. */
WN_API int32_t wn_dist_result(void *to, int64_t n);
/* Returns who the call waits for, in one line; "" where nobody is. Valid until the next call. */
WN_API const char *wn_dist_late(void);
#endif
