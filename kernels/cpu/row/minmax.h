/* The maximum or minimum of a contiguous row, wn__row_extreme of each type, for reduce.c and argmax.c. */
#ifndef WN_CPU_MINMAX_H
#define WN_CPU_MINMAX_H
#include <stdint.h>
#include "../common/cpu.h"

#define TYPE f32
#include "minmax.inc"
#define TYPE f64
#include "minmax.inc"
#define TYPE i32
#include "minmax.inc"
#define TYPE u8
#include "minmax.inc"
#endif
