/* Measures what this machine can do, beside every row of a bench that is compared with it: fp32 and bf16 multiply-adds
 * out of registers, loads from the first cache, and bytes read and written from memory. Built by the bench itself, on
 * the machine it runs on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef float lanes __attribute__((vector_size(64))); /* a cache line */
/* A vector of the widest registers; ACCUMULATORS of them, and two more, fit. */
#if defined(__AVX512F__)
typedef float wide __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef float wide __attribute__((vector_size(32)));
#else
typedef float wide __attribute__((vector_size(16)));
#endif
#define ACCUMULATORS 12
#define WIDE_LANES ((int)(sizeof(wide) / sizeof(float)))

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Measures GFLOP/s of `threads` threads over ACCUMULATORS vectors of multiply-adds, in as many rounds as make `rounds`
 * times 16 vectors; 4000000 rounds take about 0.3 s. */
double probe_gflops_of(int threads, int64_t rounds)
{
    double sum = 0, start = now();
    rounds = rounds * 16 / ACCUMULATORS;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        wide acc[ACCUMULATORS], a, b;
        for (int l = 0; l < WIDE_LANES; l++) a[l] = 1.0f + 1e-7f * (float)l, b[l] = 1e-9f;
        for (int i = 0; i < ACCUMULATORS; i++) acc[i] = b;
        for (int64_t r = 0; r < rounds; r++)
            for (int i = 0; i < ACCUMULATORS; i++) acc[i] = acc[i] * a + b;
        for (int i = 0; i < ACCUMULATORS; i++) sum += (double)acc[i][0];
    }
    double seconds = now() - start;
    return sum == 0.5 ? 0 : 2.0 * WIDE_LANES * ACCUMULATORS * (double)rounds * threads / seconds * 1e-9;
}

double probe_gflops(int threads)
{
    return probe_gflops_of(threads, 4000000);
}

/* Measures GFLOP/s of bf16 products added to f32; 0 where the processor has no instruction for them. */
double probe_gflops_bf16_of(int threads, int64_t rounds)
{
#if defined(__AVX512BF16__)
    double sum = 0, start = now();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        __m512 acc[16];
        __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80), b = (__m512bh)_mm512_set1_epi32(0x30803080);
        for (int i = 0; i < 16; i++) acc[i] = _mm512_setzero_ps();
        for (int64_t r = 0; r < rounds; r++)
            for (int i = 0; i < 16; i++) acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
        for (int i = 0; i < 16; i++) sum += (double)_mm512_reduce_add_ps(acc[i]);
    }
    double seconds = now() - start;
    return sum == 0.5 ? 0 : 2.0 * 32 * 16 * (double)rounds * threads / seconds * 1e-9;
#else
    (void)threads, (void)rounds;
    return 0;
#endif
}

double probe_gflops_bf16(int threads)
{
    return probe_gflops_bf16_of(threads, 4000000);
}

/* ---- whether the cores are ours alone -------------------------------------------------------------------------- */

#define MOST_THREADS 256

