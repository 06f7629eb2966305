// Special functions of two numbers, computed in loops. Included after prelude.hpp.
// DLMF is the NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov.

// log |Gamma(x)| by Stirling's series (DLMF 5.11.1) above 8, the recurrence 5.5.1 below, and the
// reflection 5.5.3 below 0.5. It is computed in double, because terms cancel near its zeros.
static inline double log_gamma_of_positive(double x) {
  const double far = x < 8 ? x + 8 : x, inverse = 1 / far, square = inverse * inverse;
  const double product = x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6) * (x + 7);
  const double series = inverse * (1.0 / 12 + square * (-1.0 / 360 + square * (1.0 / 1260
      + square * (-1.0 / 1680 + square * (1.0 / 1188 + square * (-691.0 / 360360))))));
  const double half_log_two_pi = 0.918938533204672741780, ratio = x < 8 ? product : 1;
  return (far - 0.5) * log_(far) - far + half_log_two_pi + series - log_(ratio);
}
// Choices are made between numbers, before functions are called: g++ makes a branch around a function
// whose value is chosen, and does not vectorize it.
static inline float lgamma_(float value) {
  const double low = value < -1e38f ? -1e300 : value, x = low > 1e38 ? 1e300 : low;
  const double pi = 3.14159265358979323846, log_pi = 1.14472988584940017414;
  const double mirrored = x < 0.5 ? 1 : 0, beside_zeros = (x == 1) | (x == 2) ? 0 : 1;
  const double away = mirrored * (x - round_(x)) + (1 - mirrored) * 0.5;
  const double log_sine = log_(abs_(sin_(pi * away)));
  const double positive = log_gamma_of_positive(abs_(x - 0.5) + 0.5);
  return (float)(beside_zeros * ((1 - 2 * mirrored) * positive + mirrored * log_pi - log_sine) + 0);
}

// Hurwitz's zeta function for q > 0: twelve terms of its sum, then DLMF 25.11.28 for the rest.
static inline double zeta_of_positive(double s, double q) {
  // B(2k) / (2k)! from k = 8 to k = 1
  const double bernoulli[] = {-3617.0 / 10670622842880000.0, 1.0 / 74724249600.0,
      -691.0 / 1307674368000.0, 1.0 / 47900160, -1.0 / 1209600, 1.0 / 30240, -1.0 / 720, 1.0 / 12};
  double sum = 0;
  for (int k = 0; k < 12; ++k, q += 1) {
    const double term = pow_(q, -s);
    sum += term;
    if (term <= 1e-17 * sum) return sum;
  }
  double correction = 0;
  for (int k = 8, row = 0; k > 0; --k, ++row)
    correction = correction * ((s + 2 * k - 1) / q) * ((s + 2 * k) / q) + bernoulli[row];
  return sum + pow_(q, -s) * (q / (s - 1) + (0.5 + correction * (s / q)));
}
// For q < 0, the terms on each side of 0 are summed separately. Poles and undefined values are those
// of eager.
static inline double zeta_(double s, double q) {
  const double nan = __builtin_nan(""), inf = __builtin_inf();
  if (s == 1) return inf;
  if (!(s > 1) || q != q || q == inf) return nan;
  if (q > 0) return zeta_of_positive(s, q);
  if (q == floor_(q)) return inf;
  if (s != floor_(s)) return nan;
  const double part = -q - floor_(-q);
  const double below = zeta_of_positive(s, part) - zeta_of_positive(s, 1 - q);
  return zeta_of_positive(s, 1 - part) + (s / 2 == floor_(s / 2) ? below : -below);
}
static inline float zeta_(float s, float q) { return (float)zeta_((double)s, (double)q); }

// The regularised incomplete gamma functions P and Q (DLMF chapter 8), computed in long double,
// because a relative error in an exponent of 700 is 700 times as large in the result.
extern "C" {
long double expl(long double);
long double expm1l(long double);
long double logl(long double);
long double log1pl(long double);
long double erfcl(long double);
long double lgammal(long double);
}

// log(Gamma(1 + a)). For small a, where 1 + a loses digits of a, by the series DLMF 5.7.3.
static inline long double log_gamma_after(long double a) {
  if (a > 1e-4L) return lgammal(1 + a);
  return a * (-0.577215664901532860607L + a * (0.822467033424113218236L
      + a * (-0.400685634386531428467L + a * 0.270580808427784547879L)));
}

