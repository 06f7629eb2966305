// The functions that kernels use besides elementary ones: extremes, half types, divisions, threads.

template <typename T> static inline T sign_(T x) { return (T)((x > 0) - (x < 0)); }
// These use two separate choices: with the conditions joined, g++ 12 emits branches in sequences.
// The first choice is one instruction of x86. The second one is free if b is a constant.
// NaN wins. Of equal values, such as zeros of both signs, the first wins.
template <typename T> static inline T maximum_(T a, T b) {
  T m = b > a ? b : a;
  return b != b ? b : m;
}
template <typename T> static inline T minimum_(T a, T b) {
  T m = b < a ? b : a;
  return b != b ? b : m;
}
// NaN loses.
template <typename T> static inline T fmax_(T a, T b) {
  T m = a > b ? a : b;
  return b != b ? a : m;
}
template <typename T> static inline T fmin_(T a, T b) {
  T m = a < b ? a : b;
  return b != b ? a : m;
}
template <typename T> static inline T log_add_exp_(T a, T b) {
  const T m = maximum_(a, b), l = minimum_(a, b);
  return l == m && abs_(m) == (T)__builtin_inf() ? m : log1p_(exp_(l - m)) + m;
}

// bfloat16: rounds to nearest, ties to even. NaN is chosen last, which takes an instruction less than
// adding its bits. A NaN whose last 16 bits are 0 needs no choice, since nothing is carried. `narrow`
// converts a float that is a number of the type already. What is subtracted is -0x7fff, or -0x8000 after
// an odd digit: with AVX-512, `&` and `^` are one instruction.
static inline float from_bfloat16(bfloat16 x) {
  return bits_as<float>((uint32_t)x << 16);
}
static inline bfloat16 narrow_to_bfloat16(float x) {
  return (bfloat16)(bits_as<uint32_t>(x) >> 16);
}
static inline float round_bits_to_bfloat16(float x) {
  const uint32_t bits = bits_as<uint32_t>(x);
  return bits_as<float>((bits - (((bits >> 16) & 1u) ^ 0xffff8001u)) & 0xffff0000u);
}
static inline float round_to_bfloat16(float x) {
  return bits_as<float>(x != x ? 0x7fc00000u : bits_as<uint32_t>(round_bits_to_bfloat16(x)));
}
static inline bfloat16 to_bfloat16(float x) { return narrow_to_bfloat16(round_to_bfloat16(x)); }

// Two neighbouring numbers in bfloat16 as one integer. The first one has the lower bits.
typedef uint32_t __attribute__((aligned(2), may_alias)) Pair;
static inline uint32_t load_pair(const bfloat16& first) { return *(const Pair*)&first; }
static inline void store_pair(bfloat16& first, uint32_t pair) { *(Pair*)&first = pair; }
static inline float first_of_pair(uint32_t pair) { return bits_as<float>(pair << 16); }
static inline float second_of_pair(uint32_t pair) { return bits_as<float>(pair & 0xffff0000u); }
static inline uint32_t joined_to_pair(float first, float second) {
  return bits_as<uint32_t>(first) >> 16 | (bits_as<uint32_t>(second) & 0xffff0000u);
}

