/* Vector functions of our own, where libmvec's are slow or far from NumPy's.
 *
 * Host code only. Included once for each level of vector instructions, inside the
 * target's pragma: ADARRAY_LEVEL(name) gives the names their endings. Multiply-adds are
 * fused where the level has the instruction; they are the only ones in the kernels.
 *
 * References:
 * - W. J. Cody, W. Waite, "Software Manual for the Elementary Functions", Prentice-Hall 1980.
 * - S. L. Moshier, "Methods and Programs for Mathematical Functions", Ellis Horwood 1989
 *   (Cephes).
 */
#undef ADARRAY_FMA
#ifdef __FMA__
#define ADARRAY_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define ADARRAY_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* The logarithm of a float, within 1 ulp (the polynomial of Cephes). NumPy's errs by up to
 * 4 ulp and libmvec's by up to 3, often in opposite directions. For x <= 0, inf - inf
 * raises a flag, so that NumPy computes it and warns. */
ADARRAY_FN float ADARRAY_LEVEL(adarray_log_f32)(float x)
{
    const _Bool small = x < 1.17549435e-38f;
    const float normal = x * (small ? 33554432.0f : 1.0f);
    uint32_t bits;
    memcpy(&bits, &normal, 4);
    bits += 0x3f800000 - 0x3f3504f3;
    const float k = (float)((int32_t)(bits >> 23) - (small ? 0x7f + 25 : 0x7f));
    bits = (bits & 0x007fffff) + 0x3f3504f3;
    float m;
    memcpy(&m, &bits, 4);
    const float f = m - 1.0f, z = f * f;
    float p = 7.0376836292e-2f;
    p = ADARRAY_FMA(p, f, -1.1514610310e-1f);
    p = ADARRAY_FMA(p, f, 1.1676998740e-1f);
    p = ADARRAY_FMA(p, f, -1.2420140846e-1f);
    p = ADARRAY_FMA(p, f, 1.4249322787e-1f);
    p = ADARRAY_FMA(p, f, -1.6668057665e-1f);
    p = ADARRAY_FMA(p, f, 2.0000714765e-1f);
    p = ADARRAY_FMA(p, f, -2.4999993993e-1f);
    p = ADARRAY_FMA(p, f, 3.3333331174e-1f);
    float y = ADARRAY_FMA(-2.12194440e-4f, k, p * (f * z));
    y = ADARRAY_FMA(-0.5f, z, y);
    y = f + y;
    y = ADARRAY_FMA(0.693359375f, k, y);
    const float bad = x <= 0 ? (float)ADARRAY_INF : 0.0f;
    y = x < (float)ADARRAY_INF ? y : x;
    y = y + (bad - bad);
    return x == 0 ? -(float)ADARRAY_INF : y;
}

/* e^x - 1 of a float, within 2 ulp: 2^k (p + 1) - 1, halved so that 2^k stays finite. */
ADARRAY_FN float ADARRAY_LEVEL(adarray_expm1_f32)(float x)
{
    const float low = x < -30.0f ? -30.0f : x, c = low > 89.0f ? 89.0f : low;
    const float shifted = ADARRAY_FMA(c, 1.44269504f, 12582912.0f); /* rounds to an integer */
    const float k = shifted - 12582912.0f;
    const float r = ADARRAY_FMA(k, 2.12194440e-4f, ADARRAY_FMA(k, -0.693359375f, c));
    float p = 1.98412698e-4f;
    p = ADARRAY_FMA(p, r, 1.38888889e-3f);
    p = ADARRAY_FMA(p, r, 8.33333333e-3f);
    p = ADARRAY_FMA(p, r, 4.16666667e-2f);
    p = ADARRAY_FMA(p, r, 1.66666667e-1f);
    p = ADARRAY_FMA(p, r, 0.5f);
    p = ADARRAY_FMA(p, r * r, r);
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (bits - 0x4b400000u + 126u) << 23;
    float half;
    memcpy(&half, &bits, 4);
    const float y = ADARRAY_FMA(half, p, half - 0.5f) * 2.0f;
    return x == 0 ? x : y; /* keeps the sign of zero */
}

/* tanh from expm1, which is two to three times as fast as libmvec's. */
ADARRAY_FN float ADARRAY_LEVEL(adarray_tanh_f32)(float x)
{
    const float t = ADARRAY_LEVEL(adarray_expm1_f32)(-2.0f * fabsf(x));
    return copysignf(-t / (2.0f + t), x);
}

ADARRAY_FN double ADARRAY_LEVEL(adarray_tanh_f64)(double x)
{
    const double t = expm1(-2.0 * fabs(x));
    return copysign(-t / (2.0 + t), x);
}