// mu - log(1 + mu), which is eta^2 / 2 in DLMF 8.12.1. Near 0 by DLMF 4.6.4, with mu - 2 s = mu s.
static inline long double half_eta_squared(long double mu) {
  if (mu < -0.25L || mu > 0.25L) return mu - log1pl(mu);
  const long double s = mu / (2 + mu), square = s * s;
  long double sum = 0;
  for (int k = 12; k > 0; --k) sum = (sum + 1.0L / (2 * k + 1)) * square;
  return s * (mu - 2 * sum);
}

// From these values of a on, the terms used of Stirling's series and DLMF 8.12 give 17 digits.
static const double GAMMA_BY_STIRLING = 400, GAMMA_IS_UNIFORM = 2000;

// x^a e^-x / Gamma(1 + a). For large a by Stirling's series, DLMF 5.11.3.
static inline long double gamma_density(long double a, long double x) {
  if (a < GAMMA_BY_STIRLING) return expl(a * logl(x) - x - log_gamma_after(a));
  const long double r = 1 / a, pi = 3.14159265358979323846L;
  const long double stirling = 1 + r * (1.0L / 12 + r * (1.0L / 288
      + r * (-139.0L / 51840 - r * (571.0L / 2488320))));
  return expl(-a * half_eta_squared((x - a) / a)) / (__builtin_sqrtl(2 * pi * a) * stirling);
}

// P by DLMF 8.7.1, the first sum: x^k / ((a + 1) ... (a + k)).
static inline long double gamma_p_ascending(long double a, long double x) {
  long double sum = 1, term = 1;
  for (long double k = 1; term > sum * 1e-20L; k += 1) sum += term *= x / (a + k);
  return gamma_density(a, x) * sum;
}

// Q for small a, where 1 - P is small: DLMF 8.7.1, the second sum, whose first term is 1 + expm1.
static inline long double gamma_q_of_small(long double a, long double x) {
  const long double exponent = a * logl(x) - log_gamma_after(a);
  long double sum = 0, power = 1;
  for (long double k = 1; k < 30; k += 1) sum += (power *= -x / k) / (a + k);
  return -expm1l(exponent) - expl(exponent) * a * sum;
}

// Q by the even part of the continued fraction DLMF 8.9.2, written as a sum whose terms have the
// ratios `ratio` (Gautschi, "A computational procedure for incomplete gamma functions", 1979).
static inline long double gamma_q_descending(long double a, long double x) {
  long double sum = 1, term = 1, ratio = 0;
  for (long double k = 1; (term > 0 ? term : -term) > sum * 1e-20L; k += 1) {
    const long double middle = x + 2 * k - a;
    const long double step = k * (a - k) / ((middle - 1) * (middle + 1)) * (1 + ratio);
    ratio = -step / (1 + step);
    sum += term *= ratio;
  }
  return gamma_density(a, x) * (a / (x + 1 - a)) * sum;
}

// Taylor coefficients of c0, c1, ... of DLMF 8.12.9 and 8.12.10 in eta.
static const double GAMMA_C0[] = {-1.0 / 3, 1.0 / 12, -2.0 / 135, 1.0 / 864, 1.0 / 2835,
    -139.0 / 777600, 1.0 / 25515, -571.0 / 261273600, -281.0 / 151559100, 163879.0 / 197522841600.0,
    -5221.0 / 29554024500.0, 5246819.0 / 782190452736000.0, 5459.0 / 531972441000.0};
static const double GAMMA_C1[] = {-1.0 / 540, -1.0 / 288, 1.0 / 378, -77.0 / 77760, 1.0 / 4860,
    -1.0 / 2488320, -2743.0 / 151559100, 41969.0 / 5486745600.0, -11.0 / 6823440};
static const double GAMMA_C2[] = {25.0 / 6048, -139.0 / 51840, 1.0 / 1296, 1.0 / 497664,
    -6199.0 / 57736800, 5531.0 / 104509440};
static const double GAMMA_C3[] = {101.0 / 155520, 571.0 / 2488320, -54179.0 / 115473600};

template <int N>
static inline long double taylor(const double (&coefficients)[N], long double eta) {
  long double sum = 0;
  for (int k = N - 1; k >= 0; --k) sum = sum * eta + coefficients[k];
  return sum;
}

