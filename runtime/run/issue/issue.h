/* The issuers: start the instructions of a run, and know where each space of its schedule begins in memory this time.
 *
 *   direct.c     addresses, and the launch of one kernel
 *   captured.c   stretches of kernels that the device captures and starts as one
 *   transfer.c   offloads and fetches
 *   scalars.c    numbers that the host hands to kernels and takes from them
 *   exchange.c   what moves among ranks
 *   staging.c    the same through the host, of a device whose memory the host does not address
 *   own_link.c   whether devices exchange without the host
 *   difference.c where their programs differ
 *
 *   arena            slab k             cell k               bound value k        result k
 *   | value | work   | gradient |       | parameter |        | input |            | loss |
 *   run->arena       slab[k]->data      cell[k]'s data       bound[k]->held       run->result[k] */
#ifndef WN_RUN_ISSUE_ISSUE_H
#define WN_RUN_ISSUE_ISSUE_H
#include "../../link/control.h"
#include "../../program/program.h"

/* The transfers of a run. All buffers are acquired before the first kernel, so that a full disk is met while nothing
 * has changed. Then each transfer is started and waited for where the schedule says, and nowhere else. */
struct wn__transfer {
    struct wn_offload_buffer *offload_buffer[WN_MEDIUM_COUNT];
    int64_t started[WN_MEDIUM_COUNT][WN_WAY_COUNT]; /* transfers started, by medium and direction */
    struct {
        int32_t medium, way;
        int64_t number; /* among those of its medium and direction */
    } * move;           /* (n_moves) the transfers that were started; NULL: there are none */
    double stall;       /* seconds spent waiting */
};

/* The graphs of a run. Invariant: kernels of instructions before `started` that are in a segment have started. */
struct wn__captured {
    int32_t key;     /* number of the set of addresses that this run has */
    int32_t segment; /* the first segment that was not met */
    int32_t started; /* a graph has started the kernels of the instructions before this one */
};

/* The exchanges of a run. A rank whose kernels have failed goes on through its exchanges without them, since the others
 * wait for its messages. All ranks vote when everything is exchanged, before the first change of a state that is no
 * gradient: where one has failed all fail with its words, and the gradients are dropped. */
struct wn__exchange {
    struct wn__message *list;       /* (ranks) room for the messages of one exchange; NULL: there is none */
    struct wn__job **job;           /* (n_moves) those under way */
    const struct wn__instr **begun; /* (n_moves) what started those of a device apart; NULL: there are none */
    int64_t *left;                  /* (n_moves) numbers of their moves out, or of exchanges on a link of the device */
    int64_t started;                /* exchanges on such a link */
    int64_t staged_top;             /* the highest byte of the host that one went through */
    int32_t is_apart;               /* somebody looks at each instruction by itself, so nothing comes behind the run */
    int32_t has_voted, has_failed;  /* all ranks have voted; one of them had failed */
    char *beginnings;               /* (n_cells of the IR, 64) of the states that an update changes */
    int32_t code;                   /* of the failure that this rank brings to the vote */
    char words[1024];               /* of it */
    char said[256], needed[256];    /* of the agreement */
};

struct wn__run;
/* Starts the kernel of an instruction: wn__issue or wn__issue_captured. */
typedef int32_t wn__issuer(struct wn__run *r, const struct wn__instr *n);

/* A run under way. Invariants: ended <= at; between wn__acquire and wn__acquired_release, every allocation of the
 * schedule has its bytes. */
struct wn__run {
    struct wn_program *p;
    const struct wn__ir *ir; /* of p, as its schedule */
    struct wn__schedule *schedule;
    struct wn_device *device;
    wn__issuer *issue;    /* what starts kernels */
    int32_t at;           /* the instruction that is being started */
    int32_t ended;        /* instructions before this one have ended: the device was waited for */
    int32_t effects;      /* instructions started that change a state */
    struct wn__pool pool; /* what the host needs while it runs */
    char *arena;
    struct wn__buffer **result; /* (n_results of the IR) NULL where a result is a number, or was kept */
    const int32_t
        *result_kind; /* (n_results of the IR) of first values: the kind of the cell that gets each; or NULL */
    double *number;   /* (n_results of the IR) the elements of results that are numbers, as the device has them */
    uint64_t *report; /* (n_reports of the schedule) room for the reports of wrong data */
    const void **in;  /* (most_in of the IR) room for the addresses of an instruction's inputs */
    struct wn__transfer transfer;
    struct wn__captured captured;
    struct wn__exchange exchange;
    struct wn__meter *meter;
    struct {
        struct wn_cell **cell; /* (n) cells that got storage for this run; not counted */
        int32_t n;
    } fresh;
};

/* Returns the address of an allocation of the schedule; NULL on a device without bytes. */
char *wn__allocation_address(const struct wn__run *r, const struct wn__allocation *t);
/* Returns the address of value number `value` of the schedule. */
char *wn__value_address(const struct wn__run *r, int32_t value);
/* Returns the address at which an instruction writes cell k: of its own range, where it does not exchange the rest. */
char *wn__written_address(const struct wn__run *r, const struct wn__instr *n, int32_t k);
/* Returns the address of the workspace of an instruction that has one. */
char *wn__work_address(const struct wn__run *r, const struct wn__instr *n);

/* Launches the kernel of an instruction. */
int32_t wn__issue(struct wn__run *r, const struct wn__instr *n);
/* Starts the kernel of an instruction, or all kernels of the segment that it is in, as a graph; captures that first
 * where it is time. WN_DEVICE: the device is lost. */