// float16. Its exponents are floats' with 112 subtracted, so that a power of two converts all numbers
// but infinity and NaN. Adding 0.5 rounds a subnormal result to its last place. g++ 12 does not
// vectorize conversions of _Float16 without instructions for its arithmetic.
static inline float from_float16(float16 x) {
  const uint32_t shifted = (uint32_t)(int16_t)x << 13 & 0x8fffe000u;  // the sign is copied on its way
  const float finite = bits_as<float>(shifted) * 5.192296858534828e33f;
  const uint32_t bits = bits_as<uint32_t>(finite);
  return bits_as<float>(abs_(finite) >= 65536.0f ? bits | 0x7f800000u : bits);
}
static inline float16 narrow_to_float16(float x) {
  const uint32_t all = bits_as<uint32_t>(x), bits = all & 0x7fffffffu;
  const uint32_t small = bits_as<uint32_t>(bits_as<float>(bits) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (bits - (bits >= 0x7f800000u ? 0x70000000u : 0x38000000u)) >> 13;
  return (float16)((bits < 0x38800000u ? small : normal) | (all >> 16 & 0x8000u));
}
// Adding a number whose last place is that of the result rounds to it. The number is 1.5 times a power
// of two, so that the sum has its exponent. Scaling up and down makes infinity of all that is beyond
// the largest number.
static inline float round_to_float16(float x) {
  const uint32_t all = bits_as<uint32_t>(x);
  int32_t place = (int32_t)(all & 0x7f800000u);
  place = place < 0x38800000 ? 0x38800000 : place;
  place = place > 0x47800000 ? 0x47800000 : place;
  const float shift = bits_as<float>((uint32_t)place + 0x06c00000u);
  const float rounded = (x + shift - shift) * 5.192296858534828e33f * 1.925929944387236e-34f;
  return bits_as<float>(bits_as<uint32_t>(rounded) | (all & 0x80000000u));
}
static inline float16 to_float16(float x) {
  const uint32_t all = bits_as<uint32_t>(x), bits = all & 0x7fffffffu;
  const uint32_t small = bits_as<uint32_t>(bits_as<float>(bits) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (bits + 0xfffu + ((bits >> 13) & 1u) - 0x38000000u) >> 13;
  uint32_t rounded = bits < 0x38800000u ? small : normal;
  rounded = bits >= 0x477ff000u ? 0x7c00u : rounded;
  rounded = bits > 0x7f800000u ? 0x7e00u : rounded;
  return (float16)(rounded | (all >> 16 & 0x8000u));
}

// Conversions between 64-bit integers and floats. AVX2 has no instructions for them, and g++ would
// not vectorize the loop, so they are made of others there.
#if defined(__AVX2__) && !defined(__AVX512DQ__)
// The two halves of an integer as doubles, exactly: they become the last bits of large numbers.
static inline double upper_half(int64_t x) {
  const uint64_t bits = ((uint64_t)x >> 32) ^ 0x4530000080000000u;
  return bits_as<double>(bits) - 0x1.000008p84;
}
static inline double lower_half(int64_t x) {
  return bits_as<double>(((uint64_t)x & 0xffffffffu) | 0x4330000000000000u) - 0x1p52;
}
static inline double to_double(int64_t x) { return upper_half(x) + lower_half(x); }
// What a double cannot hold decides between two floats, so it goes to the double's last bit.
static inline float to_float(int64_t x) {
  const double upper = upper_half(x), lower = lower_half(x), sum = upper + lower;
  const double rest = lower - (sum - upper);
  const uint64_t bits = bits_as<uint64_t>(sum), away = (rest > 0) == (sum > 0) ? 1 : (uint64_t)-1;
  return (float)bits_as<double>((rest != 0) & ((bits & 1) == 0) ? bits + away : bits);
}
static inline int64_t to_int64(double x) {
  const double whole = trunc_(x), high = floor_(whole * 0x1p-32), low = whole - high * 0x1p32;
  const uint64_t upper = bits_as<uint64_t>(high + 0x1.8p52), lower = bits_as<uint64_t>(low + 0x1p52);
  const uint64_t value = (upper << 32) + (lower & 0xffffffffu);
  const bool inside = (whole >= -0x1p63) & (whole < 0x1p63);
  return (int64_t)(inside ? value : 0x8000000000000000u);
}
#else
static inline double to_double(int64_t x) { return (double)x; }
static inline float to_float(int64_t x) { return (float)x; }
static inline int64_t to_int64(double x) { return (int64_t)x; }
#endif

// The remainder of a division that is rounded to 0, exactly. Each step subtracts a multiple of y that
// leaves less than 2^-51 of the quotient, without rounding. Six steps are enough for all floats.
static inline float fmod_(float x, float y) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  const double inf = __builtin_inf(), a = abs_((double)x), b = abs_((double)y), inverse = 1 / b;
  double rest = a;
#pragma GCC unroll 6
  for (int step = 0; step < 6; ++step) rest = __builtin_fma(-trunc_(rest * inverse), b, rest);
  rest = rest < 0 ? rest + b : rest;
  rest = rest >= b ? rest - b : rest;
  rest = b == inf ? a : rest;
  rest = a == inf ? a - a : rest;
  return copysign_((float)rest, x);
#else
  return fmodf(x, y);
#endif
}

// Python's division of floats: the quotient is rounded down, the remainder has the sign of b.
template <typename T> static inline T remainder_(T a, T b) {
  const T r = fmod_(a, b);
  return (r != 0) & ((b < 0) != (r < 0)) ? r + b : r;
}
template <typename T> static inline T floor_div_by_rest(T a, T b, T r) {
  const T quotient = a / b, whole = (a - r) / b;
  const T q = (r != 0) & ((b < 0) != (r < 0)) ? whole - 1 : whole, down = floor_(q);
  const T nearest = q - down > (T)0.5 ? down + 1 : down;
  const T signed_zero = q == 0 ? copysign_((T)0, quotient) : nearest;
  return b == 0 ? quotient : signed_zero;
}
static inline double floor_div_(double a, double b) { return floor_div_by_rest(a, b, fmod_(a, b)); }
// Below 2^25, the whole part of the rounded quotient is wrong by at most 1, and the remainder is exact
// if it is not rounded before the subtraction. From there on, the remainder is less than half of the
// last bit of a, and is rounded away.
static inline float floor_div_(float a, float b) {
  const float inf = __builtin_inff(), x = abs_(a), y = abs_(b), quotient = x / y;
  float rest;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  rest = __builtin_fmaf(-trunc_(quotient), y, x);
#else
  rest = (float)((double)x - (double)trunc_(quotient) * (double)y);
#endif
  rest = rest < 0 ? rest + y : rest;
  rest = rest >= y ? rest - y : rest;
  rest = y == inf ? x : rest;
  rest = (quotient >= 0x1p25f) & (x != inf) ? 0.0f : rest;
  return floor_div_by_rest(a, b, copysign_(rest, a));
}

extern "C" {
int omp_get_thread_num();
int omp_get_num_threads();
}

// Integer division. A zero divisor sets *status and gives 0. Division by -1 never traps.
enum { TCD_OK = 0, TCD_INDEX_OUT_OF_RANGE = 1, TCD_DIVISION_BY_ZERO = 2 };
static inline void tcd_report(int* status, int code) {
#pragma omp atomic write
  *status = code;
}
template <typename T> static inline T int_trunc_div(T a, T b, int* status) {
  if (b == 0) { tcd_report(status, TCD_DIVISION_BY_ZERO); return 0; }
  if ((T)-1 < 0 && b == (T)-1) return (T)(0 - (uint64_t)a);
  return (T)(a / b);
}
template <typename T> static inline T int_trunc_mod(T a, T b, int* status) {
  if (b == 0) { tcd_report(status, TCD_DIVISION_BY_ZERO); return 0; }
  if ((T)-1 < 0 && b == (T)-1) return 0;
  return (T)(a % b);
}
template <typename T> static inline T int_remainder(T a, T b, int* status) {
  T r = int_trunc_mod(a, b, status);
  return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}
template <typename T> static inline T int_floor_div(T a, T b, int* status) {
  T q = int_trunc_div(a, b, status);
  T r = (T)(a - (T)(q * b));
  return r != 0 && (r < 0) != (b < 0) ? (T)(q - 1) : q;
}

// Shifts. A negative or too large count shifts out all bits except the sign of a right shift.
template <typename T> static inline T shift_left_(T a, T b) {
  return b < 0 || (uint64_t)b >= sizeof(T) * 8 ? (T)0 : (T)((uint64_t)a << b);
}
template <typename T> static inline T shift_right_(T a, T b) {
  const bool beyond = b < 0 || (uint64_t)b >= sizeof(T) * 8;
  const T sign = a < 0 ? -1 : 0;
  return beyond ? sign : (T)(a >> (beyond ? 0 : b));
}

// The first two words of Philox 4x32-10 for the counter (place, stream). The source is cited in
// compiler/operators/philox.py.
static inline int64_t philox_(int64_t seed, int64_t stream, int64_t place) {
  const uint64_t word = 0xffffffffu;
  uint64_t c0 = (uint64_t)place & word, c1 = (uint64_t)place >> 32;
  uint64_t c2 = (uint64_t)stream & word, c3 = (uint64_t)stream >> 32;
  uint64_t k0 = (uint64_t)seed & word, k1 = (uint64_t)seed >> 32;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = (c0 & word) * 0xD2511F53u, p1 = (c2 & word) * 0xCD9E8D57u;
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c1 = p1 & word;
    c3 = p0 & word;
    k0 = (k0 + 0x9E3779B9u) & word;
    k1 = (k1 + 0xBB67AE85u) & word;
  }
  return (int64_t)(c0 | c1 << 32);
}

