/* As many numbers at a time as a register holds, in the vector types that GCC and Clang share. */
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define BYTES 64
#define WIDE 4 /* vectors of a row of sums that stay in registers */
#else
#define BYTES 32
#define WIDE 2
#endif
#define LANES (BYTES / 4)
#define INLINE static inline __attribute__((always_inline))
typedef float vec __attribute__((vector_size(BYTES), aligned(4)));
typedef int32_t mask __attribute__((vector_size(BYTES)));
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1)));

#define AT(pointer) (*(const vec *)(pointer))
#define TO(pointer) (*(vec *)(pointer))

INLINE vec pick(mask where, vec yes, vec no) {
    return (vec)((where & (mask)yes) | (~where & (mask)no));
}

INLINE vec leaky(vec x, float slope) {
    return pick(x > 0, x, x * slope);
}

/* Adds to sums in double what floats have gathered over a few rows. */
INLINE void add_to(double *sums, vec values) {
    for (int lane = 0; lane < LANES; lane++)
        sums[lane] += values[lane];
}

/* The largest of four; `place` is which, the first of equals. */
INLINE vec largest(vec a, vec b, vec c, vec d, bytes *place) {
    mask better = b > a, at = better & 1;
    a = pick(better, b, a);
    better = c > a, at = (better & 2) | (~better & at), a = pick(better, c, a);
    better = d > a, at = (better & 3) | (~better & at), a = pick(better, d, a);
    *place = __builtin_convertvector(at, bytes);
    return a;
}
