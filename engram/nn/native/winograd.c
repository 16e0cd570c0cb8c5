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

/* out (to x to) = L d L', L (to x from) */
INLINE void both_sides(int to, int from, const float *L, const vec *d, vec *out) {
    vec half[LARGEST];
    for (int a = 0; a < to; a++)
        for (int j = 0; j < from; j++) {
            vec sum = L[a * from] * d[j];
            for (int i = 1; i < from; i++)
                sum += L[a * from + i] * d[i * from + j];
            half[a * from + j] = sum;
        }
    for (int a = 0; a < to; a++)
        for (int b = 0; b < to; b++) {
            vec sum = L[b * from] * half[a * from];
            for (int j = 1; j < from; j++)
                sum += L[b * from + j] * half[a * from + j];
            out[a * to + b] = sum;
        }
}

/* tiles[., first...] = L tile L' for the tiles t x t of an image; the first starts at -pad, zeros outside */
INLINE void cut(int r, int t, const float *L, const float *image, float *tiles, int first, int count, Map m) {
    for (int q = 0; q < m.down * m.across; q++) {
        int top = q / m.across * m.step - m.pad, left = q % m.across * m.step - m.pad;
        for (int c = 0; c < m.channels; c += LANES) {
            vec d[LARGEST], out[LARGEST];
            for (int i = 0; i < t; i++)
                for (int j = 0; j < t; j++) {
                    int y = top + i, x = left + j, inside = y >= 0 && y < m.height && x >= 0 && x < m.width;
                    d[i * t + j] = inside ? AT(image + (y * m.width + x) * m.channels + c) : (vec){0};
                }
            both_sides(r, t, L, d, out);
            for (int k = 0; k < r * r; k++)
                TO(tiles + ((long)k * count + first + q) * m.channels + c) = out[k];
        }
    }
}

/* The sum of L tile L' (t x t) at the places of the tiles; where they overlap the image starts as zeros. */
INLINE void put(int t, int r, const float *L, const float *tiles, float *image, int first, int count, Map m) {
    int overlap = m.step < t;
    if (overlap) memset(image, 0, sizeof(float) * m.height * m.width * m.channels);
    for (int q = 0; q < m.down * m.across; q++) {
        int top = q / m.across * m.step - m.pad, left = q % m.across * m.step - m.pad;
        for (int c = 0; c < m.channels; c += LANES) {
            vec d[LARGEST], out[LARGEST];
            for (int k = 0; k < r * r; k++)
                d[k] = AT(tiles + ((long)k * count + first + q) * m.channels + c);
            both_sides(t, r, L, d, out);
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
    for (; j + 4 * LANES <= columns; j += 4 * LANES)
        panel(4, a, down, along, b + j, out + j, rows, depth, columns, add);
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

static int group(const Sizes *s, int tiles, int r) {
    long each = sizeof(float) * tiles * r * r * (s->channels + s->outputs);
    return each < TOGETHER ? TOGETHER / each : 1;
}

/* y = A' [(filters (r * r, channels, outputs)) (B' x B)] A */
INLINE void forward(int m, const float *x, const float *filters, const float *pixels, const float *output, float *y,
                    const Sizes *s) {
    int r = m + 2;
    Map in = input_map(s), out = output_map(s);
    int tiles = in.down * in.across, images = group(s, tiles, r);
#pragma omp parallel num_threads(s->threads)
    {
        float *given = room((long)r * r * images * tiles * s->channels),
              *made = room((long)r * r * images * tiles * s->outputs);
#pragma omp for schedule(static)
        for (long start = 0; start < s->n; start += images) {
            int here = start + images < s->n ? images : s->n - start, count = here * tiles;
            for (int i = 0; i < here; i++)
                cut(r, r, pixels, x + (start + i) * in.height * in.width * in.channels, given, i * tiles, count,
                    in);
            for (int k = 0; k < r * r; k++)
                multiply(given + (long)k * count * s->channels, s->channels, 1,
                         filters + (long)k * s->channels * s->outputs, made + (long)k * count * s->outputs, count,
                         s->channels, s->outputs, 0);
            for (int i = 0; i < here; i++)
                put(m, r, output, made, y + (start + i) * out.height * out.width * out.channels, i * tiles, count,
                    out);
        }
        free(given), free(made);
    }
}

/* dx, and of each thread the gradient of the filters; turned: (r * r, outputs, channels), A (r, m), B (r, r) */
INLINE void backward(int m, const float *x, const float *dy, const float *turned, const float *pixels,
                     const float *output_turned, const float *pixels_turned, float *dx, float *partial,
                     const Sizes *s) {
    int r = m + 2;
    Map in = input_map(s), out = output_map(s);
    int tiles = in.down * in.across, images = group(s, tiles, r);
#pragma omp parallel num_threads(s->threads)
    {
        float *given = room((long)r * r * images * tiles * s->channels),
              *made = room((long)r * r * images * tiles * s->outputs);
        float *sums = partial + (long)omp_get_thread_num() * r * r * s->channels * s->outputs;
#pragma omp for schedule(static)
        for (long start = 0; start < s->n; start += images) {
            int here = start + images < s->n ? images : s->n - start, count = here * tiles;
            for (int i = 0; i < here; i++) {
                cut(r, r, pixels, x + (start + i) * in.height * in.width * in.channels, given, i * tiles, count,
                    in);
                cut(r, m, output_turned, dy + (start + i) * out.height * out.width * out.channels, made, i * tiles,
                    count, out);
            }
            for (int k = 0; k < r * r; k++) {
                float *left = given + (long)k * count * s->channels, *right = made + (long)k * count * s->outputs;
                multiply(left, 1, s->channels, right, sums + (long)k * s->channels * s->outputs, s->channels, count,
                         s->outputs, 1);
                multiply(right, s->outputs, 1, turned + (long)k * s->channels * s->outputs, left, count, s->outputs,
                         s->channels, 0);
            }
            for (int i = 0; i < here; i++)
                put(r, r, pixels_turned, given, dx + (start + i) * in.height * in.width * in.channels, i * tiles,
                    count, in);
        }
        free(given), free(made);
    }
}

/* The side of an output tile is a constant, so that loops over tiles are unrolled. */
#define OF_SIDE(m)                                                                                                \
    void winograd_forward_##m(const float *x, const float *filters, const float *pixels, const float *output,     \
                              float *y, const Sizes *s) {                                                         \
        forward(m, x, filters, pixels, output, y, s);                                                             \
    }                                                                                                             \
    void winograd_backward_##m(const float *x, const float *dy, const float *turned, const float *pixels,         \
                               const float *output_turned, const float *pixels_turned, float *dx, float *partial, \
                               const Sizes *s) {                                                                  \
        backward(m, x, dy, turned, pixels, output_turned, pixels_turned, dx, partial, s);                         \
    }
OF_SIDE(3)
OF_SIDE(4)
