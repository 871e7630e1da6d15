/* The statistics of a row of logits, which LOG_SOFTMAX and CROSS_ENTROPY share, so that the fused loss has the bits of
 * the two ops that it replaces.
 *
 * The sum of exp(x - max) is the CPU's (kernels/cpu/row/softmax.c): stretches of 256 elements, each summed by 16
 * threads as a row of its own (block.cuh), and their sums added in order, from 0. A row of at most WN_LONG_ROW elements
 * has 16 threads, one team; a longer one a block, whose 16 teams sum 16 stretches at once. Both give the same bits. */
#ifndef WN_CUDA_SOFTMAX_CUH
#define WN_CUDA_SOFTMAX_CUH
#include "block.cuh"
#include "map.cuh"

enum {
    WN_TEAMS = WN_THREADS / WN_LANES, /* of a block */
    WN_LONG_ROW = 2048                /* where half of the teams have a stretch */
};

/* The place of a thread in the work on one row. */
template <int TEAMS> struct wn__member {
    int64_t row, end; /* end: elements to read; 0 where there is no row */
    int team, lane;
};

/* Returns the place of the calling thread of a block of WN_THREADS. TEAMS: 1, or WN_TEAMS for a row a block. */
template <int TEAMS> static __device__ __forceinline__ wn__member<TEAMS> wn__member_of(int64_t rows, int64_t n)
{
    const struct wn__lane l = wn__lane_of(rows * TEAMS);
    wn__member<TEAMS> m = {l.row / TEAMS, l.is_real ? n : 0, TEAMS == 1 ? 0 : (int)threadIdx.x / WN_LANES, l.j};
    return m;
}

/* log softmax(x)_i = (x_i - best) - log_sum. */
template <class N> struct wn__row_stats {
    N best, log_sum;
};

/* Returns the maximum of the numbers of all threads of a row to each of them; NaN where one is NaN. */
template <int TEAMS, class N> static __device__ __forceinline__ N wn__row_max(N value)
{
    value = wn__max_lanes(value);
    if (TEAMS == 1) return value;
    __shared__ N of_team[WN_TEAMS];
    if (threadIdx.x % WN_LANES == 0) of_team[threadIdx.x / WN_LANES] = value;
    __syncthreads();
    return wn__max_lanes(of_team[threadIdx.x % WN_LANES]);
}

/* Returns sum + the sums of the stretches of teams 0, 1, .. TEAMS - 1, added in this order, to each thread of a row.
 * side: 0 and 1 in turn, so that no thread writes what another still reads. */
template <int TEAMS> static __device__ __forceinline__ double wn__join_teams(double sum, double stretch, int side)
{
    if (TEAMS == 1) return sum + stretch;
    __shared__ double of_team[2][WN_TEAMS];
    if (threadIdx.x % WN_LANES == 0) of_team[side][threadIdx.x / WN_LANES] = stretch;
    __syncthreads();
    for (int k = 0; k < WN_TEAMS; k++) sum += of_team[side][k];
    return sum;
}

/* Returns the statistics of a row x: (n) to each of its threads. All threads of the block must call it. */
template <int TEAMS, class T, class N = typename wn__number<T>::type>
static __device__ __forceinline__ wn__row_stats<N> wn__row_stats_of(const T *x, int64_t n, const wn__member<TEAMS> &m)
{
    wn__row_stats<N> s = {(N)-INFINITY, 0};
    for (int64_t i = m.team * WN_LANES + m.lane; i < m.end; i += TEAMS * WN_LANES)
        s.best = wn_maximum((N)wn__load(x[i]), s.best);
    s.best = wn__row_max<TEAMS>(s.best);
    double sum = 0;
    int side = 0;
    for (int64_t base = 0; base < n; base += TEAMS * WN_STRETCH, side ^= 1) {
        int64_t begin = base + m.team * WN_STRETCH, end = begin + WN_STRETCH < m.end ? begin + WN_STRETCH : m.end;
        double lane = 0;
        for (int64_t i = begin + m.lane; i < end; i += WN_LANES) lane += (double)wn_exp((N)wn__load(x[i]) - s.best);
        sum =
            wn__join_teams<TEAMS>(sum, wn__join_lanes(lane), side); /* teams behind the end add 0, which changes none */
    }
    s.log_sum = (N)log(sum);
    return s;
}
#endif
