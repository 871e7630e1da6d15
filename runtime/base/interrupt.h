/* The flag by which long work is asked to stop: SIGINT and wn_interrupt set it, whoever works polls it. */
#ifndef WN_BASE_INTERRUPT_H
#define WN_BASE_INTERRUPT_H
#include <stdint.h>

/* 1: runs that have changed nothing yet, and planning, stop with WN_INTERRUPT. */
extern volatile int32_t wn__interrupted;

/* Returns WN_INTERRUPT once the flag is set, else WN_OK. Planning calls it between two pieces of work. */
int32_t wn__heed_interrupt(void);
#endif