/* Returns a ring of pointers over `bytes` of cache lines, in an order that no prefetcher follows. */
static void **ring_of(int64_t bytes)
{
    int64_t n = bytes / 64;
    char *lines = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
    int64_t *order = malloc((size_t)n * sizeof *order);
    if (lines == NULL || order == NULL) abort();
    uint64_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        int64_t j = (int64_t)((state >> 33) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (int64_t i = 0; i < n; i++) *(void **)(lines + order[i] * 64) = lines + order[(i + 1) % n] * 64;
    free(order);
    return (void **)(void *)lines;
}

/* Returns the nanoseconds of a load from the first cache where five sixths of it are in use, of the slowest of the
 * threads. They are more than the cache takes (one and a half times, say) when somebody else's work runs on the same
 * core beside ours. Multiply-adds out of registers do not tell: probe_gflops is as fast then, to a few per cent. */
double probe_near(int threads)
{
    static void **ring[MOST_THREADS];
    double slowest = 0;
    long size = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (int t = 0; t < threads; t++)
        if (ring[t] == NULL) ring[t] = ring_of((size > 0 ? size : 32768) / 6 * 5 / 64 * 64);
#pragma omp parallel num_threads(threads) reduction(max : slowest)
    {
        const int loads = 20000;
        void **at = ring[omp_get_thread_num()];
        for (int i = 0; i < 1000; i++) at = *at;
        double start = now();
        for (int i = 0; i < loads; i++) at = *at;
        slowest = (now() - start) / loads * 1e9;
        __asm__ volatile("" : : "r"(at));
    }
    return slowest;
}

/* Measures GB/s of reading `bytes` (well above the caches) with `threads` threads; the best of five passes. */
double probe_read(int threads, int64_t bytes)
{
    int64_t n = bytes / 64;
    lanes *data = aligned_alloc(1 << 21, (size_t)bytes);
    double best = 0, sum = 0;
    if (data == NULL) return 0;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) data[i] = (lanes){0} + 1.0f;
    for (int pass = 0; pass < 5; pass++) {
        double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
        {
            lanes s[4] = {{0}};
#pragma omp for schedule(static)
            for (int64_t i = 0; i < n / 4; i++)
                for (int k = 0; k < 4; k++) s[k] += data[4 * i + k];
            sum += (double)(s[0][0] + s[1][0] + s[2][0] + s[3][0]);
        }
        double rate = (double)bytes / (now() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    free(data);
    return sum == 0.5 ? 0 : best;
}

/* ---- one mix of reads and writes ------------------------------------------------------------------------------- */

#define MOST_STREAMS 8

static inline __attribute__((always_inline)) void store(lanes *to, lanes value, int past_caches)
{
#if defined(__AVX512F__)
    if (past_caches) _mm512_stream_ps((float *)to, (__m512)value);
    else *to = value;
#elif defined(__SSE2__)
    if (past_caches)
        for (int k = 0; k < 4; k++) _mm_stream_ps((float *)to + 4 * k, _mm_loadu_ps((const float *)&value + 4 * k));
    else *to = value;
#else
    (void)past_caches;
    *to = value;
#endif
}

/* Adds up lanes [begin, end) of `reads` arrays, stores the sums into `writes` arrays, and returns a number that needs
 * them. */
static inline __attribute__((always_inline)) double sweep(lanes *const *in, lanes *const *out, int reads, int writes,
                                                          int past_caches, int64_t begin, int64_t end)
{
    /* Not zeros: lines of zeros are written up to twice as fast on some machines. */
    lanes total[4] = {(lanes){0} + 1.0f, (lanes){0} + 1.5f, (lanes){0} + 2.0f, (lanes){0} + 2.5f};
    for (int64_t i = begin; i + 4 <= end; i += 4)
        for (int j = 0; j < 4; j++) {
            lanes sum = reads ? in[0][i + j] : total[j];
            for (int k = 1; k < reads; k++) sum += in[k][i + j];
            for (int k = 0; k < writes; k++) store(out[k] + i + j, sum, past_caches);
            if (!writes) total[j] += sum;
        }
    return (double)(total[0][0] + total[1][0] + total[2][0] + total[3][0]);
}

/* Calls sweep with constant counts, so that the compiler makes a loop for each mix, with no count tested inside.
 * Returns 0 for a mix that is not listed. */
static double sweep_of(lanes *const *in, lanes *const *out, int reads, int writes, int past_caches, int64_t begin,
                       int64_t end)
{
#define MIX(R, W)                                                                                                      \
    if (reads == R && writes == W)                                                                                     \
        return past_caches ? sweep(in, out, R, W, 1, begin, end) : sweep(in, out, R, W, 0, begin, end);
    MIX(0, 1) MIX(1, 0) MIX(1, 1) MIX(2, 0) MIX(2, 1) MIX(3, 0) MIX(3, 1) MIX(3, 2) MIX(3, 3) MIX(4, 1) MIX(4, 3)
    MIX(1, 2) MIX(1, 4) MIX(2, 2)
#undef MIX
    return 0;
}

/* Holds touched pages, huge where there are such, kept until more are asked for.
 * touched() returns NULL without memory. */
struct memory {
    char *at;
    int64_t size;
};
static char *touched(struct memory *m, int64_t bytes)
{
    if (m->size >= bytes) return m->at;
    if (m->at) munmap(m->at, (size_t)m->size);
    m->size = 0;
    m->at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->at == MAP_FAILED) return m->at = NULL;
    madvise(m->at, (size_t)bytes, MADV_HUGEPAGE);
    memset(m->at, 1, (size_t)bytes);
    m->size = bytes;
    return m->at;
}

/* Measures GB/s of one pass over `bytes` of memory: `reads` streams in and `writes` out, with non-temporal stores where
 * `past_caches`. `in_place`: what is written are the first of the arrays read. Returns 0 without memory, or for no such
 * mix. */
double probe_mix(int threads, int reads, int writes, int in_place, int past_caches, int64_t bytes)
{
    static struct memory kept;
    char *memory = touched(&kept, bytes);
    if (memory == NULL) return 0;
    /* Arrays a page and a line apart from a power of two, so that they do not meet in the same sets. */
    int arrays = in_place ? reads : reads + writes;
    int64_t n = (bytes / arrays - 8192) / 256 * 4;
    lanes *array[MOST_STREAMS];
    for (int k = 0; k < arrays; k++) array[k] = (lanes *)(memory + bytes / arrays / 64 * 64 * k + 4160 * (k & 1));
    lanes *const *out = in_place ? array : array + reads;
    double sum = 0, start = now();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        int64_t t = omp_get_thread_num(), team = omp_get_num_threads();
        sum += sweep_of(array, out, reads, writes, past_caches, n / 4 * t / team * 4, n / 4 * (t + 1) / team * 4);
#if defined(__SSE2__)
        if (past_caches) _mm_sfence();
#endif
    }
    double seconds = now() - start;
    return sum == 0.5 ? 0 : (double)(reads + writes) * 64.0 * (double)n / seconds * 1e-9;
}