int32_t wn__issue_captured(struct wn__run *r, const struct wn__instr *n);

extern int32_t wn__captures_on; /* 0: no graphs; 1, the default: where the device has them */
/* Makes what is kept with the schedule, where the device has graphs. WN_OOM. */
int32_t wn__captured_take(struct wn__run *r);
/* Gives back all graphs of a device, whose memory is the driver's; later runs capture them anew. Requires that no run
 * is under way. */
void wn__captured_trim(int32_t device);
/* Finds the graphs of a run's addresses and lets it issue by them, where it has any. */
void wn__captured_start(struct wn__run *r);

/* Takes the host's room of the exchanges of a schedule. WN_OOM. */
int32_t wn__exchange_take(struct wn__run *r);
/* Agrees with the other ranks about the run, before its first exchange. Does nothing for a run without exchanges. */
int32_t wn__exchange_begin(struct wn__run *r);
/* Returns a number of the first n nodes of an IR, equal where ranks have the same ones: ops, types, inputs. */
uint64_t wn__ir_number(const struct wn__ir *ir, int32_t n);
/* Fails with words about the first node at which rank `by` differs from rank 0; all ranks call it together. order: of
 * the states that the run gathers, as a number, which the plan of a rank decides. */
int32_t wn__difference_find(const struct wn_program *p, int32_t by, uint32_t order);
/* Starts the exchange of an instruction. */
int32_t wn__exchange_start(struct wn__run *r, const struct wn__instr *n);
/* Waits for the exchange that instruction n starts or waits for. */
int32_t wn__exchange_wait(struct wn__run *r, const struct wn__instr *n);
/* The addresses of one exchange, on the device or on the host. */
struct wn__moved {
    const struct wn_attrs *attrs;
    int32_t op, channel, rank, ranks; /* of them `ranks` take part */
    int32_t gives;                    /* this rank gives a value */
    int64_t size;                     /* bytes of an element */
    char *from, *to;                  /* a value and its pieces, or the own range of a state and the state */
};
struct wn__moved wn__moved_of(const struct wn__run *r, const struct wn__instr *n);
/* Returns the bytes that a rank owns of what is exchanged. */
struct wn__range wn__moved_range(const struct wn__moved *m, int32_t rank);
/* Lists the messages of an exchange and returns how many they are. list: (ranks). */
int32_t wn__exchange_list(const struct wn__moved *m, struct wn__message *list);
/* Starts an exchange through the host, and waits for its job, the number-th move of the run. */
int32_t wn__staging_start(struct wn__run *r, const struct wn__instr *n, const struct wn__moved *m,
                          struct wn__job **out);
int32_t wn__staging_wait(struct wn__run *r, int32_t number, struct wn__job *job);
/* Wait for what earlier runs have exchanged of the states that an instruction uses, and of all of a run. */
int32_t wn__exchange_settle(struct wn__run *r, const struct wn__instr *n);
int32_t wn__exchange_settle_all(const struct wn__run *r);
/* Fills what other ranks have to know of this one's device, and decides by those of all whether devices exchange
 * without the host. Status: WN_VALUE where ranks have other versions of NCCL. */
int32_t wn__own_link_say(struct wn_link_facts *out);
int32_t wn__own_link_choose(const struct wn_link_facts *all /* (ranks) */);
/* Returns how devices exchange, in words; NULL: nobody asked, or there are none. */
const char *wn__own_link_text(void);
/* Opens the link of a run's device, where it is used and not open; a failure breaks that of the ranks. */
int32_t wn__own_link_open(struct wn__run *r);
/* Notes a failure of this rank that the others have to hear of; returns whether it goes on to the vote. */
int32_t wn__exchange_fails(struct wn__run *r, int32_t code);
/* Has all ranks vote, once: a failure of one is that of all. */
int32_t wn__exchange_vote(struct wn__run *r);
/* Returns whether a run may have changed more than gradients: no other ranks are asked, or none of them had failed. */
int32_t wn__exchange_has_passed(const struct wn__run *r);
/* Breaks the link where this rank alone has failed, after the vote: the others would wait for it. Returns code. */
int32_t wn__exchange_stop(const struct wn__run *r, int32_t code);

/* Acquires the offload buffers of a schedule. Warns once where one is slower than it should be. */
int32_t wn__transfer_take(struct wn__run *r);
/* Starts the transfer of instruction n, and adds its bytes to p->measured. */
int32_t wn__transfer_start(struct wn__run *r, const struct wn__instr *n);
/* Waits until the transfer that instruction n names has ended. */
int32_t wn__transfer_wait(struct wn__run *r, const struct wn__instr *n);
/* Stops every transfer, whatever happened before, and adds their seconds to p->measured. */
void wn__transfer_stop(struct wn__run *r);

/* Uploads the numbers of the host, and on an asynchronous device seeds, counters and empty reports. WN_OOM. */
int32_t wn__scalars_put(const struct wn__run *r);
/* Starts to read the 0-d result of a READ to r->number. */
int32_t wn__number_read(const struct wn__run *r, const struct wn__instr *n);
/* Gives every result that is a number what was read, once the device has been waited for. */
void wn__numbers_take(const struct wn__run *r);
/* Waits for the device and looks at the reports. WN_VALUE: an instruction met an index outside its table; the message
 * is that of the CPU's kernel. Does nothing where no instruction reports. */
int32_t wn__reports_check(const struct wn__run *r);
#endif