// Index arithmetic with the sign rules of Python.
static inline int64_t index_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
static inline int64_t index_mod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t index_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t index_min(int64_t a, int64_t b) { return a < b ? a : b; }

// An integer that is compared with indices of 32 bits, none of which is negative.
static inline int32_t count_or_none(int64_t x) { return x >= 0 && x < 1LL << 31 ? (int32_t)x : -1; }

// An indirect index. A negative one counts from the end; one out of range sets *status and gives 0.
static inline int64_t checked_place(int64_t place, int64_t size, int* status) {
  place += place < 0 ? size : 0;
  if ((uint64_t)place >= (uint64_t)size) {
    tcd_report(status, TCD_INDEX_OUT_OF_RANGE);
    return 0;
  }
  return place;
}
// The same in a vectorized loop, which reports after its end that an index was out of range.
static inline int64_t checked_place(int64_t place, int64_t size, int& missed) {
  place += place < 0 ? size : 0;
  const bool outside = (uint64_t)place >= (uint64_t)size;
  missed |= outside;
  return outside ? 0 : place;
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TCD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif
#endif

// A block of points along a row has a partial result for each. The second half of them is combined
// with the first, and so on. g++ keeps a vector in memory if halves of it are loaded.
struct Sum { template <typename T> static inline T of(const T& a, const T& b) { return a + b; } };
struct Product { template <typename T> static inline T of(const T& a, const T& b) { return a * b; } };
struct Largest { template <typename T> static inline T of(const T& a, const T& b) { return b > a ? b : a; } };
struct Smallest { template <typename T> static inline T of(const T& a, const T& b) { return b < a ? b : a; } };
struct Any { template <typename T> static inline T of(const T& a, const T& b) { return a | b; } };
#if defined(__AVX512F__)
enum { REGISTER = 64 };
#else
enum { REGISTER = 32 };
#endif
#if defined(TCD_SHUFFLE)
template <typename How, int N, typename V> static inline auto fold_vector(const V& v) {
  if constexpr (N == 16)
    return fold_vector<How, 8>(How::of(
        TCD_SHUFFLE(v, v, 0, 1, 2, 3, 4, 5, 6, 7), TCD_SHUFFLE(v, v, 8, 9, 10, 11, 12, 13, 14, 15)));
  else if constexpr (N == 8)
    return fold_vector<How, 4>(How::of(TCD_SHUFFLE(v, v, 0, 1, 2, 3), TCD_SHUFFLE(v, v, 4, 5, 6, 7)));
  else if constexpr (N == 4)
    return fold_vector<How, 2>(How::of(TCD_SHUFFLE(v, v, 0, 1), TCD_SHUFFLE(v, v, 2, 3)));
  else
    return How::of(v[0], v[1]);
}
#endif
template <typename How, typename T, int N> static inline T fold(const T (&lanes)[N]) {
#if defined(TCD_SHUFFLE)
  if constexpr (sizeof(lanes) <= REGISTER) {
    typedef T Vector __attribute__((vector_size(sizeof(lanes))));
    Vector v;
    __builtin_memcpy(&v, lanes, sizeof(v));
    return fold_vector<How, N>(v);
  }
#endif
  if constexpr (N == 1) {
    return lanes[0];
  } else {
    T half[N / 2];
    for (int l = 0; l < N / 2; ++l) half[l] = How::of(lanes[l], lanes[l + N / 2]);
    return fold<How>(half);
  }
}
// Which points of the last block count, if so many are left over: the others have been combined with
// the block before, or do not exist. It is a table, since g++ splits a loop by a comparison of its counter.
static const int32_t COUNTS[64] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
// The places of the points of a block, for conditions on them. It is a table for the same reason.
static const int32_t PLACES[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                   16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define TCD_MASKS 1
#else
#define TCD_MASKS 0
#endif
template <int Points> static inline const int32_t* last_points(int64_t left) {
  return COUNTS + 32 - Points + left;
}

// Copies elements from the last to the first.
template <typename T>
__attribute__((always_inline)) static inline void reverse(
    const T* __restrict__ last, int64_t count, T* __restrict__ to) {
  for (int64_t k = 0; k < count; ++k) to[k] = last[-k];
}

// Loads a transposed block of at most `Columns` columns: tile[r][c] is from[c * stride + r]. Blocks of
// 8 x 8 elements are transposed in registers: to[c * to_stride + r] = from[r * stride + c]. g++ keeps
// the arrays in memory unless the loops are unrolled early, which takes five times as long.
#if defined(TCD_SHUFFLE)
template <int Bytes> struct EightOf;
template <> struct EightOf<1> { typedef uint8_t type __attribute__((vector_size(8))); };
template <> struct EightOf<2> { typedef uint16_t type __attribute__((vector_size(16))); };
template <> struct EightOf<4> { typedef uint32_t type __attribute__((vector_size(32))); };
template <> struct EightOf<8> { typedef uint64_t type __attribute__((vector_size(64))); };
template <typename T> static inline void transpose8(typename EightOf<sizeof(T)>::type* a) {
  typename EightOf<sizeof(T)>::type b[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; k += 2) {
    b[k] = TCD_SHUFFLE(a[k], a[k + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[k + 1] = TCD_SHUFFLE(a[k], a[k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 8
  for (int k = 0; k < 4; ++k) {
    const int j = k / 2 * 4 + k % 2;
    a[j] = TCD_SHUFFLE(b[j], b[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[j + 2] = TCD_SHUFFLE(b[j], b[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
#pragma GCC unroll 8
  for (int k = 0; k < 4; ++k) {
    b[k] = TCD_SHUFFLE(a[k], a[k + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[k + 4] = TCD_SHUFFLE(a[k], a[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) a[k] = b[k];
}
template <typename T>
static inline void transpose8(const T* from, int64_t stride, T* to, int64_t to_stride) {
  typename EightOf<sizeof(T)>::type a[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) __builtin_memcpy(&a[k], from + k * stride, sizeof(a[k]));
  transpose8<T>(a);
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) __builtin_memcpy(to + k * to_stride, &a[k], sizeof(a[k]));
}
// Eight elements of which every Step-th is needed: the first of each pair, or the second.
template <int Step, typename T>
static inline typename EightOf<sizeof(T)>::type eight_at(const T* from, bool second) {
  typename EightOf<sizeof(T)>::type x, y;
  __builtin_memcpy(&x, from, sizeof(x));
  if (Step == 1) return x;
  __builtin_memcpy(&y, from + 8, sizeof(y));
  return second ? TCD_SHUFFLE(x, y, 1, 3, 5, 7, 9, 11, 13, 15)
                : TCD_SHUFFLE(x, y, 0, 2, 4, 6, 8, 10, 12, 14);
}
// Rows of fewer than eight elements. What is read beyond their end is in later rows. The last eight
// rows are read with what is before them instead.
template <int Step, typename T>
static inline void transpose_short(
    const T* from, int64_t stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
  const int64_t before = 8 - columns;
  for (int64_t row = 0; row < rows; row += 8) {
    const bool last = row + 16 > rows;
    const int64_t r = row + 8 > rows ? rows - 8 : row, skipped = last ? before : 0;
    const T* first = from + r * stride - skipped * Step - (last ? Step - 1 : 0);
    typename EightOf<sizeof(T)>::type a[8];
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) a[k] = eight_at<Step>(first + k * stride, last);
    transpose8<T>(a);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k)
      if (k >= skipped && k - skipped < columns)
        __builtin_memcpy(to + (k - skipped) * to_stride + r, &a[k], sizeof(a[k]));
  }
}
#endif
// A matrix of any size is transposed in such blocks. The last ones overlap those before. Step is the
// distance of the elements of a row. One copy of the function is enough: with one for each array, the
// build of a kernel took 1.7 times as long, and its run as long as before.
template <int Step = 1, typename T>
__attribute__((noinline)) static void transpose(
    const T* from, int64_t stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
#if defined(TCD_SHUFFLE)
  if (Step == 1 && rows >= 8 && columns >= 8) {
    for (int64_t row = 0; row < rows; row += 8)
      for (int64_t column = 0; column < columns; column += 8) {
        const int64_t r = row < rows - 8 ? row : rows - 8;
        const int64_t c = column < columns - 8 ? column : columns - 8;
        transpose8(from + r * stride + c, stride, to + c * to_stride + r, to_stride);
      }
    return;
  }
  // A row of 4 to 7 elements reads less than 16 elements before or behind it.
  if (Step <= 2 && rows >= 16 && columns >= 4 && columns < 8 && stride >= columns) {
    transpose_short<Step>(from, stride, rows, columns, to, to_stride);
    return;
  }
#endif
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * stride + c * Step];
}
template <int Columns, typename T>
static inline void load_tile(const T* from, int64_t stride, int64_t rows, int64_t columns, T* to) {
  transpose(from, stride, columns, rows, to, Columns);
}