/* ---- lines, one here and one there ----------------------------------------------------------------------------- */

#define LINES_AHEAD 128 /* asked for: 96 to 256 are as good, 48 took 1.2 times as long, none 2.3 times */

/* Sums the numbers (4 bytes) at place[i] in the i-th of stretches `apart` bytes long, i in [begin, end). */
static int64_t pick(const char *memory, const int32_t *place, int64_t apart, int64_t begin, int64_t end)
{
    int64_t sum = 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t next = i + LINES_AHEAD < end ? i + LINES_AHEAD : i;
        __builtin_prefetch(memory + next * apart + place[next]);
        sum += *(const int32_t *)(const void *)(memory + i * apart + place[i]);
    }
    return sum;
}

/* Measures GB/s of reading one line each of n stretches `apart` bytes long, at places known ahead from a list, which is
 * read too: what memory gives of lines that do not follow each other. Its memory is its own, so that no pass of another
 * probe leaves lines of it in the caches. Returns 0 without memory. */
double probe_lines(int threads, int64_t n, int64_t apart)
{
    static struct memory kept, listed;
    char *memory = touched(&kept, n * apart);
    int32_t *place = (int32_t *)(void *)touched(&listed, n * 4);
    uint64_t state = 1;
    int64_t sum = 0;
    if (memory == NULL || place == NULL) return 0;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        place[i] = (int32_t)((state >> 33) % (uint64_t)apart / 4 * 4);
    }
    double start = now();
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        int64_t t = omp_get_thread_num(), team = omp_get_num_threads();
        sum += pick(memory, place, apart, n * t / team, n * (t + 1) / team);
    }
    double seconds = now() - start;
    return sum == 5 ? 0 : (double)n * (64 + 4) / seconds * 1e-9;
}
