/* Functions of float32 that packs of elements compute without branches.
 *
 * Each takes a `policy`. With adarray_careful it tests its argument, and calls CUDA's own
 * function, out of line, where the short way is not good enough: far from zero, at infinities.
 * With adarray_quick it only notes that; the caller then computes the elements of the pack
 * again, carefully, so that an element never depends on its neighbours. The short ways are the
 * same in both. Errors, over all floats: 1.6 ulp for sine and cosine, 1.4 for log1p (CUDA's
 * have 1.6 and 0.9); reciprocals are rounded correctly, and so are quotients, but for one of
 * some million, which may be the other neighbour of the true one, and those of numbers below 1e-30.
 *
 * References:
 * - W. J. Cody, W. Waite, "Software Manual for the Elementary Functions", Prentice-Hall 1980
 *   (reduction of arguments).
 * - J.-M. Muller et al., "Handbook of Floating-Point Arithmetic", 2nd ed., 2018
 *   (Newton steps for reciprocals and quotients).
 */
#ifndef ADARRAY_QUICK_H
#define ADARRAY_QUICK_H

struct adarray_careful {};
struct adarray_quick { bool rare; };

/* Whether to take the long way. */
ADARRAY_IN bool adarray_rare(const adarray_careful &, bool rare) { return rare; }
ADARRAY_IN bool adarray_rare(adarray_quick &policy, bool rare)
{
    policy.rare |= rare;
    return false;
}

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ADARRAY_FMA(a, b, c) __fmaf_rn(a, b, c)
ADARRAY_IN int adarray_bits(float x) { return __float_as_int(x); }
ADARRAY_IN float adarray_of_bits(int x) { return __int_as_float(x); }
ADARRAY_IN float adarray_near_reciprocal(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
#else
#define ADARRAY_FMA(a, b, c) fmaf(a, b, c)
ADARRAY_IN int adarray_bits(float x)
{
    int i;
    memcpy(&i, &x, 4);
    return i;
}
ADARRAY_IN float adarray_of_bits(int x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}
ADARRAY_IN float adarray_near_reciprocal(float x) { return 1.0f / x; }
#endif

static __device__ __noinline__ float adarray_rare_log1pf(float x) { return log1pf(x); }
static __device__ __noinline__ float adarray_rare_reciprocalf(float x) { return 1.0f / x; }
static __device__ __noinline__ void adarray_rare_sincosf(float x, float *s, float *c)
{
    sincosf(x, s, c);
}

/* log(1 + x) = log(m) - n log(2) with m = (1 + x) 2^n in [0.75, 1.5), of which r = m - 1 is
 * known without the error of 1 + x. Signs are such that log1p(-0) is -0. */
template <class C> ADARRAY_IN float adarray_log1pf(C &policy, float x)
{
    const unsigned room = 0x3fbfffffu - (unsigned)adarray_bits(1.0f + x);
    const int n = (int)(room & 0xff800000u);
    const float scale = adarray_of_bits(n + 0x3f800000), less = 1.0f - scale;
    const float r = ADARRAY_FMA(x, scale, -less), times = (float)n;
    float p = 0.05413185432553291f;
    p = ADARRAY_FMA(p, r, -0.12067317217588425f);
    p = ADARRAY_FMA(p, r, 0.14983916282653809f);
    p = ADARRAY_FMA(p, r, -0.1682281792163849f);
    p = ADARRAY_FMA(p, r, 0.19977077841758728f);
    p = ADARRAY_FMA(p, r, -0.24993441998958588f);
    p = ADARRAY_FMA(p, r, 0.3333354890346527f);
    p = ADARRAY_FMA(p, r, -0.5000005960464478f) * r;
    p = ADARRAY_FMA(p, r, r);
    p = ADARRAY_FMA(times, -8.262958317573066e-08f, p); /* log(2) / 2^23 */
    /* -1, less than -1, nan, and what is near the largest number. */
    return adarray_rare(policy, !(fabsf(times) <= 126 * 8388608.0f)) ? adarray_rare_log1pf(x) : p;
}

/* Sine and cosine of r = x - j pi/2 in [-pi/4, pi/4], then of x, by the last bits of j. */
template <class C> ADARRAY_IN void adarray_sincosf(C &policy, float x, float *sine, float *cosine)
{
    const float shifted = ADARRAY_FMA(x, 0.6366197723675814f, 12582912.0f); /* 2/pi, 1.5 2^23 */
    const float j = shifted - 12582912.0f;
    float r = ADARRAY_FMA(j, -1.570796251296997f, x); /* all negative, so that -0 stays -0 */
    r = ADARRAY_FMA(j, -7.549789415861596e-08f, r);
    r = ADARRAY_FMA(j, -5.390302953474238e-15f, r);
    const float z = r * r, rz = ADARRAY_FMA(r, z, 0.0f); /* for the same, never -0 */
    float s = ADARRAY_FMA(-0.00019514629093464464f, z, 0.008332155644893646f);
    s = ADARRAY_FMA(s, z, -0.16666655242443085f);
    s = ADARRAY_FMA(s, rz, r);
    float c = ADARRAY_FMA(2.4432409190922044e-05f, z, -0.0013887309469282627f);
    c = ADARRAY_FMA(c, z, 0.04166664555668831f);
    c = ADARRAY_FMA(c, z, -0.5f);
    c = ADARRAY_FMA(c, z, 1.0f);
    const unsigned quadrant = (unsigned)adarray_bits(shifted), sign = quadrant << 30 & 0x80000000u;
    const float a = quadrant & 1 ? c : s, b = quadrant & 1 ? -s : c;
    *sine = adarray_of_bits(adarray_bits(a) ^ (int)sign);
    *cosine = adarray_of_bits(adarray_bits(b) ^ (int)sign);
    if (adarray_rare(policy, !(fabsf(x) <= 71476.0f))) {
        float far_sine, far_cosine; /* in memory, unlike the others */
        adarray_rare_sincosf(x, &far_sine, &far_cosine);
        *sine = far_sine;
        *cosine = far_cosine;
    }
}

template <class C> ADARRAY_IN float adarray_sinf(C &policy, float x)
{
    float s, c;
    adarray_sincosf(policy, x, &s, &c);
    return s;
}

template <class C> ADARRAY_IN float adarray_cosf(C &policy, float x)
{
    float s, c;
    adarray_sincosf(policy, x, &s, &c);
    return c;
}

/* 1 / x: a step of Newton's method rounds correctly, unless x or 1 / x is tiny. */
template <class C> ADARRAY_IN float adarray_reciprocalf(C &policy, float x)
{
    const float r = adarray_near_reciprocal(x), rest = ADARRAY_FMA(-x, r, 1.0f);
    const bool rare = adarray_rare(policy, !(fabsf(rest) <= 1e-4f));
    return rare ? adarray_rare_reciprocalf(x) : ADARRAY_FMA(r, rest, r);
}

/* What many numbers are divided by: its reciprocal, or nan where they are divided carefully. */
ADARRAY_IN float adarray_divisor(float s)
{
    return s > 1e-30f && s < 1e30f ? 1.0f / s : adarray_of_bits(0x7fc00000);
}

/* x / s, where r = adarray_divisor(s): a product, and a step that corrects it. */
template <class C> ADARRAY_IN float adarray_quotientf(C &policy, float x, float s, float r)
{
    const float q = x * r, rest = ADARRAY_FMA(q, s, -x), y = ADARRAY_FMA(-rest, r, q);
    const bool rare = adarray_rare(policy, !(fabsf(y) <= 1e30f));
    return rare ? x / s : y;
}

#endif
