/* The types of elements, for the templates of kernels (template.inc): what an element is, what it is computed in, and
 * how one becomes the other. */
#ifndef WN_CPU_TYPES_H
#define WN_CPU_TYPES_H
#include "../../scalar.h"

#define WN_JOINED(name, type) name##_##type
#define WN_JOIN(name, type) WN_JOINED(name, type)

typedef float wn__element_f32;
typedef double wn__element_f64;
typedef uint16_t wn__element_bf16, wn__element_u16;
typedef int32_t wn__element_i32;
typedef uint8_t wn__element_u8;
typedef uint32_t wn__element_u32;
typedef uint64_t wn__element_u64;

/* The type of the numbers. */
#define WN_NUMBER_f32 f32
#define WN_NUMBER_f64 f64
#define WN_NUMBER_bf16 f32
#define WN_NUMBER_i32 i32
#define WN_NUMBER_u8 u8

#define WN_LOAD_f32(x) (x)
#define WN_LOAD_f64(x) (x)
#define WN_LOAD_bf16(x) wn_from_bf16(x)
#define WN_LOAD_i32(x) (x)
#define WN_LOAD_u8(x) (x)

#define WN_STORE_f32(x) (x)
#define WN_STORE_f64(x) (x)
#define WN_STORE_bf16(x) wn_to_bf16(x)
#define WN_STORE_i32(x) (x)
#define WN_STORE_u8(x) (x)

#define WN_ROUND_f32(x) ((float)(x))
#define WN_ROUND_f64(x) (x)
#define WN_ROUND_bf16(x) wn_to_bf16((float)(x))
#define WN_ROUND_i32(x) wn_to_i32(x)
#define WN_ROUND_u8(x) wn_to_u8(x)

/* The rows of a table by dtype: of what has the name for f32 and f64, for bf16 too, and for all types. */
#define WN_F32_F64(name) [WN_F32] = name##_f32, [WN_F64] = name##_f64
#define WN_FLOATS(name) WN_F32_F64(name), [WN_BF16] = name##_bf16
#define WN_TYPES(name) WN_FLOATS(name), [WN_I32] = name##_i32, [WN_U8] = name##_u8

/* Returns whether a number is NaN; a compiler is silent where T is an integer. */
#define IS_NAN(x) ((x) != (x))

#define INLINE static inline __attribute__((always_inline))
#endif
