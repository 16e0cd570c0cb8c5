/* 3x3 convolution by Winograd's scheme: cut maps into tiles, transform them, multiply, transform back.

Maps are (n, height, width, channels). A few images at a time go through all of it, so that tiles stay in the cache:
tiles are (r * r, count, channels), and each of the r * r positions is one matrix product. */
#include "vector.h"

typedef struct {
    long n;
    int height, width, channels, outputs, pad, side, threads;
} Sizes;

typedef struct {
    int height, width, channels, pad, step, down, across;
} Map;

#define LARGEST 36         /* pixels of a transformed tile */
#define TOGETHER (1 << 20) /* bytes of tiles of a group of images, about */

static float *room(long numbers) {
    return aligned_alloc(64, (sizeof(float) * numbers + 63) / 64 * 64);
}

/* B' (r, r) and A' (m, r) for outputs of 3x3 and 4x4; G is in winograd.py. */
static const float PIXELS_3[] = {2, -1, -2, 1, 0, 0, -2, -1, 1, 0, 0, 2, -3, 1, 0, 0, -1, 0, 1, 0, 0, 2, -1, -2, 1};
static const float OUTPUT_3[] = {1, 1, 1, 1, 0, 0, 1, -1, 2, 0, 0, 1, 1, 4, 1};
static const float PIXELS_4[] = {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,
                                 0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1};
static const float OUTPUT_4[] = {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 0, 0, 1, 1, 4, 4, 0, 0, 1, -1, 8, -8, 1};
#define PIXELS(m) (m == 4 ? PIXELS_4 : PIXELS_3)
#define OUTPUT(m) (m == 4 ? OUTPUT_4 : OUTPUT_3)

/* Weights are literals once loops are unrolled: what is 0 costs nothing. */
INLINE vec weighted(int n, const float *weights, int along, const vec *d, int apart) {
    vec sum = {0};
#pragma GCC unroll 6
    for (int i = 0; i < n; i++) {
        float weight = weights[i * along];
        if (weight == 1)
            sum += d[i * apart];
        else if (weight == -1)
            sum -= d[i * apart];
        else if (weight != 0)
            sum += weight * d[i * apart];
    }
    return sum;
}

/* out (to x to) = L d L', L (to x from) or, turned, L' (from x to) */
INLINE void both_sides(int to, int from, const float *L, int turned, const vec *d, vec *out) {
    vec half[LARGEST];
    int along = turned ? to : 1, down = turned ? 1 : from;
#pragma GCC unroll 6
    for (int j = 0; j < from; j++)
#pragma GCC unroll 6
        for (int a = 0; a < to; a++)
            half[a * from + j] = weighted(from, L + a * down, along, d + j, from);
#pragma GCC unroll 6
    for (int a = 0; a < to; a++)
#pragma GCC unroll 6
        for (int b = 0; b < to; b++)
            out[a * to + b] = weighted(from, L + b * down, along, half + a * from, 1);
}

/* tiles[., first...] = L tile L' for the tiles t x t of an image; the first starts at -pad, zeros outside */
INLINE void cut(int r, int t, const float *L, int turned, const float *image, float *tiles, int first, int count,
                Map m) {
    for (int q = 0; q < m.down * m.across; q++) {
        int top = q / m.across * m.step - m.pad, left = q % m.across * m.step - m.pad;
        for (int c = 0; c < m.channels; c += LANES) {
            vec d[LARGEST], out[LARGEST];
            for (int i = 0; i < t; i++)
                for (int j = 0; j < t; j++) {
                    int y = top + i, x = left + j, inside = y >= 0 && y < m.height && x >= 0 && x < m.width;
                    d[i * t + j] = inside ? AT(image + (y * m.width + x) * m.channels + c) : (vec){0};
                }
            both_sides(r, t, L, turned, d, out);
            for (int k = 0; k < r * r; k++)
                TO(tiles + ((long)k * count + first + q) * m.channels + c) = out[k];
        }
    }
}

