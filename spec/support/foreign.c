/* Preloaded by parts_spec: counts, while armed, the bytes that anyone asks malloc and its kin and mmap for
 * in pieces above 64 KiB. A run must ask for none: its bytes were taken before its first kernel. */
#include <dlfcn.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>

#define LEAST (64 * 1024)

static volatile int64_t bytes;
static volatile int armed;

void foreign_arm(int on)
{
    if (on) bytes = 0;
    armed = on;
}

double foreign_bytes(void)
{
    return (double)bytes;
}

static void count(size_t n)
{
    if (armed && n >= LEAST) __sync_fetch_and_add(&bytes, (int64_t)n);
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t n)
{
    count(n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count(n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count(n);
    return __libc_realloc(p, n);
}

extern void *__libc_memalign(size_t, size_t);

void *aligned_alloc(size_t alignment, size_t n)
{
    count(n);
    return __libc_memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    count(n);
    *out = __libc_memalign(alignment, n);
    return *out != NULL ? 0 : 12; /* ENOMEM */
}

void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (next == NULL) next = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    count(n);
    return next(at, n, protection, flags, file, offset);
}
