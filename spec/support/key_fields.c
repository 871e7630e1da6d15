/* Changes every field of ir.def alone, in a small IR with marks and a target, and says which keys change: a line of
 * "struct field", then 0 or 1 for the keys of a schedule, of a frontier and of a block's options.
 * spec/words_spec.lua builds it with the files that write keys, and knows what the rows say. */
#include <stdio.h>
#include <string.h>
#include "../../runtime/plan/ir/marks.h"

enum { N = 4, SCHEDULE = 0, FRONTIER, OPTIONS, KEYS };

/* Room for one thing more than the counts say, as the counts are changed too. */
static struct wn__ir_node node[N + 1], recorded[N + 1];
static struct wn__ir_cell cell[3];
static struct wn__ir_slab slab[3];
static int32_t in[8] = {0, 1, 0, 2, 1, 0, 2, 1}, numbers[8], region_parent[3] = {0, 1, 1};
static int64_t refs = 1;
static struct wn_type in_type[8];
static double seconds[8];
static uint8_t bytes[8];
static struct wn__target target = {.name = "cpu"};
static int8_t decision[3][N + 1];
static int32_t unit[3][N + 1], unit_parent[3][N + 1];
static struct wn__marks proposal[2] = {{.name = "one"}, {.name = "two"}}, marks = {.proposal = &proposal[0]};
static struct wn__ir ir = {.refs = &refs,
                           .n = N,
                           .node = node,
                           .recorded = recorded,
                           .in = in,
                           .in_type = in_type,
                           .n_cells = 2,
                           .cell = cell,
                           .n_slabs = 2,
                           .slab = slab,
                           .n_regions = 2,
                           .region_parent = region_parent,
                           .target = &target,
                           .seconds = seconds,
                           .is_measured = bytes,
                           .seconds_again = seconds,
                           .residual = numbers,
                           .result_node = numbers,
                           .order_node = numbers,
                           .root_node = numbers,
                           .set_slot = numbers,
                           .key = bytes};

static void make(void)
{
    for (int32_t i = 0; i < N; i++) node[i] = (struct wn__ir_node){.op = i, .in_at = i / 2, .n_in = i > 0, .name = "h"};
    for (int32_t k = 0; k < 3; k++) {
        struct wn__marks *m = k == 0 ? &marks : &proposal[k - 1];
        m->decision = decision[k];
        m->unit = unit[k];
        m->unit_parent = unit_parent[k];
    }
}

/* Fills the hashes of the keys, written as assemble.c, frontier.c and subgraph.c write them. */
static void hash_keys(uint64_t *out)
{
    static const int32_t parts[KEYS][2] = {
        {WN_FIELD_PLAN, WN_FIELD_RUN}, {WN_FIELD_PLAN, WN_FIELD_TAG}, {WN_FIELD_ALL, WN_FIELD_RUN}};
    for (int32_t k = 0; k < KEYS; k++) {
        struct wn__bytes b = {0};
        wn__target_encode(&b, &target);
        for (int32_t i = 0; i < 2; i++) wn__ir_encode(&b, &ir, &marks, parts[k][i]);
        out[k] = wn__bytes_hash(b.data, b.count);
        wn__free(b.data);
    }
}

/* Changes a field and prints which keys differ. The array of a field that points to one is changed instead, unless
 * nothing of it is written; a list of proposals gets longer or empty. */
static void try(const char *of, const char *name, const char *write, const char *type, void *field, size_t size)
{
    static struct wn__marks *none;
    unsigned char before[256], *at = field;
    uint64_t plain[KEYS], changed[KEYS];
    hash_keys(plain);
    memcpy(before, field, size);
    if (strchr(type, '*') != NULL && strcmp(write, "NONE") != 0) memcpy(&at, field, sizeof at);
    if (strcmp(name, "next") == 0) memcpy(field, &(void *){&proposal[1]}, sizeof(void *));
    else if (strcmp(write, "PROPOSALS") == 0) memcpy(field, &none, sizeof none);
    else ++*at;
    hash_keys(changed);
    if (strchr(type, '*') != NULL && at != field && strcmp(name, "next") != 0 && strcmp(write, "PROPOSALS") != 0) --*at;
    memcpy(field, before, size);
    printf("%s %s", of, name);
    for (int32_t k = 0; k < KEYS; k++) printf(" %d", plain[k] != changed[k]);
    printf("\n");
}

#define TRY(of, write, type, field, name) try(of, #name, #write, #type, &(field).name, sizeof(field).name);

int main(void)
{
    make();
#define NODE(class, write, type, name) TRY("NODE", write, type, node[2], name)
#define CELL(class, write, type, name) TRY("CELL", write, type, cell[1], name)
#define SLAB(class, write, type, name) TRY("SLAB", write, type, slab[1], name)
#define IR(class, write, type, name) TRY("IR", write, type, ir, name)
#define MARKS(class, write, type, name) TRY("MARKS", write, type, marks, name)
#define TARGET(class, write, type, name) TRY("TARGET", write, type, target, name)
#include "../../runtime/plan/ir/ir.def"
#define MARKS(class, write, type, name) TRY("PROPOSAL", write, type, proposal[0], name)
#include "../../runtime/plan/ir/ir.def"
    return 0;
}