/* The sum of L tile L' (t x t) at the places of the tiles; where they overlap the image starts as zeros. */
INLINE void put(int t, int r, const float *L, int turned, const float *tiles, float *image, int first, int count,
                Map m) {
    int overlap = m.step < t;
    if (overlap) memset(image, 0, sizeof(float) * m.height * m.width * m.channels);
    for (int q = 0; q < m.down * m.across; q++) {
        int top = q / m.across * m.step - m.pad, left = q % m.across * m.step - m.pad;
        for (int c = 0; c < m.channels; c += LANES) {
            vec d[LARGEST], out[LARGEST];
            for (int k = 0; k < r * r; k++)
                d[k] = AT(tiles + ((long)k * count + first + q) * m.channels + c);
            both_sides(t, r, L, turned, d, out);
            for (int i = 0; i < t; i++)
                for (int j = 0; j < t; j++) {
                    int y = top + i, x = left + j;
                    if (y < 0 || y >= m.height || x < 0 || x >= m.width) continue;
                    float *to = image + (y * m.width + x) * m.channels + c;
                    TO(to) = overlap ? AT(to) + out[i * t + j] : out[i * t + j];
                }
        }
    }
}

/* Sums of `rows` x `vecs` vectors in registers: out = a b, or out += a b, where an element of a is
   a[row * down + k * along], b is (depth, columns) and out (rows, columns). */
INLINE void block(int rows, int vecs, const float *a, long down, long along, const float *b, float *out, int depth,
                  int columns, int add) {
    vec sum[6][4];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++)
            sum[i][v] = (vec){0};
    for (int k = 0; k < depth; k++)
        for (int v = 0; v < vecs; v++) {
            vec right = AT(b + (long)k * columns + v * LANES);
            for (int i = 0; i < rows; i++)
                sum[i][v] += a[i * down + k * along] * right;
        }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vecs; v++) {
            float *to = out + (long)i * columns + v * LANES;
            TO(to) = add ? AT(to) + sum[i][v] : sum[i][v]; /* sums of sums lose less than one long sum */
        }
}

INLINE void panel(int vecs, const float *a, long down, long along, const float *b, float *out, int rows, int depth,
                  int columns, int add) {
    int i = 0;
    for (; i + 6 <= rows; i += 6)
        block(6, vecs, a + i * down, down, along, b, out + (long)i * columns, depth, columns, add);
    a += i * down, out += (long)i * columns;
    switch (rows - i) {
    case 5: block(5, vecs, a, down, along, b, out, depth, columns, add); break;
    case 4: block(4, vecs, a, down, along, b, out, depth, columns, add); break;
    case 3: block(3, vecs, a, down, along, b, out, depth, columns, add); break;
    case 2: block(2, vecs, a, down, along, b, out, depth, columns, add); break;
    case 1: block(1, vecs, a, down, along, b, out, depth, columns, add); break;
    }
}

static void multiply(const float *a, long down, long along, const float *b, float *out, int rows, int depth,
                     int columns, int add) {
    int j = 0;
    for (; j + WIDE * LANES <= columns; j += WIDE * LANES)
        panel(WIDE, a, down, along, b + j, out + j, rows, depth, columns, add);
    switch ((columns - j) / LANES) {
    case 3: panel(3, a, down, along, b + j, out + j, rows, depth, columns, add); break;
    case 2: panel(2, a, down, along, b + j, out + j, rows, depth, columns, add); break;
    case 1: panel(1, a, down, along, b + j, out + j, rows, depth, columns, add); break;
    }
}

static Map input_map(const Sizes *s) {
    int down = (s->height + 2 * s->pad - 2 + s->side - 1) / s->side,
        across = (s->width + 2 * s->pad - 2 + s->side - 1) / s->side;
    return (Map){s->height, s->width, s->channels, s->pad, s->side, down, across};
}

static Map output_map(const Sizes *s) {
    Map in = input_map(s);
    return (Map){s->height + 2 * s->pad - 2, s->width + 2 * s->pad - 2, s->outputs, 0, s->side, in.down, in.across};
}

static long group(const Sizes *s, long numbers) {
    long each = sizeof(float) * numbers * (s->channels + s->outputs);
    return each < TOGETHER ? TOGETHER / each : 1;
}

