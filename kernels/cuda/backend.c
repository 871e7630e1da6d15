/* CUDA as a target: what a plan for a GPU needs to know. The kernels are in a library of
 * their own, so plans for a GPU are made and looked at on any machine. */
#include <stddef.h>
#include "cuda.h"

/* The rates are guesses for a data-centre GPU; `wane profile` measures those of the one that is here. */
const struct wn__backend wn__backend_cuda = {
    .target = {.name = "cuda",
               .is_asynchronous = 1,
               .has_mixed_types = 1,
               .threads = 1,
               .weight_layout = WN_PLAIN,
               .rates = {.cuda = 1,
                         .f64 = 20e12,
                         .f32 = 40e12,
                         .bf16 = 500e12,
                         .bytes = 2500e9,
                         .launch = 4e-6,
                         .out = {20e9, 1.5e9},
                         .in = {20e9, 1.5e9}},
               .workspace = wn__cuda_workspace},
};
