/* Runs the kernels of adarray_conv.h on the processor: see device_host.h.
 *
 * Copies are not asynchronous here, and matrix instructions are what the PTX ISA says of their
 * fragments. KIND, CHANNELS and PLACES are defined before.
 */
#include "device_host.h"

#define ADARRAY_CONV_HOST
#define SHARED_MEMORY(name) unsigned char *const name = (unsigned char *)host_near
#define __align__(n) alignas(n)
#define __ldg(p) (*(p))
struct int2 { int x, y; };
static int2 make_int2(int x, int y) { return {x, y}; }
template <class A> static A min(A a, A b) { return a < b ? a : b; }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }

/* Copies arrive when their thread waits for them. */
alignas(16) static unsigned host_zeros[4];
template <class T> static void fetch(T *to, const T *from, bool inside)
{
    host_begin(to, inside ? (const void *)from : host_zeros, sizeof(T));
}
static void fetch16(void *to, const void *from, bool inside)
{
    if ((uintptr_t)to % 16 || (inside && (uintptr_t)from % 16)) abort();
    host_begin(to, inside ? from : host_zeros, 16);
}
static void commit() { host_commit(); }
template <int LEFT> static void arrived()
{
    host_arrived(LEFT);
    __syncthreads();
}

#if KIND == 2 || KIND == 3 || KIND == 4
static float number(unsigned bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static unsigned bits_of(float x)
{
    unsigned r;
    memcpy(&r, &x, 4);
    return r;
}
/* Round to as many bits of the fraction as are left: half away from zero, or half to even. */
static unsigned half(float x)
{
#if KIND == 3
    const unsigned b = bits_of(x);
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
#else
    const _Float16 h = (_Float16)x;
    unsigned short r;
    memcpy(&r, &h, 2);
    return r;
#endif
}
static float whole(unsigned h)
{
#if KIND == 3
    return number(h << 16);
#else
    const unsigned short s = (unsigned short)h;
    _Float16 x;
    memcpy(&x, &s, 2);
    return (float)x;
#endif
}
static unsigned word_of(float low, float high)
{
    (void)high;
#if KIND == 2
    return (bits_of(low) + 0x1000) & 0xffffe000;
#else
    return half(low) | half(high) << 16;
#endif
}

static void store16(unsigned *to, const unsigned (&v)[4])
{
    if ((uintptr_t)to % 16) abort();
    memcpy(to, v, 16);
}

static const unsigned *host_rows[32];
static void host_blocks(unsigned (&r)[4], const unsigned *p, bool turn)
{
    const unsigned lane = threadIdx.x % 32, at = threadIdx.x / 32 * 32;
    static const unsigned *rows[1024];
    rows[threadIdx.x] = p;
    if ((uintptr_t)p % 16) abort();
    __syncwarp(~0u);
    for (unsigned q = 0; q < 4; q++) {
        if (!turn) {
            r[q] = rows[at + q * 8 + lane / 4][lane % 4];
            continue;
        }
        unsigned short v[2];
        for (unsigned k = 0; k < 2; k++)
            memcpy(v + k, (const char *)rows[at + q * 8 + lane % 4 * 2 + k] + lane / 4 * 2, 2);
        r[q] = v[0] | (unsigned)v[1] << 16;
    }
    __syncwarp(~0u);
}
static void read_blocks(unsigned (&r)[4], const unsigned *p) { host_blocks(r, p, false); }
static void read_transposed(unsigned (&r)[4], const unsigned *p) { host_blocks(r, p, true); }

/* The product of a row of a and a column of b that four lanes hold two words each of. */
static float inner(unsigned a, unsigned b)
{
#if KIND == 2
    return number(a) * number(b);
#else
    return whole(a & 0xffff) * whole(b & 0xffff) + whole(a >> 16) * whole(b >> 16);
#endif
}
static void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned *b)
{
    static unsigned all_a[1024][4], all_b[1024][2];
    const unsigned lane = threadIdx.x % 32, at = threadIdx.x / 32 * 32;
    memcpy(all_a[threadIdx.x], a, sizeof a);
    memcpy(all_b[threadIdx.x], b, 8);
    __syncwarp(~0u);
    for (unsigned k = 0; k < 4; k++) {
        const unsigned row = lane / 4, column = lane % 4 * 2 + k % 2;
        for (unsigned t = 0; t < 4; t++) {
            const unsigned *const left = all_a[at + row * 4 + t];
            const unsigned *const right = all_b[at + column * 4 + t];
            c[k] += inner(left[k / 2], right[0]) + inner(left[k / 2 + 2], right[1]);
        }
    }
    __syncwarp(~0u);
}

#if HOPPER
/* Tiles that Tensor Cores read in shared memory: bytes, with 16 of them swizzled in rows of 128. */
typedef unsigned Tile;
static Tile tile_at(const unsigned *p)
{
    const Tile t = (const char *)p - host_near;
    if (t % 1024) abort();
    return t;
}
static Tile beyond(Tile t, int words) { return t + words * 4; }
static unsigned word_in(Tile t, unsigned row, unsigned word)
{
    const unsigned at = t + row * 128 + word * 4;
    unsigned r;
    memcpy(&r, host_near + (at ^ at >> 3 & 0x70), 4);
    return r;
}
static unsigned host_column(unsigned k) { return k / 4 * 8 + threadIdx.x % 4 * 2 + k % 2; }
static void multiply_tiles(float (&c)[CHANNELS / 2], Tile a, Tile b)
{
    for (unsigned k = 0; k < CHANNELS / 2; k++) {
        const unsigned row = threadIdx.x / 32 % 4 * 16 + k / 2 % 2 * 8 + threadIdx.x % 32 / 4;
        for (unsigned w = 0; w < 8; w++)
            c[k] += inner(word_in(a, row, w), word_in(b, host_column(k), w));
    }
}
#if KIND != 2
static void multiply_transposed(float (&c)[CHANNELS / 2], Tile a, Tile b)
{
    for (unsigned k = 0; k < CHANNELS / 2; k++) {
        const unsigned row = threadIdx.x / 32 % 4 * 16 + k / 2 % 2 * 8 + threadIdx.x % 32 / 4;
        for (unsigned w = 0; w < 16; w++) {
            const unsigned one = word_in(a, w, row / 2) >> row % 2 * 16 & 0xffff;
            const unsigned other = word_in(b, host_column(k), w / 2) >> w % 2 * 16 & 0xffff;
            c[k] += whole(one) * whole(other);
        }
    }
}
#endif
static void multiply_rows(float (&c)[CHANNELS / 2], const unsigned (&a)[4], Tile b)
{
    static unsigned all[1024][4];
    memcpy(all[threadIdx.x], a, sizeof a);
    __syncwarp(~0u);
    for (unsigned k = 0; k < CHANNELS / 2; k++)
        for (unsigned w = 0; w < 8; w++) {
            const unsigned *const four = all[threadIdx.x / 4 * 4 + w % 4];
            c[k] += inner(four[w / 4 * 2 + k / 2 % 2], word_in(b, host_column(k), w));
        }
    __syncwarp(~0u);
}
static void begin_products() {}
static void end_products() {}
template <int LEFT> static void finished() {}
template <int LEFT> static void landed() { arrived<LEFT>(); }
#endif
#endif
