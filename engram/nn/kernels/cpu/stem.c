/* The first stage of an encoder from its images: 3x3 convolution, pooling and activation in registers, no map
written.

Normalisation is folded into weight (9c, outputs) and bias by the caller, who has it from the moments of the
patches. */
#include "vector.h"

typedef struct {
    long n;
    int colours, height, width, outputs, threads;
    float slope;
} Sizes;

/* An image (c, height, width) with a border of zeros. */
static void bordered(const float *image, float *to, const Sizes *s) {
    int pitch = s->width + 2;
    memset(to, 0, sizeof(float) * s->colours * (s->height + 2) * pitch);
    for (int k = 0; k < s->colours; k++)
        for (int i = 0; i < s->height; i++)
            memcpy(to + (k * (s->height + 2) + i + 1) * pitch + 1, image + (k * s->height + i) * s->width,
                   sizeof(float) * s->width);
}

static long image_size(const Sizes *s) {
    return (long)s->colours * s->height * s->width;
}
static float *room(const Sizes *s) {
    return malloc(sizeof(float) * s->colours * (s->height + 2) * (s->width + 2));
}

/* Of each thread: sums (9c) and products (9c, 9c; upper half) of all 3x3 patches. */
void patch_moments(const float *images, double *partial, const Sizes *s) {
    int k = 9 * s->colours, pitch = s->width + 2;
#pragma omp parallel num_threads(s->threads)
    {
        float *image = room(s);
        double *sums = partial + omp_get_thread_num() * k * (k + 1), *products = sums + k;
#pragma omp for schedule(static)
        for (long n = 0; n < s->n; n++) {
            bordered(images + n * image_size(s), image, s);
            for (int a = 0; a < k; a++) {
                const float *first = image + (a / 9 * (s->height + 2) + a % 9 / 3) * pitch + a % 3;
                for (int b = a; b < k; b++) {
                    const float *second = image + (b / 9 * (s->height + 2) + b % 9 / 3) * pitch + b % 3;
                    float sum = 0, product = 0;
                    for (int i = 0; i < s->height; i++)
#pragma omp simd reduction(+ : sum, product)
                        for (int j = 0; j < s->width; j++) {
                            sum += first[i * pitch + j];
                            product += first[i * pitch + j] * second[i * pitch + j];
                        }
                    if (a == b) sums[a] += sum;
                    products[a * k + b] += product;
                }
            }
        }
        free(image);
    }
}

/* images (n, c, H, W) -> out (n, H/2, W/2, outputs), and which of the four in each window was the largest */
void stem_forward(const float *images, const float *weight, const float *bias, float *out, uint8_t *place,
                  const Sizes *s) {
    int pitch = s->width + 2, down = s->height / 2, across = s->width / 2, outputs = s->outputs;
#pragma omp parallel num_threads(s->threads)
    {
        float *image = room(s);
#pragma omp for schedule(static)
        for (long n = 0; n < s->n; n++) {
            bordered(images + n * image_size(s), image, s);
            for (int o = 0; o < outputs; o += LANES)
                for (int window = 0; window < down * across; window++) {
                    vec y0 = AT(bias + o), y1 = y0, y2 = y0, y3 = y0;
                    for (int colour = 0; colour < s->colours; colour++) {
                        const float *corner =
                            image + (colour * (s->height + 2) + window / across * 2) * pitch + window % across * 2;
#pragma GCC unroll 9
                        for (int a = 0; a < 9; a++) {
                            vec f = AT(weight + (colour * 9 + a) * outputs + o);
                            const float *x = corner + a / 3 * pitch + a % 3;
                            y0 += f * x[0], y1 += f * x[1], y2 += f * x[pitch], y3 += f * x[pitch + 1];
                        }
                    }
                    long to = (n * down * across + window) * outputs + o;
                    TO(out + to) = leaky(largest(y0, y1, y2, y3, (bytes *)(place + to)), s->slope);
                }
        }
        free(image);
    }
}

/* Of each thread: gradients of the weight and, below it, of the bias: (9c + 1, outputs). */
void stem_backward(const float *images, const float *out, const uint8_t *place, const float *grad, float *partial,
                   const Sizes *s) {
    int pitch = s->width + 2, down = s->height / 2, across = s->width / 2, outputs = s->outputs, k = 9 * s->colours;
#pragma omp parallel num_threads(s->threads)
    {
        float *image = room(s), *sums = partial + omp_get_thread_num() * (k + 1) * outputs;
#pragma omp for schedule(static)
        for (long n = 0; n < s->n; n++) {
            bordered(images + n * image_size(s), image, s);
            for (int o = 0; o < outputs; o += LANES)
                for (int colour = 0; colour < s->colours; colour++) {
                    vec sum[9] = {0}, total = {0}, zero = {0};
                    for (int window = 0; window < down * across; window++) {
                        long from = (n * down * across + window) * outputs + o;
                        vec g = AT(grad + from);
                        g = pick(AT(out + from) > 0, g, g * s->slope);
                        mask at = __builtin_convertvector(*(const bytes *)(place + from), mask);
                        vec g0 = pick(at == 0, g, zero), g1 = pick(at == 1, g, zero);
                        vec g2 = pick(at == 2, g, zero), g3 = pick(at == 3, g, zero);
                        const float *corner =
                            image + (colour * (s->height + 2) + window / across * 2) * pitch + window % across * 2;
                        total += g;
#pragma GCC unroll 9
                        for (int a = 0; a < 9; a++) {
                            const float *x = corner + a / 3 * pitch + a % 3;
                            sum[a] += g0 * x[0] + g1 * x[1] + g2 * x[pitch] + g3 * x[pitch + 1];
                        }
                    }
                    for (int a = 0; a < 9; a++)
                        TO(sums + (colour * 9 + a) * outputs + o) += sum[a];
                    if (colour == 0) TO(sums + k * outputs + o) += total;
                }
        }
        free(image);
    }
}
