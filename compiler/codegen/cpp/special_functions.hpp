// Special functions of two numbers, computed in loops. Included after prelude.hpp.
// DLMF is the NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov.

// log(Gamma(x)) for x from 8, by Stirling's series (DLMF 5.11.1).
static inline double stirling(double x, double log_x) {
  const double inverse = 1 / x, square = inverse * inverse, half_log_two_pi = 0.918938533204672741780;
  const double series = inverse * (1.0 / 12 + square * (-1.0 / 360 + square * (1.0 / 1260
      + square * (-1.0 / 1680 + square * (1.0 / 1188 + square * (-691.0 / 360360))))));
  return (x - 0.5) * log_x - x + half_log_two_pi + series;
}
// Gamma(x + 8) / Gamma(x), by the recurrence DLMF 5.5.1.
static inline double eight_factors(double x) {
  return x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6) * (x + 7);
}
// log |Gamma(x)| by Stirling's series above 8, the recurrence below, and the reflection DLMF 5.5.3
// below 0.5. It is computed in double, because terms cancel near its zeros.
static inline double log_gamma_of_positive(double x) {
  const double far = x < 8 ? x + 8 : x, ratio = x < 8 ? eight_factors(x) : 1;
  return stirling(far, log_(far)) - log_(ratio);
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

// q^-s for q > 0. Few factors are multiplied, which is faster than a logarithm and an exponential.
static inline double inverse_power(double q, double s) {
  if (s > 16 || s != floor_(s)) return __builtin_pow(q, -s);
  double power = q;
  for (int left = (int)s - 1; left > 0; --left) power *= q;
  return 1 / power;
}
// Hurwitz's zeta function for q > 0: at most twelve terms of its sum, those below s + `enough`, then
// DLMF 25.11.28 for the rest. From q = s + 5 on, that leaves out less than 1e-9 of the rest.
static inline double zeta_of_positive(double s, double q, double enough) {
  // B(2k) / (2k)! from k = 8 to k = 1
  const double bernoulli[] = {-3617.0 / 10670622842880000.0, 1.0 / 74724249600.0,
      -691.0 / 1307674368000.0, 1.0 / 47900160, -1.0 / 1209600, 1.0 / 30240, -1.0 / 720, 1.0 / 12};
  double sum = 0;
  for (int k = 0; k < 12 && q < s + enough; ++k, q += 1) {
    const double term = inverse_power(q, s);
    sum += term;
    if (term * (1 + q / (s - 1)) <= 1e-17 * sum) return sum;
  }
  const double inverse = 1 / q, square = inverse * inverse;
  double correction = 0;
  for (int k = 8, row = 0; k > 0; --k, ++row)
    correction = correction * ((s + 2 * k - 1) * (s + 2 * k) * square) + bernoulli[row];
  return sum + inverse_power(q, s) * (q / (s - 1) + (0.5 + correction * (s * inverse)));
}
// For q < 0, the terms on each side of 0 are summed separately. Poles and undefined values are those
// of eager.
static inline double zeta_from(double s, double q, double enough) {
  const double nan = __builtin_nan(""), inf = __builtin_inf();
  if (s == 1) return inf;
  if (!(s > 1) || q != q || q == inf) return nan;
  if (q > 0) return zeta_of_positive(s, q, enough);
  if (q == floor_(q)) return inf;
  if (s != floor_(s)) return nan;
  const double part = -q - floor_(-q);
  const double below = zeta_of_positive(s, part, enough) - zeta_of_positive(s, 1 - q, enough);
  return zeta_of_positive(s, 1 - part, enough) + (s / 2 == floor_(s / 2) ? below : -below);
}
static inline double zeta_(double s, double q) { return zeta_from(s, q, __builtin_inf()); }
static inline float zeta_(float s, float q) { return (float)zeta_from(s, q, 5); }

// The regularised incomplete gamma functions P and Q (DLMF chapter 8), computed in a wider type W,
// because a relative error in an exponent of 700 is 700 times as large in the result: double for
// float, and long double for double.
static inline double wide_exp(double x) { return __builtin_exp(x); }
static inline double wide_expm1(double x) { return __builtin_expm1(x); }
static inline double wide_log(double x) { return __builtin_log(x); }
static inline double wide_log1p(double x) { return __builtin_log1p(x); }
static inline double wide_erfc(double x) { return __builtin_erfc(x); }
static inline long double wide_exp(long double x) { return __builtin_expl(x); }
static inline long double wide_expm1(long double x) { return __builtin_expm1l(x); }
static inline long double wide_log(long double x) { return __builtin_logl(x); }
static inline long double wide_log1p(long double x) { return __builtin_log1pl(x); }
static inline long double wide_erfc(long double x) { return __builtin_erfcl(x); }
static inline long double sqrt_(long double x) { return __builtin_sqrtl(x); }

template <typename W> struct GammaLimits;
template <> struct GammaLimits<long double> {
  // The last term of a series, relative to the sum, if the result is that sum, or 1 minus it.
  static constexpr long double least_term = 1e-20L, least_of_complement = 1e-20L;
  static constexpr double descending = 1.5, uniform = 2000;
};
template <> struct GammaLimits<double> {
  static constexpr double least_term = 1e-9, least_of_complement = 1e-12;
  static constexpr double descending = 5, uniform = 64;
};

// log(Gamma(1 + a)). For small a, where 1 + a loses digits of a, by the series DLMF 5.7.3.
static inline long double log_gamma_after(long double a) {
  if (a > 1e-4L) return __builtin_lgammal(1 + a);
  return a * (-0.577215664901532860607L + a * (0.822467033424113218236L
      + a * (-0.400685634386531428467L + a * 0.270580808427784547879L)));
}
static inline double log_gamma_after(double a) { return log_gamma_of_positive(1 + a); }

// mu - log(1 + mu), which is eta^2 / 2 in DLMF 8.12.1. Near 0 by DLMF 4.6.4, with mu - 2 s = mu s.
template <typename W> static inline W half_eta_squared(W mu) {
  if (mu < (W)-0.25 || mu > (W)0.25) return mu - wide_log1p(mu);
  const W s = mu / (2 + mu), square = s * s;
  W sum = 0;
  for (int k = 12; k > 0; --k) sum = (sum + (W)1 / (2 * k + 1)) * square;
  return s * (mu - 2 * sum);
}

// From this value of a on, the terms used of Stirling's series give 17 digits.
static const double GAMMA_BY_STIRLING = 400;

static inline long double gamma_density_before(long double a, long double x) {
  return wide_exp(a * wide_log(x) - x - log_gamma_after(a));
}
static inline double gamma_density_before(double a, double x) {
  const double next = 1 + a, far = a < 7 ? next + 8 : next, ratio = a < 7 ? eight_factors(next) : 1;
  return wide_exp(a * wide_log(x) - x - stirling(far, wide_log(far))) * ratio;
}

// x^a e^-x / Gamma(1 + a). For large a by Stirling's series, DLMF 5.11.3.
template <typename W> static inline W gamma_density(W a, W x) {
  if (a < (W)GAMMA_BY_STIRLING) return gamma_density_before(a, x);
  const W r = 1 / a, pi = (W)3.14159265358979323846L;
  const W series = 1 + r * ((W)1 / 12 + r * ((W)1 / 288
      + r * ((W)-139 / 51840 - r * ((W)571 / 2488320))));
  return wide_exp(-a * half_eta_squared((x - a) / a)) / (sqrt_(2 * pi * a) * series);
}

// P by DLMF 8.7.1, the first sum: x^k / ((a + 1) ... (a + k)).
template <typename W> static inline W gamma_p_ascending(W a, W x, W least) {
  W sum = 1, term = 1;
  for (W k = 1; term > sum * least; k += 1) sum += term *= x / (a + k);
  return gamma_density(a, x) * sum;
}

// Q for small a, where 1 - P is small: DLMF 8.7.1, the second sum, whose first term is 1 + expm1.
template <typename W> static inline W gamma_q_of_small(W a, W x) {
  const W exponent = a * wide_log(x) - log_gamma_after(a);
  W sum = 0, power = 1;
  for (W k = 1; k < 30; k += 1) sum += (power *= -x / k) / (a + k);
  return -wide_expm1(exponent) - wide_exp(exponent) * a * sum;
}

// Q by the even part of the continued fraction DLMF 8.9.2, written as a sum whose terms have the
// ratios `ratio` (Gautschi, "A computational procedure for incomplete gamma functions", 1979).
template <typename W> static inline W gamma_q_descending(W a, W x) {
  W sum = 1, term = 1, ratio = 0;
  for (W k = 1; (term > 0 ? term : -term) > sum * GammaLimits<W>::least_term; k += 1) {
    const W middle = x + 2 * k - a;
    const W step = k * (a - k) / ((middle - 1) * (middle + 1)) * (1 + ratio);
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

template <typename W, int N> static inline W taylor(const double (&coefficients)[N], W eta) {
  W sum = 0;
  for (int k = N - 1; k >= 0; --k) sum = sum * eta + (W)coefficients[k];
  return sum;
}

// P or Q for large a and x within an eighth of a: DLMF 8.12.3, 8.12.4 and 8.12.7.
template <typename W> static inline W gamma_uniform(W a, W x, bool upper) {
  const W mu = (x - a) / a, pi = (W)3.14159265358979323846L;
  const W half = half_eta_squared(mu), size = sqrt_(2 * half);
  const W eta = mu < 0 ? -size : size, root = sqrt_(a * half), r = 1 / a;
  const W c = taylor(GAMMA_C0, eta) + r * (taylor(GAMMA_C1, eta)
      + r * (taylor(GAMMA_C2, eta) + r * taylor(GAMMA_C3, eta)));
  const W rest = wide_exp(-a * half) / sqrt_(2 * pi * a) * c;
  return wide_erfc((mu < 0) == upper ? -root : root) / 2 + (upper ? rest : -rest);
}

template <typename W, typename T> static inline T igamma_of(T small, T other, bool upper) {
  const W a = small, x = other, inf = __builtin_inf();
  // The limits of eager, even if the other number is NaN.
  if (x < 0 || a < 0 || (a == 0 && !(x > 0)) || (a == inf && x == inf)) return (T)__builtin_nan("");
  if (x == 0 || a == inf) return upper;
  if (a == 0 || x == inf) return !upper;
  if (a != a || x != x) return (T)__builtin_nan("");
  if (a >= (W)GammaLimits<W>::uniform && abs_(x - a) <= a / 8) return (T)gamma_uniform(a, x, upper);
  if (x >= (W)GammaLimits<W>::descending && x >= a) {
    const W q = gamma_q_descending(a, x);
    return (T)(upper ? q : 1 - q);
  }
  if (upper && a < (W)0.125) return (T)gamma_q_of_small(a, x);
  const W least = upper ? GammaLimits<W>::least_of_complement : GammaLimits<W>::least_term;
  const W p = gamma_p_ascending(a, x, least);
  return (T)(upper ? 1 - p : p);
}
static inline double igamma_(double a, double x) { return igamma_of<long double>(a, x, false); }
static inline double igammac_(double a, double x) { return igamma_of<long double>(a, x, true); }
static inline float igamma_(float a, float x) { return igamma_of<double>(a, x, false); }
static inline float igammac_(float a, float x) { return igamma_of<double>(a, x, true); }

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
  if (n > 8 && abs_(x) < 1) {
    const T angle = acos_(x), sine = sin_(angle);
    if (sine != 0) return sin_((trunc_(n) + 1) * angle) / sine;
  }
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
