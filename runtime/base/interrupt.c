/* The flag by which long work is asked to stop. */
#include "interrupt.h"
#include "status.h"

volatile int32_t wn__interrupted;

int32_t wn__heed_interrupt(void)
{
    return wn__interrupted ? wn__fail(WN_INTERRUPT, "interrupted while planning; nothing ran") : WN_OK;
}
