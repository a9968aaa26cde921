/* The limit on a GPU: the five problems of limit.c as CUDA kernels, float64, one thread per path.

   The state stays in registers and the loop over time is inside the kernel. One Philox 4x32-10
   block gives two normal numbers, those of steps 2n and 2n + 1, or the three-point variables of
   eight steps. Polynomials, stage equations and their Newton steps are those of limit.c, where they
   are explained; quotients and roots start from the hardware's approximation to 20 bits, and one
   step of third order makes them exact to rounding.

   Every kernel: run_NAME(paths, steps, saves, seed, par, state, sums), arguments as in limit.c. */

#define FUN __device__ __forceinline__
#define PI 3.14159265358979323846

typedef unsigned int u32;
typedef unsigned long long u64;

/* Coefficients from the highest power down; in constant memory they are operands of the FMAs. */
__constant__ double SINE[7] = {
    0.0004615318553835809959, -0.0073700215869077702698, 0.082145869180001746186,
    -0.59926452893964492693,  2.5501640398733761003,     -5.1677127800499545258,
    3.1415926535897932286};
__constant__ double COSINE[7] = {
    0.0019068093183945777769, -0.025804938510627626365, 0.2353305472106651947,
    -1.3352627670365804126,   4.0587121263978357024,    -4.9348022005446053642,
    0.99999999999999995284};
__constant__ double LOGARITHM[7] = {
    -4 * 0.084188299853402441463, -4 * 0.090609672156076072071, -4 * 0.11111717273758953332,
    -4 * 0.1428570801055383579,   -4 * 0.20000000030870807598,  -4 * 0.33333333333276459001,
    -4 * 1.0000000000000001709};
__constant__ double WHOLE_SINE[8] = {
    0.69250670107207173421, -3.817365633469135203, 15.094506140734291304, -42.058689953950938581,
    76.70585968962867265,   -81.60524927557976415, 41.341702240398286582, -6.2831853071795857574};

template <int N>
FUN double polynomial(const double (&c)[N], double z) {
  double sum = c[0];
#pragma unroll
  for (int i = 1; i < N; i++) sum = fma(sum, z, c[i]);
  return sum;
}

/* ---- random words ------------------------------------------------------------------------- */

struct Words { u32 w0, w1, w2, w3; };

