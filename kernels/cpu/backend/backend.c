/* The backend of the CPU: the one symbol of this folder that the runtime links with (runtime/device/cpu.c, and the
 * registry for plans that are made for a CPU elsewhere). Kernels are those of the class of this process (class.h). */
#include <stddef.h>
#include "class.h"
#include "library.h"
#include "onednn.h"
#include "parallel.h"
#include "processor.h"
#include "tuning.h"

static wn_kernel_fn find(const struct wn_desc *d)
{
    return wn__cpu_class()->find(d);
}

static int32_t prepare(const struct wn_desc *d, int64_t *bytes, struct wn_made **out)
{
    return wn__cpu_class()->prepare(d, bytes, out);
}

static const char *start(const struct wn__kernel_choice *choice, struct wn__target *t)
{
    t->threads = wn_cpu_threads();
    wn__tuning_start(choice->library);
    const char *unmet = wn__cpu_class_start(choice->kernels);
    wn__cpu_library_start(choice->library, t);
    return unmet;
}

/* The rates are those of a generic core; `wane profile` measures this machine's. */
const struct wn__backend wn__backend_cpu = {
    .target = {.name = "cpu",
               .is_unified_memory = 1,
               .threads = 1,
               .weight_layout = WN_PANEL48,
               .rates = {.f64 = 25e9,
                         .f32 = 50e9,
                         .bf16 = 50e9,
                         .bytes = 20e9,
                         .launch = 1e-6,
                         .out = {8e9, 1.5e9},
                         .in = {8e9, 1.5e9}},
               .workspace = wn__cpu_workspace,
               .is_library_op = wn__cpu_is_library_op},
    .start = start,
    .find = find,
    .prepare = prepare,
    .name = wn__cpu_class_text,
    .library_name = wn__cpu_library_text,
    .n_prepared = wn__onednn_ready,
    .processor = wn__processor_text,
    .tunable = wn__cpu_tunable,
    .tune = wn__cpu_tune,
};
