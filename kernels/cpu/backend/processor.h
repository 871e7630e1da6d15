/* The processor that this process runs on: what tells it from another one, and its caches. */
#ifndef WN_CPU_PROCESSOR_H
#define WN_CPU_PROCESSOR_H
#include <stdint.h>

struct wn__processor {
    char name[96];    /* its name, and its family, model and stepping where it has them */
    int64_t cache[3]; /* bytes of the data caches of the first, second and third level; 0: unknown or none */
};

/* Returns the processor. It is looked at once in a process. */
const struct wn__processor *wn__processor(void);
/* Returns the processor in one line: "AMD EPYC 25/17/1, caches 32 KiB, 1 MiB, 32 MiB". */
const char *wn__processor_text(void);
#endif
