/* Fits y = 2 x + 1 by SGD through the C API alone: each step is recorded, planned where it is new, and run.
 *
 *   cc step.c -o step $(pkg-config --cflags --libs wane) -Wl,-rpath,$(pkg-config --variable=libdir wane)
 *   cc examples/c/step.c -o step -Iruntime -Lbuild -lwane -Wl,-rpath,$PWD/build       # in a checkout, after make
 *
 * The rpath says where libwane.so is to programs that find it neither by LD_LIBRARY_PATH nor by ldconfig. */
#include <stdio.h>
#include <stdlib.h>
#include "wane_inspect.h"

/* Returns a handle or another number that is no error. */
static int32_t number(int32_t n)
{
    if (n >= 0) return n;
    fprintf(stderr, "step: %s: %s\n", wn_status_name(-n), wn_message());
    exit(1);
}

/* Checks a status. */
static void check(int32_t status)
{
    number(-status);
}

/* Records an op of n inputs without attributes. */
static int32_t op(const char *name, int32_t n, int32_t a, int32_t b, int32_t c)
{
    return number(wn_record(wn_op_id(name), n, (int32_t[]){a, b, c}, NULL, 0));
}

/* Makes a parameter that begins as zeros of shape (1, 1), or (1) for ndim = 1; the first program that needs it takes
 * its memory. */
static int32_t parameter(const char *name, int32_t ndim)
{
    struct wn_attrs shape = {.n = ndim, .dtype = WN_F32, .i = {1, 1}};
    int32_t zeros = number(wn_record(wn_op_id("full"), 0, NULL, &shape, 0));
    int32_t cell = number(wn_cell(WN_KIND_PARAMETER, zeros, name));
    wn_release(zeros);
    check(wn_cell_need_grad(cell, 1));
    return cell;
}

int main(void)
{
    check(wn_start());
    int32_t device = wn_device_auto();
    wn_device_set(device);
    struct wn_type column = {.dtype = WN_F32, .ndim = 2, .dim = {4, 1}};
    int32_t x = number(wn_data(&column, device, (float[]){-1, 0, 1, 2}));
    int32_t y = number(wn_data(&column, device, (float[]){-1, 1, 3, 5}));
    int32_t weight = parameter("weight", 2), bias = parameter("bias", 1), sgd = wn_op_id("sgd");
    int32_t rates = number(wn_hyper()); /* the learning rate, then the weight decay */
    check(wn_hyper_set(rates, 0, 0.1));
    struct wn_update updates[] = {{sgd, {weight, -1, -1}, rates}, {sgd, {bias, -1, -1}, rates}};
    float loss, w, b;
    for (int step = 1; step <= 40; step++) {
        int32_t v[5] = {op("linear", 3, x, weight, bias)};
        v[1] = op("sub", 2, v[0], y, -1);
        v[2] = op("mul", 2, v[1], v[1], -1);
        v[3] = op("mean", 1, v[2], -1, -1);
        struct wn_request request = {
            .mode = WN_RUN_STEP, .n_roots = 1, .roots = &v[3], .n_updates = 2, .updates = updates, .scale = 1};
        int32_t program = number(wn_open(&request));
        if (!number(wn_is_planned(program))) check(wn_plan(program));
        check(wn_run(program));
        v[4] = number(wn_result(program, 0));
        check(wn_read(v[4], &loss, sizeof loss));
        if (step % 10 == 0) printf("step %d  loss %.6f\n", step, loss);
        struct wn_summary plan;
        check(wn_summary(program, &plan));
        if (step == 40) printf("%lld bytes at the peak of the plan\n", (long long)plan.peak);
        for (int i = 0; i < 5; i++) wn_release(v[i]);
        wn_release(program);
    }
    struct wn_memory memory;
    check(wn_memory_get(device, &memory));
    check(wn_read(weight, &w, sizeof w));
    check(wn_read(bias, &b, sizeof b));
    printf("%lld at the peak of the run; y = %.3f x + %.3f\n", (long long)memory.peak, w, b);
    return 0;
}