FUN Words philox(u32 path, u32 number, u64 seed) {
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  Words c = {path, 0, number, 0};
#pragma unroll
  for (int i = 0; i < 10; i++) {
    u64 p0 = (u64)0xD2511F53u * c.w0, p1 = (u64)0xCD9E8D57u * c.w2;
    c = {(u32)(p1 >> 32) ^ c.w1 ^ k0, (u32)p1, (u32)(p0 >> 32) ^ c.w3 ^ k1, (u32)p0};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/* ---- elementary functions ----------------------------------------------------------------- */

FUN double rough_inverse(double x) {
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
}

FUN double rough_inverse_root(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
}

FUN double inverse(double x) {
  double y = rough_inverse(x), e = fma(-x, y, 1.0);
  return fma(y, fma(e, e, e), y);
}

FUN double root(double x) {
  double y = rough_inverse_root(x), r = x * y, e = fma(-r, y, 1.0);
  return fma(r, fma(e, 0.375, 0.5) * e, r);
}

/* Uniform on [1, 2), never 1: the 20 high bits of one word, then 31 of the other and a one. */
FUN double unit(u32 high, u32 low) {
  return __hiloint2double((int)((high >> 12) | 0x3ff00000u), (int)(low | 1u));
}

FUN double flip(double x, u32 sign) {
  return __hiloint2double((int)((u32)__double2hiint(x) ^ sign), __double2loint(x));
}

/* -2 ln u for 0 < u < 1; the cut at 1/sqrt2 needs the high word alone. */
FUN double minus_two_log(double u) {
  int high = __double2hiint(u), e = (high - 0x3fe6a09e) >> 20;
  double m = __hiloint2double(high - (e << 20), __double2loint(u));
  double f = (m - 1) * inverse(m + 1);
  double exponent = __hiloint2double(0x43300000, e ^ (int)0x80000000u) - (0x1p52 + 0x1p31);
  return fma(exponent, -2 * 0.69314718055994530942, polynomial(LOGARITHM, f * f) * f);
}

/* sin 2 pi y and cos 2 pi y, |y| <= 1/4, by the double of the angle pi y. */
FUN void half_turn(double y, double &sine, double &cosine) {
  double z = y * y, s = polynomial(SINE, z) * y, twice = s + s;
  sine = twice * polynomial(COSINE, z);
  cosine = fma(-twice, s, 1.0);
}

FUN void sine_of_turns(double x, double &sine, double &cosine) {
  double shifted = fma(x, 2.0, 0x1.8p52);
  u32 sign = (u32)__double2loint(shifted) << 31;
  half_turn(fma(shifted - 0x1.8p52, -0.5, x), sine, cosine);
  sine = flip(sine, sign);
  cosine = flip(cosine, sign);
}

FUN double cosine_of_turns(double x) {
  double nearest = (x + 0x1.8p52) - 0x1.8p52, y = fabs(x - nearest) - 0.25;
  return polynomial(WHOLE_SINE, y * y) * y;
}

template <bool WIDE>
FUN void turn(double d, double &sine, double &cosine) {
  double z = d * d, s = sine, c = cosine, odd = 1.0 / 120, even = -1.0 / 720;
  if (WIDE) odd = fma(z, -1.0 / 5040, odd), even = fma(z, 1.0 / 40320, even);
  odd = fma(fma(odd, z, -1.0 / 6) * z, d, d);
  even = fma(fma(even, z, 1.0 / 24), z, -0.5) * z;
  sine = fma(c, odd, fma(s, even, s));
  cosine = fma(-s, odd, fma(c, even, c));
}

FUN void normal_pair(Words w, double *xi) {
  double radius = root(minus_two_log(2 - unit(w.w0, w.w1))), s, c;
  half_turn(fma(unit(w.w2, w.w3), 0.5, -0.75), s, c);
  xi[0] = flip(radius * c, w.w2 << 31);
  xi[1] = radius * s;
}

/* ---- the problems: STRIDE steps with the words of one Philox block -------------------------- */

struct VanDerPol {
  static const int GIVEN = 2, STRIDE = 2;
  double h, a, noise, linear, square, mixed, cube;
  FUN VanDerPol(const double *par) {
    const double nu = 0.001, sigma = 0.05;
    h = par[0], a = h / 2, noise = sqrt(h) * sigma / 2, linear = 1 + a * a - a * nu;
    square = a * nu, mixed = 2 * a * square, cube = a * a * square;
  }
  FUN void enter(double *) const {}
  FUN void leave(double *) const {}
  FUN double energy(const double *y) const { return (y[0] * y[0] + y[1] * y[1]) / 2; }
  FUN void step(double *y, double xi) const {
    double q = y[0], p = y[1], right = fma(q, -a, fma(xi, noise, p));
    double scale = inverse(fma(q * square, q, linear)), start = right * scale;
    double quadratic = q * mixed * scale, cubic = scale * cube;
    double bend = cubic * start, rise = quadratic + bend;
    double slope = fma(start, fma(rise, -2.0, -bend), 1.0);
    double P = fma(-(start * start) * rise, slope, start);
    double miss = fma(fma(cubic, P, quadratic) * P, P, P - start);
    P = fma(-miss, slope, P);
    y[0] = fma(P, h, q);
    y[1] = fma(P, 2.0, -p);
  }
  FUN void advance(double *y, Words w) const {
    double xi[2];
    normal_pair(w, xi);
    step(y, xi[0]);
    step(y, xi[1]);
  }
};

struct LenardBernstein {
  static const int GIVEN = 2, STRIDE = 2;
  static constexpr double NU = 0.01, MU = 1.0, D = 1.41421356237309504880, E0 = 3.0;
  FUN double energy(const double *y) const {
    double s, c;
    sine_of_turns(y[0], s, c);
    return y[1] * y[1] / 2 + s * (E0 / (4 * PI));
  }
};

struct Verlet : LenardBernstein {
  double drift, noise, field, shrink, keep;
  FUN Verlet(const double *par) {
    double h = par[0], friction = h / 2 * NU * MU;
    drift = 2 * h, noise = sqrt(h * NU) * D / 2, field = h / 2 * E0;
    shrink = 1 / (1 + friction), keep = 1 - friction;
  }
  FUN void enter(double *y) const {
    y[0] *= 2;
    y[2] = cosine_of_turns(y[0]) * field;
  }
  FUN void leave(double *y) const { y[0] /= 2; }
  FUN void step(double *y, double xi) const {
    double kick = xi * noise, P = (y[1] + kick - y[2]) * shrink;
    y[0] = fma(P, drift, y[0]);
    y[2] = cosine_of_turns(y[0]) * field;
    y[1] = fma(P, keep, kick - y[2]);
  }
  FUN void advance(double *y, Words w) const {
    double xi[2];
    normal_pair(w, xi);
    step(y, xi[0]);
    step(y, xi[1]);
  }
};

struct Dirk : LenardBernstein {
  double noise, guess, kappa, scale, angle, drift;
  FUN Dirk(const double *par) {
    double h = par[0], a = h / 4, b = a / (1 + a * NU * MU);
    noise = sqrt(h * NU) * D / 4, guess = 2 * b, kappa = 4 * PI * a * b * E0;
    scale = b / a, angle = 1 / (4 * PI * a), drift = 4 * a;
  }
  FUN void enter(double *y) const { y[0] *= 2; }
  FUN void leave(double *y) const { y[0] /= 2; }
  FUN void half(double *y, double xi) const {
    double push = fma(xi, noise, y[1]), s, c;
    sine_of_turns(fma(push, guess, y[0]), s, c);
    double d = -(kappa * c) * inverse(fma(s, -kappa, 1.0)), eta = fma(d * -0.5, d * d, d);
    turn<true>(eta, s, c);
    double curve = kappa * c, share = inverse(fma(s, -kappa, 1.0));
    d = -(eta + curve) * share;
    eta += fma(curve * share * 0.5, d * d, d);
    double P = fma(eta, angle, push * scale);
    y[0] = fma(P, drift, y[0]);
    y[1] = fma(P, 2.0, -y[1]);
  }
  FUN void advance(double *y, Words w) const {
    double xi[2];
    normal_pair(w, xi);
#pragma unroll
    for (int i = 0; i < 4; i++) half(y, xi[i / 2]);
  }
};

struct Kubo {
  static const int GIVEN = 2, STRIDE = 8;
  static constexpr double NU = 0.001;
  double alpha[3], beta[3];
  FUN Kubo(const double *par) {
    for (int i = 0; i < 3; i++) alpha[i] = par[1 + 2 * i], beta[i] = par[2 + 2 * i];
  }
  FUN void enter(double *) const {}
  FUN void leave(double *) const {}
  FUN double energy(const double *y) const { return (y[0] * y[0] + y[1] * y[1]) / 2; }
  /* Two coefficients to choose, not three: selections, not products, are what a step costs. */
  FUN void advance(double *y, Words w) const {
    u32 words[4] = {w.w0, w.w1, w.w2, w.w3};
#pragma unroll
    for (int i = 0; i < 8; i++) {
      u64 die = (u64)words[i / 2] * 6;
      u32 face = (u32)(die >> 32);
      words[i / 2] = (u32)die;
      double a = face == 0 ? alpha[0] : face == 1 ? alpha[1] : alpha[2];
      double b = face == 0 ? beta[0] : face == 1 ? beta[1] : beta[2];
      double q = y[0], p = y[1];
      y[0] = fma(a, q, b * p);
      y[1] = fma(a, p, -(b * fma(p, NU, q)));
    }
  }
};

struct Lorentz {
  static const int GIVEN = 4, STRIDE = 2;
  static constexpr double NU = 0.005, E0 = 3.0;
  double noise, guess, strength, angle, drift;
  FUN Lorentz(const double *par) {
    double h = par[0], a = h / 2;
    noise = sqrt(2 * NU * h) / 2, guess = 2 * a, strength = 4 * PI * a * a * E0;
    angle = 1 / (4 * PI * a), drift = 4 * a;
  }
  FUN void enter(double *y) const {
    double u = 2 * (y[0] + y[1]), v = 2 * (y[0] - y[1]), pu = y[2] + y[3], pv = y[2] - y[3];
    y[0] = u, y[1] = v, y[2] = pu, y[3] = pv;
  }
  FUN void leave(double *y) const {
    double x = (y[0] + y[1]) / 4, z = (y[0] - y[1]) / 4, px = (y[2] + y[3]) / 2;
    y[3] = (y[2] - y[3]) / 2, y[0] = x, y[1] = z, y[2] = px;
  }
  FUN double energy(const double *y) const {
    return (y[2] * y[2] + y[3] * y[3]) / 4 +
           (cosine_of_turns(y[1]) - cosine_of_turns(y[0])) * (E0 / (8 * PI));
  }
  FUN void step(double *y, double xi) const {
    double s = xi * noise, g = inverse(fma(s, s, 1.0)), kappa = g * strength, cross = kappa * s;
    double pu = fma(-s, y[3], y[2]) * g, pv = fma(s, y[2], y[3]) * g, su, cu, sv, cv;
    sine_of_turns(fma(pu, guess, y[0]), su, cu);
    sine_of_turns(fma(pv, guess, y[1]), sv, cv);

    double uu = fma(kappa, cu, 1.0), vv = fma(-kappa, cv, 1.0), uv = cross * cv, vu = cross * cu;
    double share = kappa * inverse(fma(uu, vv, -(uv * vu)));
    double fu = fma(s, sv, su), fv = fma(s, su, -sv);
    double du = fma(uv, fv, -(vv * fu)) * share, dv = fma(vu, fu, -(uu * fv)) * share;
    double bu = fma(su * -0.5, du * du, su), bv = fma(sv * -0.5, dv * dv, sv);
    fu = fma(s, bv, bu), fv = fma(s, bu, -bv);
    double eu = fma(uv, fv, -(vv * fu)) * share, ev = fma(vu, fu, -(uu * fv)) * share;

    turn<false>(eu, su, cu);
    turn<false>(ev, sv, cv);
    uu = fma(kappa, cu, 1.0), vv = fma(-kappa, cv, 1.0), uv = cross * cv, vu = cross * cu;
    share = inverse(fma(uu, vv, -(uv * vu)));
    fu = fma(kappa, fma(s, sv, su), eu), fv = fma(kappa, fma(s, su, -sv), ev);
    eu = fma(fma(uv, fv, -(vv * fu)), share, eu), ev = fma(fma(vu, fu, -(uu * fv)), share, ev);

    pu = fma(eu, angle, pu), pv = fma(ev, angle, pv);
    y[0] = fma(pu, drift, y[0]), y[1] = fma(pv, drift, y[1]);
    y[2] = fma(pu, 2.0, -y[2]), y[3] = fma(pv, 2.0, -y[3]);
  }
  FUN void advance(double *y, Words w) const {
    double xi[2];
    normal_pair(w, xi);
    step(y, xi[0]);
    step(y, xi[1]);
  }
};

/* ---- the loop over steps ------------------------------------------------------------------ */

FUN void add_over_warp(double x, double *sum) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffffu, x, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, x);
}

