// Converts neighbours in float16. The loops of g++ 12 use no instructions for it.
#if defined(__AVX512F__)
#define TCD_HALVES 16
typedef float WideHalves __attribute__((vector_size(64)));
typedef int16_t Halves __attribute__((vector_size(32)));
static inline WideHalves widened(Halves x) {
  return __builtin_ia32_vcvtph2ps512_mask(x, WideHalves{}, (uint16_t)-1, 4);
}
static inline Halves narrowed(WideHalves x) {
  return __builtin_ia32_vcvtps2ph512_mask(x, 0, Halves{}, (uint16_t)-1);
}
#elif defined(__F16C__)
#define TCD_HALVES 8
typedef float WideHalves __attribute__((vector_size(32)));
typedef int16_t Halves __attribute__((vector_size(16)));
static inline WideHalves widened(Halves x) { return __builtin_ia32_vcvtph2ps256(x); }
static inline Halves narrowed(WideHalves x) { return __builtin_ia32_vcvtps2ph256(x, 0); }
#endif
#if defined(TCD_HALVES)
static inline void widen_at(const float16* from, int64_t at, float* to) {
  Halves x;
  __builtin_memcpy(&x, from + at, sizeof(x));
  const WideHalves wide = widened(x);
  __builtin_memcpy(to + at, &wide, sizeof(wide));
}
static inline void narrow_at(const float* from, int64_t at, float16* to) {
  WideHalves x;
  __builtin_memcpy(&x, from + at, sizeof(x));
  const Halves half = narrowed(x);
  __builtin_memcpy(to + at, &half, sizeof(half));
}
static inline void round_at(float* values, int64_t at) {
  WideHalves x;
  __builtin_memcpy(&x, values + at, sizeof(x));
  x = widened(narrowed(x));
  __builtin_memcpy(values + at, &x, sizeof(x));
}
#endif
// The points that are converted at once in rows of a known length.
#if defined(TCD_HALVES) && TCD_HALVES == 8
#define TCD_GROUP 32
#else
#define TCD_GROUP 256
#endif
// The last vector overlaps the one before.
__attribute__((noinline)) static void widen_some(const float16* from, int64_t count, float* to) {
#if defined(TCD_HALVES)
  if (count >= TCD_HALVES) {
    for (int64_t k = 0; k < count - TCD_HALVES; k += TCD_HALVES) widen_at(from, k, to);
    widen_at(from, count - TCD_HALVES, to);
    return;
  }
#endif
  for (int64_t k = 0; k < count; ++k) to[k] = from_float16(from[k]);
}
__attribute__((noinline)) static void narrow_some(const float* from, int64_t count, float16* to) {
#if defined(TCD_HALVES)
  if (count >= TCD_HALVES) {
    for (int64_t k = 0; k < count - TCD_HALVES; k += TCD_HALVES) narrow_at(from, k, to);
    narrow_at(from, count - TCD_HALVES, to);
    return;
  }
#endif
  for (int64_t k = 0; k < count; ++k) to[k] = to_float16(from[k]);
}
__attribute__((noinline)) static void round_some(float* values, int64_t count) {
#if defined(TCD_HALVES)
  if (count >= TCD_HALVES) {
    for (int64_t k = 0; k < count - TCD_HALVES; k += TCD_HALVES) round_at(values, k);
    round_at(values, count - TCD_HALVES);
    return;
  }
#endif
  for (int64_t k = 0; k < count; ++k) values[k] = round_to_float16(values[k]);
}
// Few vectors are converted in registers: whole ones, then 8 or 4 numbers. Others overlap.
#if defined(TCD_HALVES)
#define TCD_FEW(count) (__builtin_constant_p(count) && count > 0 && count <= 64)
typedef float WideFour __attribute__((vector_size(16)));
typedef float WideEight __attribute__((vector_size(32)));
typedef int16_t HalfEight __attribute__((vector_size(16)));
static inline void widen_eight(const float16* from, float* to) {
  HalfEight x;
  __builtin_memcpy(&x, from, 16);
  const WideEight wide = __builtin_ia32_vcvtph2ps256(x);
  __builtin_memcpy(to, &wide, 32);
}
static inline void widen_four(const float16* from, float* to) {
  HalfEight x{};
  __builtin_memcpy(&x, from, 8);
  const WideFour wide = __builtin_ia32_vcvtph2ps(x);
  __builtin_memcpy(to, &wide, 16);
}
static inline void narrow_eight(const float* from, float16* to) {
  WideEight x;
  __builtin_memcpy(&x, from, 32);
  const HalfEight half = __builtin_ia32_vcvtps2ph256(x, 0);
  __builtin_memcpy(to, &half, 16);
}
static inline void narrow_four(const float* from, float16* to) {
  WideFour x;
  __builtin_memcpy(&x, from, 16);
  const HalfEight half = __builtin_ia32_vcvtps2ph(x, 0);
  __builtin_memcpy(to, &half, 8);
}
#endif
__attribute__((always_inline)) static inline void widen(
    const float16* from, int64_t count, float* to) {
#if defined(TCD_HALVES)
  if (TCD_FEW(count)) {
    int64_t k = 0;
#pragma GCC unroll 8
    for (; k + TCD_HALVES <= count; k += TCD_HALVES) widen_at(from, k, to);
    if (k + 8 <= count) widen_eight(from + k, to + k), k += 8;
    if (k + 4 <= count) widen_four(from + k, to + k), k += 4;
    if (k < count && count >= 4) widen_four(from + count - 4, to + count - 4), k = count;
    for (; k < count; ++k) to[k] = from_float16(from[k]);
    return;
  }
#endif
  widen_some(from, count, to);
}
__attribute__((always_inline)) static inline void narrow(
    const float* from, int64_t count, float16* to) {
#if defined(TCD_HALVES)
  if (TCD_FEW(count)) {
    int64_t k = 0;
#pragma GCC unroll 8
    for (; k + TCD_HALVES <= count; k += TCD_HALVES) narrow_at(from, k, to);
    if (k + 8 <= count) narrow_eight(from + k, to + k), k += 8;
    if (k + 4 <= count) narrow_four(from + k, to + k), k += 4;
    if (k < count && count >= 4) narrow_four(from + count - 4, to + count - 4), k = count;
    for (; k < count; ++k) to[k] = to_float16(from[k]);
    return;
  }
#endif
  narrow_some(from, count, to);
}
__attribute__((always_inline)) static inline void round_all(float* values, int64_t count) {
#if defined(TCD_HALVES)
  if (TCD_FEW(count)) {
    int64_t k = 0;
#pragma GCC unroll 8
    for (; k + TCD_HALVES <= count; k += TCD_HALVES) round_at(values, k);
    if (k < count && count >= TCD_HALVES) round_at(values, count - TCD_HALVES), k = count;
    for (; k < count; ++k) values[k] = round_to_float16(values[k]);
    return;
  }
#endif
  round_some(values, count);
}
