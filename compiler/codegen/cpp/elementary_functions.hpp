// Elementary functions. TCD_VECTOR_MATH is defined if glibc's libmvec has vector versions of them.
// Errors in float are at most 4 units in the last place; eager's are about 1.
// tests/compiler/codegen/cpp/test_accuracy.py measures each function.

#if defined(TCD_VECTOR_MATH) && defined(__GNUC__) && !defined(__clang__) && defined(__AVX2__)
#define TCD_VECTORS 1
#define TCD_SIMD __attribute__((simd("notinbranch"), const, nothrow))
#else
#define TCD_SIMD __attribute__((const, nothrow))
#endif
// The library has a version of each function for every width of vectors, whose last bits differ. Here
// all of them, and that for one number, call the widest one. Otherwise an extreme, or what a gradient
// compares with it, is not found again by a loop that g++ divides in another way.
#if defined(TCD_VECTORS)
#define TCD_ENTRY(symbol, widen, target) \
  __asm__(".pushsection .text\n.p2align 4\n" symbol ":\n" widen "jmp " target "@PLT\n.popsection");
#if defined(__AVX512F__)
#define TCD_F "_ZGVeN16"
#define TCD_D "_ZGVeN8"
#define TCD_1F(r) "vbroadcastss %xmm" r ", %zmm" r "\n"
#define TCD_1D(r) "vbroadcastsd %xmm" r ", %zmm" r "\n"
#define TCD_128(r) "vshuff32x4 $0, %zmm" r ", %zmm" r ", %zmm" r "\n"
#define TCD_256(r) "vinsertf64x4 $1, %ymm" r ", %zmm" r ", %zmm" r "\n"
#define TCD_LESS(name, v, w) \
  TCD_ENTRY("_ZGVdN8" v "_" name "f", w(TCD_256), TCD_F v "_" name "f") \
  TCD_ENTRY("_ZGVdN4" v "_" name, w(TCD_256), TCD_D v "_" name)
#else
#define TCD_F "_ZGVdN8"
#define TCD_D "_ZGVdN4"
#define TCD_1F(r) "vbroadcastss %xmm" r ", %ymm" r "\n"
#define TCD_1D(r) "vbroadcastsd %xmm" r ", %ymm" r "\n"
#define TCD_128(r) "vinsertf128 $1, %xmm" r ", %ymm" r ", %ymm" r "\n"
#define TCD_LESS(name, v, w)
#endif
#define TCD_ONE(widen) widen("0")
#define TCD_TWO(widen) widen("0") widen("1")
#define TCD_ENTRIES(name, v, w) \
  TCD_LESS(name, v, w) \
  TCD_ENTRY("_ZGVbN4" v "_" name "f", w(TCD_128), TCD_F v "_" name "f") \
  TCD_ENTRY("_ZGVbN2" v "_" name, w(TCD_128), TCD_D v "_" name) \
  TCD_ENTRY(name "f", w(TCD_1F), TCD_F v "_" name "f") \
  TCD_ENTRY(name, w(TCD_1D), TCD_D v "_" name)
#else
#define TCD_ENTRIES(name, v, w)
#endif

