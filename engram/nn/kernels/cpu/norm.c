/* BatchNorm in few passes: with pooling and activation on maps, with activation and dropout on rows.

Channels come last. The caller makes scale and shift of the moments (y = scale x + shift), and slant and offset of
the sums (dx = scale dy + count (slant x + offset)); a row may count more than once in the statistics. */
#include "vector.h"

#define ROWS 64 /* summed in float before they are added in double */

typedef struct {
    long rows;
    int height, width, channels, positions, threads;
    float slope;
} Sizes;

/* map (rows = images, height, width, channels) -> out (images, height/2, width/2, channels), places of the largest
 */
void pool_forward(const float *x, const float *scale, const float *shift, float *out, uint8_t *place,
                  const Sizes *s) {
    int channels = s->channels, down = s->height / 2, across = s->width / 2;
    long line = (long)s->width * channels;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (long row = 0; row < s->rows * down; row++)
        for (int j = 0; j < across; j++)
            for (int c = 0; c < channels; c += LANES) {
                const float *from = x + (row / down * s->height + row % down * 2) * line + 2 * j * channels + c;
                vec a = AT(scale + c), b = AT(shift + c);
                long to = (row * across + j) * channels + c;
                vec best = largest(a * AT(from) + b, a * AT(from + channels) + b, a * AT(from + line) + b,
                                   a * AT(from + line + channels) + b, (bytes *)(place + to));
                TO(out + to) = leaky(best, s->slope);
            }
}

/* Of each thread: sums of dy and of dy (x - mean) (2, channels), dy before the activation, x where it was the
 * largest. */
void pool_sums(const float *x, const float *out, const uint8_t *place, const float *grad, const float *mean,
               double *partial, const Sizes *s) {
    int channels = s->channels, down = s->height / 2, across = s->width / 2;
    long line = (long)s->width * channels;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (long row = 0; row < s->rows * down; row++) {
        double *sums = partial + omp_get_thread_num() * 2 * channels;
        for (int c = 0; c < channels; c += LANES) {
            vec total = {0}, product = {0};
            for (int j = 0; j < across; j++) {
                const float *from = x + (row / down * s->height + row % down * 2) * line + 2 * j * channels + c;
                long at = (row * across + j) * channels + c;
                mask which = __builtin_convertvector(*(const bytes *)(place + at), mask);
                vec top = pick(which == 0, AT(from), AT(from + channels));
                vec bottom = pick(which == 2, AT(from + line), AT(from + line + channels));
                vec g = AT(grad + at);
                g = pick(AT(out + at) > 0, g, g * s->slope);
                total += g, product += g * (pick(which < 2, top, bottom) - AT(mean + c));
            }
            add_to(sums + c, total), add_to(sums + channels + c, product);
        }
    }
}

void pool_backward(const float *x, const float *out, const uint8_t *place, const float *grad, const float *scale,
                   const float *slant, const float *offset, float *dx, const Sizes *s) {
    int channels = s->channels, down = s->height / 2, across = s->width / 2;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (long row = 0; row < s->rows * ((s->height + 1) / 2); row++) {
        long image = row / ((s->height + 1) / 2), i = row % ((s->height + 1) / 2);
        for (int j = 0; j < (s->width + 1) / 2; j++)
            for (int c = 0; c < channels; c += LANES) {
                vec g = {0}, a = AT(slant + c), b = AT(offset + c);
                mask which = {0};
                if (i < down && j < across) { /* the last line of an odd side is in no window */
                    long at = ((image * down + i) * across + j) * channels + c;
                    which = __builtin_convertvector(*(const bytes *)(place + at), mask);
                    g = AT(grad + at) * AT(scale + c);
                    g = pick(AT(out + at) > 0, g, g * s->slope);
                }
                for (int k = 0; k < 4; k++) {
                    int y = 2 * i + k / 2, z = 2 * j + k % 2;
                    long to = ((image * s->height + y) * s->width + z) * channels + c;
                    if (y < s->height && z < s->width)
                        TO(dx + to) = a * AT(x + to) + b + pick(which == k, g, (vec){0});
                }
            }
    }
}

/* out = leaky(scale x + shift) keep; rows (rows, channels), keep (rows / positions, channels) or NULL */
void rows_forward(const float *x, const float *keep, const float *scale, const float *shift, float *out,
                  const Sizes *s) {
    int channels = s->channels;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (long row = 0; row < s->rows; row++)
        for (int c = 0; c < channels; c += LANES) {
            vec y = leaky(AT(scale + c) * AT(x + row * channels + c) + AT(shift + c), s->slope);
            TO(out + row * channels + c) = keep ? y * AT(keep + row / s->positions * channels + c) : y;
        }
}

/* dy before activation and dropout */
INLINE vec through(vec y, const float *grad, const float *keep, long row, int c, const Sizes *s) {
    vec g = AT(grad + row * s->channels + c);
    if (keep) g *= AT(keep + row / s->positions * s->channels + c);
    return pick(y > 0, g, g * s->slope);
}

/* Of each thread: sums of w and of w (x - centre) (2, channels). w is dy or, where there is no grad, x - centre as
   often as it counts: moments around the centre, the first row say. counts (positions), keep and grad may be NULL.
 */
void rows_sums(const float *x, const float *centre, const float *counts, const float *keep, const float *scale,
               const float *shift, const float *grad, double *partial, const Sizes *s) {
    int channels = s->channels;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (long block = 0; block < (s->rows + ROWS - 1) / ROWS; block++) {
        double *sums = partial + omp_get_thread_num() * 2 * channels;
        long end = (block + 1) * ROWS < s->rows ? (block + 1) * ROWS : s->rows;
        for (int c = 0; c < channels; c += LANES) {
            vec total = {0}, product = {0};
            for (long row = block * ROWS; row < end; row++) {
                vec value = AT(x + row * channels + c), d = value - AT(centre + c), w = d;
                if (grad)
                    w = through(AT(scale + c) * value + AT(shift + c), grad, keep, row, c, s);
                else if (counts)
                    w = d * counts[row % s->positions];
                total += w, product += w * d;
            }
            add_to(sums + c, total), add_to(sums + channels + c, product);
        }
    }
}

void rows_backward(const float *x, const float *keep, const float *scale, const float *shift, const float *grad,
                   const float *counts, const float *slant, const float *offset, float *dx, const Sizes *s) {
    int channels = s->channels;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (long row = 0; row < s->rows; row++)
        for (int c = 0; c < channels; c += LANES) {
            vec value = AT(x + row * channels + c);
            vec g = through(AT(scale + c) * value + AT(shift + c), grad, keep, row, c, s);
            vec common = AT(slant + c) * value + AT(offset + c);
            TO(dx + row * channels + c) =
                AT(scale + c) * g + (counts ? common * counts[row % s->positions] : common);
        }
}
