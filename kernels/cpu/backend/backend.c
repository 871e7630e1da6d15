/* The backend of the CPU: the one symbol of this folder that the runtime links with (runtime/device/cpu.c, and the
 * registry for plans that are made for a CPU elsewhere). Kernels are those of the class of this process (class.h). */
#include <stdio.h>
#include "../common/cpu.h"
#include "class.h"
#include "onednn.h"
#include "parallel.h"
#include "processor.h"
#include "tuning.h"

static wn_kernel_fn find(const struct wn_desc *d)
{
    return wn__cpu_class()->find(d);
}

static const char *start(const struct wn__kernel_choice *choice, struct wn__target *t)
{
    t->threads = wn_cpu_threads();
    wn__tuning_start();
    const char *unmet_class = wn__cpu_class_start(choice->kernels);
    const char *unmet_library = wn__onednn_start(choice->library, t);
    return unmet_class != NULL ? unmet_class : unmet_library;
}

static int64_t workspace(const struct wn__target *t, const struct wn_desc *d)
{
    return wn_max(wn__cpu_workspace(d), wn__onednn_workspace(t, d));
}

static const char *name(void)
{
    static char line[256];
    snprintf(line, sizeof line, "%s%s", wn__cpu_class_text(), wn__onednn_text());
    return line;
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
               .workspace = workspace},
    .start = start,
    .find = find,
    .name = name,
    .processor = wn__processor_text,
    .tunable = wn__cpu_tunable,
    .tune = wn__cpu_tune,
};
