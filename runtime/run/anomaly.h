/* Searches for values that are not finite while a program runs: those that each application made, before the next
 * one starts. */
#ifndef WN_RUN_ANOMALY_H
#define WN_RUN_ANOMALY_H
#include "../program/program.h"

enum wn__anomaly_mode { WN_ANOMALY_OFF, WN_ANOMALY_ANY, WN_ANOMALY_NAN };
extern int32_t wn__anomaly_on;
extern struct wn_anomaly wn__anomaly_found; /* the last anomaly that was found */

/* A value in memory: `type` at `data` of a device. */
struct wn__anomaly_value {
    const struct wn_type *type;
    const void *data;
};

/* Searches the value that instruction n made, or wrote into a cell. WN_ANOMALY with op, module, line and phase: an
 * element is not finite. in: (n_in) its inputs, of which the message says whether they were finite; data NULL: the
 * input is overwritten by now. */
int32_t wn__anomaly_check(struct wn_program *p, const struct wn__instr *n, const struct wn__anomaly_value *made,
                          const struct wn__anomaly_value *in, int32_t n_in);
/* Searches a value that was there before anything ran and that effect `node` of the program reads. WN_ANOMALY. */
int32_t wn__anomaly_check_leaf(struct wn_program *p, int32_t node, const struct wn__anomaly_value *value);
#endif
