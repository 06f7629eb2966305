// The types that kernels use. No headers are included: they dominate the time of a C++ compile.

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;

template <typename To, typename From> static inline To bits_as(From value) {
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}
// A number that is known when a function that takes it is compiled.
template <int N> struct Constant {
  constexpr operator int() const { return N; }
};
template <int Bytes> struct BitsOf;
template <> struct BitsOf<1> { typedef uint8_t type; };
template <> struct BitsOf<2> { typedef uint16_t type; };
template <> struct BitsOf<4> { typedef uint32_t type; };
template <> struct BitsOf<8> { typedef uint64_t type; };
// One of two values, without a comparison: a mask that is an invariant of a loop can be a vector. It
// is computed outside of the loop, since g++ has no vectors of invariant bools.
template <typename T> static inline typename BitsOf<sizeof(T)>::type mask_of(bool first) {
  typedef typename BitsOf<sizeof(T)>::type Bits;
  return (Bits)(0 - (Bits)first);
}
template <typename T> static inline T blend(typename BitsOf<sizeof(T)>::type mask, T a, T b) {
  typedef typename BitsOf<sizeof(T)>::type Bits;
  return bits_as<T>((Bits)((bits_as<Bits>(a) & mask) | (bits_as<Bits>(b) & ~mask)));
}
// Reads the bits, because gcc 12 fails on __builtin_signbit of lanes that were bfloat16.
static inline bool sign_bit(float x) { return bits_as<int32_t>(x) < 0; }
static inline bool sign_bit(double x) { return bits_as<int64_t>(x) < 0; }
// A bool in memory. g++ 12 does not vectorize loops that load a bool, but those that compare a byte.
static inline bool is_true(const bool& x) { return *(const uint8_t*)&x != 0; }
static inline double as_double(int64_t bits) { return bits_as<double>(bits); }
typedef uint16_t bfloat16;  // the bits; arithmetic is done in float
typedef uint16_t float16;  // likewise

// For kernels that wait for memory: vectors of 256 bits instead of 512.
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define TCD_NARROW __attribute__((target("prefer-vector-width=256")))
#else
#define TCD_NARROW
#endif