// P or Q for large a and x within an eighth of a: DLMF 8.12.3, 8.12.4 and 8.12.7.
static inline long double gamma_uniform(long double a, long double x, bool upper) {
  const long double mu = (x - a) / a, pi = 3.14159265358979323846L;
  const long double half = half_eta_squared(mu), size = __builtin_sqrtl(2 * half);
  const long double eta = mu < 0 ? -size : size, root = __builtin_sqrtl(a * half), r = 1 / a;
  const long double c = taylor(GAMMA_C0, eta) + r * (taylor(GAMMA_C1, eta)
      + r * (taylor(GAMMA_C2, eta) + r * taylor(GAMMA_C3, eta)));
  const long double rest = expl(-a * half) / __builtin_sqrtl(2 * pi * a) * c;
  return 0.5L * erfcl((mu < 0) == upper ? -root : root) + (upper ? rest : -rest);
}

static inline double igamma_of(double a, double x, bool upper) {
  const double inf = __builtin_inf();
  // The limits of eager, even if the other number is NaN.
  if (x < 0 || a < 0 || (a == 0 && !(x > 0)) || (a == inf && x == inf)) return __builtin_nan("");
  if (x == 0 || a == inf) return upper;
  if (a == 0 || x == inf) return !upper;
  if (a != a || x != x) return __builtin_nan("");
  if (a >= GAMMA_IS_UNIFORM && abs_(x - a) <= a / 8) return (double)gamma_uniform(a, x, upper);
  if (x >= 1.5 && x >= a) {
    const long double q = gamma_q_descending(a, x);
    return (double)(upper ? q : 1 - q);
  }
  if (upper && a < 0.125 && x < 1.5) return (double)gamma_q_of_small(a, x);
  const long double p = gamma_p_ascending(a, x);
  return (double)(upper ? 1 - p : p);
}
template <typename T> static inline T igamma_(T a, T x) { return (T)igamma_of(a, x, false); }
template <typename T> static inline T igammac_(T a, T x) { return (T)igamma_of(a, x, true); }

// Orthogonal polynomials by their recurrences (Abramowitz and Stegun 22.7). p and q are those of the
// two previous degrees.
template <typename T, typename Next>
static inline T recurrence(T degree, T first, Next next) {
  const int64_t n = (int64_t)degree;
  T p = 1, q = first;
  if (n <= 0) return n ? 0 : 1;
  for (int64_t k = 1; k < n && q == q; ++k) {
    const T r = next((T)k, p, q);
    p = q;
    q = r;
  }
  return q;
}
template <typename T> static inline T chebyshev_of(T x, T n, T first) {
  return recurrence(n, first, [x](T, T p, T q) { return (x + x) * q - p; });
}
template <typename T> static inline T chebyshev_t_(T x, T n) {
  if (n > 6 && abs_(x) < 1) return cos_(trunc_(n) * acos_(x));
  return chebyshev_of(x, n, x);
}
template <typename T> static inline T chebyshev_u_(T x, T n) {
  const T whole = trunc_(n), angle = acos_(x), sine = sin_(angle);
  if (n > 8 && abs_(x) < 1 && sine != 0) return sin_((whole + 1) * angle) / sine;
  return chebyshev_of(x, n, x + x);
}
template <typename T> static inline T chebyshev_v_(T x, T n) { return chebyshev_of(x, n, x + x - 1); }
template <typename T> static inline T chebyshev_w_(T x, T n) { return chebyshev_of(x, n, x + x + 1); }
template <typename T> static inline T hermite_h_(T x, T n) {
  return recurrence(n, x + x, [x](T k, T p, T q) { return (x + x) * q - (k + k) * p; });
}
template <typename T> static inline T hermite_he_(T x, T n) {
  return recurrence(n, x, [x](T k, T p, T q) { return x * q - k * p; });
}
template <typename T> static inline T laguerre_l_(T x, T n) {
  return recurrence(n, 1 - x, [x](T k, T p, T q) { return ((k + k + (1 - x)) * q - k * p) / (k + 1); });
}
template <typename T> static inline T legendre_p_(T x, T n) {
  return recurrence(n, x, [x](T k, T p, T q) { return ((k + k + 1) * x * q - k * p) / (k + 1); });
}