/* What `winograd_forward` does with a group of images; m is a literal, so that loops over tiles are unrolled. */
INLINE void group_forward(int m, int images, const float *x, const float *filters, float *y, float *given,
                          float *made, Map in, Map out) {
    int r = m + 2, tiles = in.down * in.across, count = images * tiles;
    for (int i = 0; i < images; i++)
        cut(r, r, PIXELS(m), 0, x + (long)i * in.height * in.width * in.channels, given, i * tiles, count, in);
    for (long k = 0; k < r * r; k++)
        multiply(given + k * count * in.channels, in.channels, 1, filters + k * in.channels * out.channels,
                 made + k * count * out.channels, count, in.channels, out.channels, 0);
    for (int i = 0; i < images; i++)
        put(m, r, OUTPUT(m), 0, made, y + (long)i * out.height * out.width * out.channels, i * tiles, count, out);
}

/* y = A' [filters (B' x B)] A; filters (r * r, channels, outputs) */
void winograd_forward(const float *x, const float *filters, float *y, const Sizes *s) {
    Map in = input_map(s), out = output_map(s);
    long tiles = in.down * in.across, square = (s->side + 2) * (s->side + 2), together = group(s, tiles * square);
#pragma omp parallel num_threads(s->threads)
    {
        float *given = room(square * together * tiles * s->channels);
        float *made = room(square * together * tiles * s->outputs);
#pragma omp for schedule(static)
        for (long start = 0; start < s->n; start += together) {
            int images = start + together < s->n ? together : s->n - start;
            const float *from = x + start * in.height * in.width * in.channels;
            float *to = y + start * out.height * out.width * out.channels;
            if (s->side == 4)
                group_forward(4, images, from, filters, to, given, made, in, out);
            else
                group_forward(3, images, from, filters, to, given, made, in, out);
        }
        free(given), free(made);
    }
}

INLINE void group_backward(int m, int images, const float *x, const float *dy, const float *turned, float *dx,
                           float *sums, float *given, float *made, Map in, Map out) {
    int r = m + 2, tiles = in.down * in.across, count = images * tiles;
    long area = (long)in.height * in.width * in.channels;
    for (int i = 0; i < images; i++) {
        cut(r, r, PIXELS(m), 0, x + i * area, given, i * tiles, count, in);
        cut(r, m, OUTPUT(m), 1, dy + (long)i * out.height * out.width * out.channels, made, i * tiles, count, out);
    }
    for (long k = 0; k < r * r; k++) {
        float *left = given + k * count * in.channels, *right = made + k * count * out.channels;
        long filter = k * in.channels * out.channels;
        multiply(left, 1, in.channels, right, sums + filter, in.channels, count, out.channels, 1);
        multiply(right, out.channels, 1, turned + filter, left, count, out.channels, in.channels, 0);
    }
    for (int i = 0; i < images; i++)
        put(r, r, PIXELS(m), 1, given, dx + i * area, i * tiles, count, in);
}

/* dx, and of each thread the gradient of the filters; turned (r * r, outputs, channels) */
void winograd_backward(const float *x, const float *dy, const float *turned, float *dx, float *partial,
                       const Sizes *s) {
    Map in = input_map(s), out = output_map(s);
    long tiles = in.down * in.across, square = (s->side + 2) * (s->side + 2), together = group(s, tiles * square);
#pragma omp parallel num_threads(s->threads)
    {
        float *given = room(square * together * tiles * s->channels);
        float *made = room(square * together * tiles * s->outputs);
        float *sums = partial + omp_get_thread_num() * square * s->channels * s->outputs;
#pragma omp for schedule(static)
        for (long start = 0; start < s->n; start += together) {
            int images = start + together < s->n ? together : s->n - start;
            const float *from = x + start * in.height * in.width * in.channels;
            const float *grad = dy + start * out.height * out.width * out.channels;
            float *to = dx + start * in.height * in.width * in.channels;
            if (s->side == 4)
                group_backward(4, images, from, grad, turned, to, sums, given, made, in, out);
            else
                group_backward(3, images, from, grad, turned, to, sums, given, made, in, out);
        }
        free(given), free(made);
    }
}