template <class Problem>
FUN void run(long long paths, long long steps, long long saves, u64 seed, const double *par,
             double *state, double *sums) {
  const long long path = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const bool inside = path < paths;
  const Problem problem(par);
  const u32 rounds = (u32)(steps / saves / Problem::STRIDE);
  double y[4] = {0, 0, 0, 0};
  if (inside)
    for (int j = 0; j < Problem::GIVEN; j++) y[j] = state[j * paths + path];
  problem.enter(y);
  u32 number = 0;
  for (long long save = 0; save < saves; save++) {
#pragma unroll 1
    for (u32 round = 0; round < rounds; round++)
      problem.advance(y, philox((u32)path, number++, seed));
    double H = inside ? problem.energy(y) : 0.0;
    add_over_warp(H, sums + 2 * save);
    add_over_warp(H * H, sums + 2 * save + 1);
  }
  problem.leave(y);
  if (inside)
    for (int j = 0; j < Problem::GIVEN; j++) state[j * paths + path] = y[j];
}

#define DEFINE_RUN(NAME, PROBLEM)                                                              \
  extern "C" __global__ void run_##NAME(long long paths, long long steps, long long saves,     \
                                        u64 seed, const double *par, double *state,            \
                                        double *sums) {                                        \
    run<PROBLEM>(paths, steps, saves, seed, par, state, sums);                                 \
  }

DEFINE_RUN(vdp, VanDerPol)
DEFINE_RUN(verlet, Verlet)
DEFINE_RUN(dirk, Dirk)
DEFINE_RUN(kubo, Kubo)
DEFINE_RUN(lorentz, Lorentz)

/* The noise itself, to be looked at: out is paths x steps; normal numbers, or -1, 0, 1. */
extern "C" __global__ void noise(long long paths, long long steps, u64 seed, int three_point,
                                 double *out) {
  const long long path = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (path >= paths) return;
  out += path * steps;
  for (u32 n = 0; three_point && n < steps / 8; n++) {
    Words w = philox((u32)path, n, seed);
    u32 words[4] = {w.w0, w.w1, w.w2, w.w3};
    for (int i = 0; i < 8; i++) {
      u64 die = (u64)words[i / 2] * 6;
      words[i / 2] = (u32)die;
      out[8 * n + i] = die >> 32 == 0 ? 1.0 : die >> 32 == 1 ? -1.0 : 0.0;
    }
  }
  for (u32 n = 0; !three_point && n < steps / 2; n++)
    normal_pair(philox((u32)path, n, seed), out + 2 * n);
}