#define TCD_LIBRARY(name) \
  extern "C" TCD_SIMD float name##f(float); \
  extern "C" TCD_SIMD double name(double); \
  static inline float library_##name(float x) { return name##f(x); } \
  static inline double library_##name(double x) { return name(x); } \
  TCD_ENTRIES(#name, "v", TCD_ONE)
#define TCD_UNARY(name) \
  TCD_LIBRARY(name) \
  template <typename T> static inline T name##_(T x) { return library_##name(x); }
#define TCD_LIBRARY_OF_TWO(name) \
  extern "C" TCD_SIMD float name##f(float, float); \
  extern "C" TCD_SIMD double name(double, double); \
  static inline float library_##name(float x, float y) { return name##f(x, y); } \
  static inline double library_##name(double x, double y) { return name(x, y); } \
  TCD_ENTRIES(#name, "vv", TCD_TWO)
#define TCD_BINARY(name) \
  TCD_LIBRARY_OF_TWO(name) \
  template <typename T> static inline T name##_(T x, T y) { return library_##name(x, y); }

TCD_UNARY(sin) TCD_UNARY(cos) TCD_UNARY(tan) TCD_UNARY(atan)
TCD_UNARY(sinh) TCD_UNARY(cosh) TCD_UNARY(tanh) TCD_UNARY(asinh)
TCD_BINARY(atan2) TCD_BINARY(hypot)
extern "C" TCD_SIMD double erf(double);
static inline double erf_(double x) { return erf(x); }
TCD_ENTRIES("erf", "v", TCD_ONE)

extern "C" double lgamma(double);
extern "C" float fmodf(float, float);
extern "C" double fmod(double, double);
static inline double lgamma_(double x) { return lgamma(x); }
static inline double fmod_(double x, double y) { return fmod(x, y); }

static inline float sqrt_(float x) { return __builtin_sqrtf(x); }
static inline double sqrt_(double x) { return __builtin_sqrt(x); }
static inline float floor_(float x) { return __builtin_floorf(x); }
static inline double floor_(double x) { return __builtin_floor(x); }
static inline float ceil_(float x) { return __builtin_ceilf(x); }
static inline double ceil_(double x) { return __builtin_ceil(x); }
static inline float trunc_(float x) { return __builtin_truncf(x); }
static inline double trunc_(double x) { return __builtin_trunc(x); }
static inline float round_(float x) { return __builtin_rintf(x); }
static inline double round_(double x) { return __builtin_rint(x); }
static inline float abs_(float x) { return __builtin_fabsf(x); }
static inline double abs_(double x) { return __builtin_fabs(x); }
template <typename T> static inline T abs_(T x) { return (T)(x < 0 ? -x : x); }
static inline float copysign_(float x, float y) { return __builtin_copysignf(x, y); }
static inline double copysign_(double x, double y) { return __builtin_copysign(x, y); }

// The bits of neighbouring numbers of one sign are neighbouring integers, which grow away from zero.
// The loops of glibc's function are not vectorized.
template <typename T, typename Bits> static inline T next_(T x, T y, Bits one) {
  const Bits step = (x < y) == (x > 0) ? one : (Bits)(0 - one);
  const T moved = x == 0 ? copysign_(bits_as<T>(one), y) : bits_as<T>((Bits)(bits_as<Bits>(x) + step));
  const T near = x == y ? y : moved;
  return (x != x) | (y != y) ? x + y : near;
}
static inline float nextafter_(float x, float y) { return next_(x, y, (uint32_t)1); }
static inline double nextafter_(double x, double y) { return next_(x, y, (uint64_t)1); }

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
static inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static inline float multiply_add(float a, float b, float c) { return a * b + c; }
#endif
static inline float polynomial(float, float value) { return value; }
template <typename... Rest>
static inline float polynomial(float x, float high, float next, Rest... rest) {
  return polynomial(x, multiply_add(high, x, next), rest...);
}

// The library computes arguments outside of a function's domain one by one, and those with an infinite
// result, which takes 5 to 15 times as long. It is given others instead, and the result is chosen
// afterwards. Such arguments are common: zeros and negative numbers whose result a choice discards.
template <typename T> static inline T between(T low, T x, T high, T other) {
  const T below = x <= high ? x : other;
  return low <= x ? below : other;
}
// The result of a function whose domain begins at `low`. Inside, it is `value`, or infinite for infinity.
template <typename T> static inline T above_(T x, T low, T value, T at_low, T below) {
  const T above = x < (T)__builtin_inf() ? value : x, other = x == low ? at_low : below;
  return x > low ? above : other;
}
#define TCD_ABOVE(name, low, inside, at_low, below) \
  TCD_LIBRARY(name) \
  template <typename T> static inline T name##_(T x) { \
    const T above = x > low ? x : inside, finite = above < (T)__builtin_inf() ? above : inside; \
    return above_(x, (T)low, library_##name(finite), (T)at_low, (T)(below)); \
  }
// NaN has the sign that eager gives it.
#define TCD_INF __builtin_inf()
#define TCD_NAN __builtin_nan("")
TCD_ABOVE(log, 0, 1, -TCD_INF, TCD_NAN) TCD_ABOVE(log2, 0, 1, -TCD_INF, TCD_NAN)
TCD_ABOVE(log10, 0, 1, -TCD_INF, TCD_NAN) TCD_ABOVE(log1p, -1, 0, -TCD_INF, TCD_NAN)
TCD_ABOVE(acosh, 1, 2, 0, x < 1 ? (T)-TCD_NAN : x)

#define TCD_WITHIN_ONE(name) \
  TCD_LIBRARY(name) \
  template <typename T> static inline T name##_(T x) { \
    const bool inside = abs_(x) <= 1; \
    const T value = library_##name(inside ? x : 0); \
    return inside ? value : x == x ? (T)-TCD_NAN : x; \
  }
TCD_WITHIN_ONE(asin) TCD_WITHIN_ONE(acos)

TCD_LIBRARY(atanh)
template <typename T> static inline T atanh_(T x) {
  const bool inside = abs_(x) < 1;
  const T value = library_atanh(inside ? x : 0);
  const T other = abs_(x) == 1 ? copysign_((T)TCD_INF, x) : (T)-TCD_NAN;
  return inside ? value : other;
}

TCD_LIBRARY(erfc)
template <typename T> static inline T erfc_(T x) {
  const T low = sizeof(T) == 4 ? -6 : -7, high = sizeof(T) == 4 ? (T)10.1 : (T)27.3;
  const T value = library_erfc(between(low, x, high, (T)0));
  const T above = x > high ? 0 : value, all = x < low ? 2 : above;
  return x == x ? all : x;
}

// The power of the magnitude, with the sign of x if y is odd.
TCD_LIBRARY_OF_TWO(pow)
template <typename T> static inline T pow_(T x, T y) {
  const T inf = (T)__builtin_inf(), nan = (T)__builtin_nan(""), size = abs_(x);
  const bool inside = (size > 0) & (size < inf);
  const T value = library_pow(inside ? size : 1, y);
  const T grown = (y > 0) == (size > 0) ? inf : 0, known = (x == x) & (y == y) ? grown : nan;
  const T positive = inside ? value : (y == 0 ? 1 : known);
  const bool whole = trunc_(y) == y, odd = whole & (trunc_(y * (T)0.5) != y * (T)0.5);
  const T same = (x < 0) & inside & !whole ? nan : positive;
  return sign_bit(x) & odd ? -same : same;
}

// Functions of double whose result is `least` below `low`, and infinite above `high`.
#define TCD_EXPONENTIAL(name, low, least, high) \
  extern "C" TCD_SIMD double name(double); \
  TCD_ENTRIES(#name, "v", TCD_ONE) \
  static inline double name##_(double x) { \
    const double value = name(between((double)low, x, (double)high, 0.0)); \
    const double finite = x < low ? least : value; \
    return x <= high ? finite : x + __builtin_inf(); \
  }
TCD_EXPONENTIAL(exp, -746, 0, 710)
TCD_EXPONENTIAL(exp2, -1076, 0, 1024)
TCD_EXPONENTIAL(expm1, -40, -1, 710)

// erf(t) is 1 - (1 - w / 4)^4 with w = t + t P(t) for t up to 4, and 1 beyond. One polynomial covers
// all arguments. Computed as w - w^2 / 8, twice, no step cancels. P is a minimax fit of the relative
// error of the result (0.3 units in the last place). Its odd and even powers are separate, for half
// the latency. The error is at most 2.8 units, and at most 0.95 beyond 2.
static inline float erf_(float x) {
  const float t = abs_(x), square = t * t;
  const float odd = polynomial(square,
      -1.0866991e-05f, -5.08166384e-04f, 7.94172473e-03f, -7.44267777e-02f, 4.77466404e-01f);
  const float even = polynomial(square,
      1.42063713e-04f, -9.21945204e-04f, 4.72720759e-03f, -6.1866831e-02f, 1.28379136e-01f);
  const float w = multiply_add(t, multiply_add(odd, t, even), t);
  const float half = multiply_add(w * -0.125f, w, w);  // 1 - (1 - w / 4)^2, doubled
  const float inside = multiply_add(half * -0.25f, half, half);
  return copysign_(t > 4.0f ? 1.0f : inside, x);
}

// x is n ln 2 + rest, with a rest of at most ln 2 / 2. Adding 1.5 * 2^23 rounds to n and leaves n in the
// lowest bits of `shifted`.
struct Exponent {
  float shifted, rest;
};
static inline Exponent exponent(float x) {
  const float shifted = multiply_add(x, 1.44269504f, 12582912.0f), n = shifted - 12582912.0f;
  return {shifted, multiply_add(n, 2.12194440e-4f, multiply_add(n, -0.693359375f, x))};
}
// 2^n times a number. Half of n is added to its exponent, and the rest is a multiplication, which alone
// rounds if the result is subnormal.
static inline float times_power(float near, float shifted) {
  const uint32_t bits = bits_as<uint32_t>(shifted), half = (bits << 22) & 0xff800000u;
  const float power = bits_as<float>(bits_as<uint32_t>(near) + half);
  return power * bits_as<float>((bits << 23) - half + 0x3f800000u);
}
// exp(x) is 2^n times a minimax fit of exp(rest). The error is at most 1 unit. Overflow and underflow are
// selected at the end, for latency.
static inline float exp_(float x) {
  const Exponent parts = exponent(x);
  const float near = polynomial(parts.rest,
      1.38186989e-03f, 8.36871564e-03f, 4.16682921e-02f, 1.66665211e-01f, 4.9999994e-01f, 1.0f, 1.0f);
  const float result = x < -104.0f ? 0.0f : times_power(near, parts.shifted);
  return x <= 89.0f ? result : x + __builtin_inff();
}

// A positive number is 2^n (1 + f), with f from -1/3 to 1/3. A subnormal one is multiplied by 2^24 first.
struct Scaled {
  float n, f;
};
static inline float fraction(uint32_t bits) {
  return bits_as<float>((bits & 0x007fffffu) + 0x3f2aaaabu) - 1.0f;
}
static inline Scaled scaled(float x) {
  const bool small = x < 0x1p-126f;
  const uint32_t bits = bits_as<uint32_t>(small ? x * 0x1p24f : x) - 0x3f2aaaabu;
  const float n = (float)((int32_t)bits >> 23) - (small ? 24.0f : 0.0f);
  return {n, fraction(bits)};
}
// log(1 + f) - f is f^2 P(f). P is a minimax fit (0.1 units in the last place of the logarithm).
static inline float log_tail(float f) {
  const float p = polynomial(f,
      -1.28916026e-1f, 1.39844671e-1f, -1.21842772e-1f, 1.40058622e-1f, -1.66804865e-1f,
      2.00104058e-1f, -2.49997973e-1f, 3.33332151e-1f, -0.5f);
  return f * f * p;
}
// n log(2) + log(1 + f). The multiple of the upper digits of log(2) is exact.
static inline float log_of(Scaled x) {
  const float lower = multiply_add(x.n, -2.12194440e-4f, log_tail(x.f));
  return multiply_add(x.n, 0.693359375f, x.f + lower);
}
static inline float log_(float x) {
  return above_(x, 0.0f, log_of(scaled(x)), (float)-TCD_INF, (float)TCD_NAN);
}
static inline float log2_(float x) {
  const Scaled parts = scaled(x);
  const float lower = multiply_add(parts.f, 1.9259629e-8f, log_tail(parts.f) * 1.44269504f);
  const float value = parts.n + multiply_add(parts.f, 1.44269502f, lower);
  return above_(x, 0.0f, value, (float)-TCD_INF, (float)TCD_NAN);
}
static inline float log10_(float x) {
  const Scaled parts = scaled(x);
  const float tail = multiply_add(log_tail(parts.f), 4.34294482e-1f, parts.f * -1.0103050e-8f);
  const float lower = multiply_add(parts.n, 4.6050390e-6f, tail);
  const float value = multiply_add(parts.n, 3.01025391e-1f, multiply_add(parts.f, 4.34294492e-1f, lower));
  return above_(x, 0.0f, value, (float)-TCD_INF, (float)TCD_NAN);
}
// What 1 + x loses by rounding is added to f, times 2^-n. Where n exceeds 100, nothing is lost.
static inline float log1p_(float x) {
  const float sum = 1.0f + x, lost = x - (sum - 1.0f);
  const uint32_t bits = bits_as<uint32_t>(sum) - 0x3f2aaaabu, places = bits & 0xff800000u;
  const int32_t bounded = (int32_t)places < (100 << 23) ? (int32_t)places : 100 << 23;
  const float power = bits_as<float>(0x3f800000u - (uint32_t)bounded);
  const Scaled parts = {(float)((int32_t)bits >> 23), multiply_add(lost, power, fraction(bits))};
  const float below = x < -1.0f ? (float)-TCD_NAN : x;
  return above_(x, -1.0f, copysign_(log_of(parts), x), (float)-TCD_INF, below);
}

// As exp, with 2^n times a minimax fit of 2^rest on [-1/2, 1/2] (0.04 units).
static inline float exp2_(float x) {
  const float shifted = x + 12582912.0f, n = shifted - 12582912.0f, rest = x - n;
  const float near = polynomial(rest,
      1.5353359e-4f, 1.3398875e-3f, 9.618437e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.931472e-1f, 1.0f);
  const float result = x < -150.0f ? 0.0f : times_power(near, shifted);
  return x < 128.0f ? result : x + __builtin_inff();
}

// exp(x) - 1 is 2^n - 1 + 2^n (exp(rest) - 1), by a minimax fit of exp(rest) - 1 (0.2 units). Half of it
// is computed and doubled, since 2^128 is infinite. Below -20, the result is -1.
static inline float expm1_(float x) {
  const Exponent parts = exponent(x < -20.0f ? -20.0f : x);
  const float near = parts.rest * polynomial(parts.rest,
      1.388887e-3f, 8.369074e-3f, 4.1667137e-2f, 1.6666506e-1f, 4.9999997e-1f, 1.0f);
  const float half = bits_as<float>((bits_as<uint32_t>(parts.shifted) << 23) + 0x3f000000u);
  const float result = 2.0f * multiply_add(half, near, half - 0.5f);
  return x <= 89.0f ? copysign_(result, x) : x + __builtin_inff();
}
