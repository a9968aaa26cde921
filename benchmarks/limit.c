/* The limit on the CPU: five problems written by hand, float64, noise by counter.

   gcc -O3 -march=native -mprefer-vector-width=512 -ffast-math -fopenmp -shared -fPIC

   Paths are the lanes of vectors; a block of VECTORS vectors stays in the first cache while it runs
   from start to end. Every step is a few short passes over the block (words, normal numbers, guess,
   solution, update), because the processor overlaps independent vectors only as far as it can look
   ahead: one long body per vector waits on its own chain of dependences. One Philox 4x32-10 block
   of a path gives two normal numbers, those of steps 2n and 2n + 1, from 52 random bits for the
   radius and 53 for the angle, or the three-point variables of eight steps. Elementary functions
   are polynomials fitted to a few parts in 1e16 on their intervals.

   Every kernel: run_NAME(paths, steps, saves, seed, par, state, sums, threads)
     paths   a multiple of BLOCK
     steps   a multiple of saves times NAME's steps per Philox block (2; 8 for Kubo)
     par     step size h, then what the kernel needs beside
     state   components x paths, read and overwritten: q, p, or x, y, px, py
     sums    saves x 2, the sums of H and of H^2 over the paths, to be zero on entry */

#include <math.h>
#include <omp.h>
#include <stdint.h>
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
#ifndef VECTORS
#define VECTORS 8
#endif
#define BLOCK (LANES * VECTORS)

typedef double real __attribute__((vector_size(8 * LANES)));
typedef uint64_t word __attribute__((vector_size(8 * LANES)));
typedef int64_t whole __attribute__((vector_size(8 * LANES)));

#define FUN static inline __attribute__((always_inline))
#define PI 3.14159265358979323846

FUN real same(double x) { return x - (real){0}; }

/* Explicit, because the compiler's own contraction repeats products in every sum they enter. */
FUN real fma3(real a, real b, real c) {
#ifdef __AVX512F__
  return (real)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
  return (real)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
  return a * b + c;
#endif
}

/* Keep -ffast-math from simplifying (x + c) - c. */
FUN real opaque(real x) {
#ifdef __AVX512F__
  __asm__("" : "+v"(x));
#elif defined(__AVX2__)
  __asm__("" : "+x"(x));
#else
  for (int i = 0; i < LANES; i++) { volatile double y = x[i]; x[i] = y; }
#endif
  return x;
}

FUN real root(real x) {
#ifdef __AVX512F__
  return (real)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__)
  return (real)_mm256_sqrt_pd((__m256d)x);
#else
  for (int i = 0; i < LANES; i++) x[i] = sqrt(x[i]);
  return x;
#endif
}

FUN real magnitude(real x) { return (real)((word)x & 0x7fffffffffffffffULL); }

/* ---- random words ------------------------------------------------------------------------- */

/* The product of the low halves of every lane; what stands in the high halves does not matter. */
FUN word times(word a, uint32_t b) {
#ifdef __AVX512F__
  return (word)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
  return (word)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#else
  return (a & 0xffffffffULL) * (uint64_t)b;
#endif
}

#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u
#define W1 0xBB67AE85u

typedef struct { uint32_t k0[10], k1[10]; } Keys;

FUN Keys keys_of(uint64_t seed) {
  Keys k;
  for (int i = 0; i < 10; i++) {
    k.k0[i] = (uint32_t)seed + i * W0;
    k.k1[i] = (uint32_t)(seed >> 32) + i * W1;
  }
  return k;
}

/* What of the first two rounds depends on the path alone; computed once per path. */
typedef struct { word a, b, c; } Counter;

FUN Counter counter_of(word path, Keys k) {
  word first = times(path, M0);
  word second = times((first >> 32) ^ (uint64_t)k.k1[0], M1);
  return (Counter){(second >> 32) ^ (uint64_t)k.k0[1], second, first ^ (uint64_t)k.k1[1]};
}

/* What of the first two rounds depends on the block number alone; computed once for all paths. */
typedef struct { uint64_t a, b, c; } Moment;

FUN Moment moment_of(uint32_t number, Keys k) {
  uint64_t first = (uint64_t)M1 * number;
  uint64_t second = (uint64_t)M0 * (uint32_t)((first >> 32) ^ k.k0[0]);
  return (Moment){first & 0xffffffffu, second >> 32, second & 0xffffffffu};
}

typedef struct { word w0, w1, w2, w3; } Words; /* the low halves count */

FUN Words philox(Counter path, Moment now, const Keys *k) {
  word c0 = path.a ^ now.a, c1 = path.b, c2 = path.c ^ now.b, c3 = now.c - (word){0};
#pragma GCC unroll 8
  for (int i = 2; i < 10; i++) {
    word p0 = times(c0, M0), p1 = times(c2, M1);
    c0 = (p1 >> 32) ^ c1 ^ (uint64_t)k->k0[i];
    c2 = (p0 >> 32) ^ c3 ^ (uint64_t)k->k1[i];
    c1 = p1;
    c3 = p0;
  }
  return (Words){c0, c1, c2, c3};
}

/* ---- elementary functions ----------------------------------------------------------------- */

/* Uniform on [1, 2): 32 bits of the first word and the 20 high bits of the second. */
FUN real unit(word high, word low) {
  word bits = (high << 32) | (low & 0xffffffffULL);
  return (real)((bits >> 12) | 0x3ff0000000000000ULL);
}

/* -2 ln u for 0 < u: u = 2^e m, 1/sqrt2 <= m < sqrt2, ln m = 2 artanh f, f = (m - 1)/(m + 1). */
FUN real minus_two_log(real u) {
  const int64_t root_half = 0x3fe6a09e667f3bcdLL;
  whole e = ((whole)u - root_half) >> 52;
  real m = (real)((whole)u - (e << 52));
  real f = (m - 1) / (m + 1), z = f * f;
  real s = same(-4 * 0.084188299853402441463);
  s = fma3(s, z, same(-4 * 0.090609672156076072071));
  s = fma3(s, z, same(-4 * 0.11111717273758953332));
  s = fma3(s, z, same(-4 * 0.1428570801055383579));
  s = fma3(s, z, same(-4 * 0.20000000030870807598));
  s = fma3(s, z, same(-4 * 0.33333333333276459001));
  s = fma3(s, z, same(-4 * 1.0000000000000001709));
  return fma3(__builtin_convertvector(e, real), same(-2 * 0.69314718055994530942), s * f);
}

/* sin pi y and cos pi y, |y| <= 1/4. */
FUN void short_sine(real y, real *sine, real *cosine) {
  real z = y * y, s = same(0.0004615318553835809959), c = same(0.0019068093183945777769);
  s = fma3(s, z, same(-0.0073700215869077702698));
  s = fma3(s, z, same(0.082145869180001746186));
  s = fma3(s, z, same(-0.59926452893964492693));
  s = fma3(s, z, same(2.5501640398733761003));
  s = fma3(s, z, same(-5.1677127800499545258));
  s = fma3(s, z, same(3.1415926535897932286));
  c = fma3(c, z, same(-0.025804938510627626365));
  c = fma3(c, z, same(0.2353305472106651947));
  c = fma3(c, z, same(-1.3352627670365804126));
  c = fma3(c, z, same(4.0587121263978357024));
  c = fma3(c, z, same(-4.9348022005446053642));
  c = fma3(c, z, same(0.99999999999999995284));
  *sine = s * y;
  *cosine = c;
}

#define TO_INTEGER 0x1.8p52 /* added to x, leaves the nearest integer in the low bits */

/* sin 2 pi x and cos 2 pi x: half turns change both signs, the rest is a doubled angle. */
FUN void sine_of_turns(real x, real *sine, real *cosine) {
  real shifted = opaque(fma3(x, same(2.0), same(TO_INTEGER)));
  real halves = opaque(shifted - TO_INTEGER), s, c;
  word sign = (word)shifted << 63;
  short_sine(fma3(halves, same(-0.5), x), &s, &c);
  *sine = (real)((word)(2 * s * c) ^ sign);
  *cosine = (real)((word)fma3(-2 * s, s, same(1.0)) ^ sign);
}

/* cos 2 pi x alone: with the distance r from the nearest whole turn it is -sin 2 pi (r - 1/4). */
FUN real cosine_of_turns(real x) {
  real nearest = opaque(opaque(x + TO_INTEGER) - TO_INTEGER);
  real y = magnitude(x - nearest) - 0.25, z = y * y;
  real s = same(0.69250670107207173421);
  s = fma3(s, z, same(-3.817365633469135203));
  s = fma3(s, z, same(15.094506140734291304));
  s = fma3(s, z, same(-42.058689953950938581));
  s = fma3(s, z, same(76.70585968962867265));
  s = fma3(s, z, same(-81.60524927557976415));
  s = fma3(s, z, same(41.341702240398286582));
  s = fma3(s, z, same(-6.2831853071795857574));
  return s * y;
}

/* Sine and cosine of an angle turned by d, to 1e-15 for |d| < 0.03 or, with one more term of each
   series, for |d| < 0.07. */
FUN void turn(real d, int wide, real *sine, real *cosine) {
  real z = d * d, s = *sine, c = *cosine, odd = same(1.0 / 120), even = same(-1.0 / 720);
  if (wide) odd = fma3(z, same(-1.0 / 5040), odd), even = fma3(z, same(1.0 / 40320), even);
  odd = fma3(odd, z, same(-1.0 / 6)) * z;
  odd = fma3(odd, d, d);
  even = fma3(even, z, same(1.0 / 24));
  even = fma3(even, z, same(-0.5)) * z;
  *sine = fma3(c, odd, fma3(s, even, s));
  *cosine = fma3(-s, odd, fma3(c, even, c));
}

/* Two independent N(0, 1) numbers by Box-Muller: an angle of half a turn, and a random side. */
FUN void normal_pair(Words w, real *xi) {
  real radius = root(minus_two_log(2 - unit(w.w0, w.w1)));
  real s, c;
  short_sine(fma3(unit(w.w2, w.w3), same(0.5), same(-0.75)), &s, &c);
  word side = w.w3 << 63;
  xi[0] = (real)((word)(radius * fma3(-2 * s, s, same(1.0))) ^ side);
  xi[1] = radius * (2 * s * c);
}

/* Eight throws of a die, 0 to 5, two by each word: what the first throw leaves of a word has the
   law of a word to 1e-9. */
FUN void die_throws(Words w, real *xi) {
  word words[4] = {w.w0, w.w1, w.w2, w.w3};
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    words[i / 2] = times(words[i / 2], 6);
    xi[i] = (real)(words[i / 2] >> 32);
  }
}

/* ---- van der Pol, midpoint ---------------------------------------------------------------- */

#define NU_VDP 0.001
#define SIGMA_VDP 0.05

typedef struct { double h, a, noise, linear, square, mixed, cube; } vdp_const;

/* Q = q + aP makes the stage equation a cubic in P, c1 P + c2 P^2 + c3 P^3 = p - aq + sigma dW/2
   with c1 = 1 + a^2 - a nu (1 - q^2), c2 = 2 a^2 nu q, c3 = a^3 nu. From the solution
   of the linear part two Newton steps reach rounding at h = 0.2; the terms beyond it are 1e-4, so
   that one division by c1 serves both. */
FUN vdp_const vdp_setup(const double *par) {
  double h = par[0], a = h / 2;
  return (vdp_const){h, a, sqrt(h) * SIGMA_VDP / 2, 1 + a * a - a * NU_VDP, a * NU_VDP,
                     2 * a * a * NU_VDP, a * a * a * NU_VDP};
}

FUN void vdp_enter(real *y, const vdp_const *k) {}
FUN void vdp_leave(real *y, const vdp_const *k) {}
FUN real vdp_energy(const real *y, const vdp_const *k) { return (y[0] * y[0] + y[1] * y[1]) / 2; }

FUN void vdp_guess(real *y, real xi, real *t, const vdp_const *k) {}
FUN void vdp_solve(real *y, real *t, const vdp_const *k) {}

FUN void vdp_step(real *y, real xi, real *t, const vdp_const *k) {
  real q = y[0], p = y[1], right = fma3(q, same(-k->a), fma3(xi, same(k->noise), p));
  real inverse = 1 / fma3(q * k->square, q, same(k->linear));
  real start = right * inverse, quadratic = q * k->mixed * inverse, cubic = inverse * k->cube;
  real bend = cubic * start, rise = quadratic + bend;
  real slope = fma3(start, fma3(rise, same(-2.0), -bend), same(1.0));
  real P = fma3(-(start * start) * rise, slope, start);
  real miss = fma3(fma3(cubic, P, quadratic) * P, P, P - start);
  P = fma3(-miss, slope, P);
  y[0] = fma3(P, same(k->h), q);
  y[1] = 2 * P - p;
}

/* ---- Lenard-Bernstein; the position is kept in periods of the potential, x = 2q ------------- */

#define NU_LB 0.01
#define MU_LB 1.0
#define D_LB 1.41421356237309504880
#define E0_LB 3.0

FUN real lb_energy(real x, real p) {
  real s, c;
  sine_of_turns(x, &s, &c);
  return p * p / 2 + s * (E0_LB / (4 * PI));
}

/* Stoermer-Verlet: friction is linear in P, so the step is explicit. y[2] carries the field of the
   new position over to the next step. */
typedef struct { double drift, noise, field, shrink, keep; } verlet_const;

FUN verlet_const verlet_setup(const double *par) {
  double h = par[0], friction = h / 2 * NU_LB * MU_LB;
  return (verlet_const){2 * h, sqrt(h * NU_LB) * D_LB / 2, h / 2 * E0_LB, 1 / (1 + friction),
                        1 - friction};
}

FUN void verlet_enter(real *y, const verlet_const *k) {
  y[0] *= 2;
  y[2] = cosine_of_turns(y[0]) * k->field;
}
FUN void verlet_leave(real *y, const verlet_const *k) { y[0] /= 2; }
FUN real verlet_energy(const real *y, const verlet_const *k) { return lb_energy(y[0], y[1]); }

FUN void verlet_guess(real *y, real xi, real *t, const verlet_const *k) {}
FUN void verlet_solve(real *y, real *t, const verlet_const *k) {}

FUN void verlet_step(real *y, real xi, real *t, const verlet_const *k) {
  real kick = xi * k->noise, P = (y[1] + kick - y[2]) * k->shrink;
  y[0] = fma3(P, same(k->drift), y[0]);
  y[2] = cosine_of_turns(y[0]) * k->field;
  y[1] = fma3(P, same(k->keep), kick - y[2]);
}

/* DIRK(1/2): two midpoint steps of h/2 with dW/2 each. With a = h/4, b = a/(1 + a nu mu) and the
   explicit guess Q0 = q + b (p + noise), the angle eta = 4 pi (Q - Q0) solves
   eta = -kappa cos(4 pi Q0 + eta), kappa = 4 pi a b E0 (0.053 at h = 0.15). Two Newton steps with
   second-order correction reach rounding; the second turns the first one's sine and cosine. */
typedef struct { double noise, guess, kappa, scale, angle, drift; } dirk_const;

FUN dirk_const dirk_setup(const double *par) {
  double h = par[0], a = h / 4, b = a / (1 + a * NU_LB * MU_LB);
  return (dirk_const){sqrt(h * NU_LB) * D_LB / 4, 2 * b, 4 * PI * a * b * E0_LB, b / a,
                      1 / (4 * PI * a), 4 * a};
}

FUN void dirk_enter(real *y, const dirk_const *k) { y[0] *= 2; }
FUN void dirk_leave(real *y, const dirk_const *k) { y[0] /= 2; }
FUN real dirk_energy(const real *y, const dirk_const *k) { return lb_energy(y[0], y[1]); }

FUN void dirk_guess(real *y, real xi, real *t, const dirk_const *k) {
  t[0] = fma3(xi, same(k->noise), y[1]);
  sine_of_turns(fma3(t[0], same(k->guess), y[0]), &t[1], &t[2]);
}

FUN void dirk_solve(real *y, real *t, const dirk_const *k) {}

FUN void dirk_step(real *y, real xi, real *t, const dirk_const *k) {
  real s = t[1], c = t[2];
  real d = -(k->kappa * c) / fma3(s, same(-k->kappa), same(1.0));
  real eta = fma3(d * -0.5, d * d, d);
  turn(eta, 1, &s, &c);
  real curve = k->kappa * c, inverse = 1 / fma3(s, same(-k->kappa), same(1.0));
  d = -(eta + curve) * inverse;
  eta += fma3(curve * inverse * 0.5, d * d, d);
  real P = fma3(eta, same(k->angle), t[0] * k->scale);
  y[0] = fma3(P, same(k->drift), y[0]);
  y[1] = 2 * P - y[1];
}

/* ---- damped Kubo, SRKw2 ------------------------------------------------------------------- */

/* Drift and noise are both multiples of A = [0 1; -1 -nu], so a step is y' = alpha y + beta A y,
   and the three-point variable leaves three pairs (alpha, beta), for +, - and 0: par[1..6]. It is +
   for the face 0 of a die, - for 1, else 0. */
#define NU_KUBO 0.001

typedef struct { double alpha[8], beta[8], gamma[8]; } kubo_const;

FUN kubo_const kubo_setup(const double *par) {
  kubo_const k;
  for (int face = 0; face < 8; face++) {
    int kind = face < 2 ? face : 2;
    k.alpha[face] = par[1 + 2 * kind];
    k.beta[face] = par[2 + 2 * kind];
    k.gamma[face] = k.alpha[face] - NU_KUBO * k.beta[face];
  }
  return k;
}

FUN void kubo_enter(real *y, const kubo_const *k) {}
FUN void kubo_leave(real *y, const kubo_const *k) {}
FUN real kubo_energy(const real *y, const kubo_const *k) {
  return (y[0] * y[0] + y[1] * y[1]) / 2;
}

FUN real entry(const double *table, word face) {
#ifdef __AVX512F__
  return (real)_mm512_permutexvar_pd((__m512i)face, _mm512_loadu_pd(table));
#else
  real out;
  for (int i = 0; i < LANES; i++) out[i] = table[face[i]];
  return out;
#endif
}

FUN void kubo_guess(real *y, real xi, real *t, const kubo_const *k) {}
FUN void kubo_solve(real *y, real *t, const kubo_const *k) {}

FUN void kubo_step(real *y, real xi, real *t, const kubo_const *k) {
  word face = (word)xi;
  real alpha = entry(k->alpha, face), beta = entry(k->beta, face), gamma = entry(k->gamma, face);
  real q = y[0], p = y[1];
  y[0] = fma3(alpha, q, beta * p);
  y[1] = fma3(gamma, p, -(beta * q));
}

/* ---- Lorentz, midpoint -------------------------------------------------------------------- */

/* In u = 2(x + y), v = 2(x - y), periods of the potential, and pu = px + py, pv = px - py the
   energy (pu^2 + pv^2)/4 + E0/8pi (cos 2 pi v - cos 2 pi u) is a sum, and the noise turns (pu, pv).
   With a = h/2, s = sqrt(2 nu) dW/2 and g = 1/(1 + s^2) the stage momentum is
   R (pu - a E0 sin U, pv + a E0 sin V), R = g [1 -s; s 1], which leaves two equations for the
   angles eta = 2 pi (position - explicit guess):

       eta_u = -k (sin U + s sin V),  eta_v = -k (s sin U - sin V),  k = 4 pi a^2 E0 g  (0.024)

   Three Newton steps reach rounding at h = 0.05: the second keeps the matrix of the first and takes
   its sines to second order only, the third turns sines and cosines to the new point. */
#define NU_LORENTZ 0.005
#define E0_LORENTZ 3.0

typedef struct { double noise, guess, kappa, angle, drift; } lorentz_const;

FUN lorentz_const lorentz_setup(const double *par) {
  double h = par[0], a = h / 2;
  return (lorentz_const){sqrt(2 * NU_LORENTZ * h) / 2, 2 * a, 4 * PI * a * a * E0_LORENTZ,
                         1 / (4 * PI * a), 4 * a};
}

FUN void lorentz_enter(real *y, const lorentz_const *k) {
  real u = 2 * (y[0] + y[1]), v = 2 * (y[0] - y[1]), pu = y[2] + y[3], pv = y[2] - y[3];
  y[0] = u, y[1] = v, y[2] = pu, y[3] = pv;
}
FUN void lorentz_leave(real *y, const lorentz_const *k) {
  real x = (y[0] + y[1]) / 4, z = (y[0] - y[1]) / 4, px = (y[2] + y[3]) / 2;
  y[3] = (y[2] - y[3]) / 2, y[0] = x, y[1] = z, y[2] = px;
}
FUN real lorentz_energy(const real *y, const lorentz_const *k) {
  return (y[2] * y[2] + y[3] * y[3]) / 4 +
         (cosine_of_turns(y[1]) - cosine_of_turns(y[0])) * (E0_LORENTZ / (8 * PI));
}

typedef struct { real s, kappa, pu, pv, su, cu, sv, cv, eu, ev; } Stage;

FUN void lorentz_guess(real *y, real xi, real *t, const lorentz_const *k) {
  Stage *z = (Stage *)t;
  real s = xi * k->noise, g = 1 / fma3(s, s, same(1.0));
  z->s = s, z->kappa = g * k->kappa;
  z->pu = fma3(-s, y[3], y[2]) * g, z->pv = fma3(s, y[2], y[3]) * g;
  sine_of_turns(fma3(z->pu, same(k->guess), y[0]), &z->su, &z->cu);
  sine_of_turns(fma3(z->pv, same(k->guess), y[1]), &z->sv, &z->cv);
}

FUN void lorentz_solve(real *y, real *t, const lorentz_const *k) {
  Stage *z = (Stage *)t;
  real s = z->s, kappa = z->kappa, su = z->su, sv = z->sv, cross = kappa * s;
  real uu = fma3(kappa, z->cu, same(1.0)), vv = fma3(-kappa, z->cv, same(1.0));
  real uv = cross * z->cv, vu = cross * z->cu, share = kappa / fma3(uu, vv, -(uv * vu));
  real fu = fma3(s, sv, su), fv = fma3(s, su, -sv);
  real du = fma3(uv, fv, -(vv * fu)) * share, dv = fma3(vu, fu, -(uu * fv)) * share;
  su = fma3(su * -0.5, du * du, su), sv = fma3(sv * -0.5, dv * dv, sv);
  fu = fma3(s, sv, su), fv = fma3(s, su, -sv);
  z->eu = fma3(uv, fv, -(vv * fu)) * share, z->ev = fma3(vu, fu, -(uu * fv)) * share;
}

FUN void lorentz_step(real *y, real xi, real *t, const lorentz_const *k) {
  Stage *z = (Stage *)t;
  real s = z->s, kappa = z->kappa, su = z->su, cu = z->cu, sv = z->sv, cv = z->cv;
  real eu = z->eu, ev = z->ev, cross = kappa * s;
  turn(eu, 0, &su, &cu);
  turn(ev, 0, &sv, &cv);
  real uu = fma3(kappa, cu, same(1.0)), vv = fma3(-kappa, cv, same(1.0));
  real uv = cross * cv, vu = cross * cu, share = 1 / fma3(uu, vv, -(uv * vu));
  real fu = fma3(kappa, fma3(s, sv, su), eu), fv = fma3(kappa, fma3(s, su, -sv), ev);
  eu = fma3(fma3(uv, fv, -(vv * fu)), share, eu), ev = fma3(fma3(vu, fu, -(uu * fv)), share, ev);
  real pu = fma3(eu, same(k->angle), z->pu), pv = fma3(ev, same(k->angle), z->pv);
  y[0] = fma3(pu, same(k->drift), y[0]), y[1] = fma3(pv, same(k->drift), y[1]);
  y[2] = fma3(pu, same(2.0), -y[2]), y[3] = fma3(pv, same(2.0), -y[3]);
}

/* ---- the loop over blocks, steps and vectors ------------------------------------------------ */

FUN double total(real x) {
  double sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
}

/* GIVEN components come from the caller, CARRIED are kept from step to step, SCRATCH within a step.
   DRAW makes the noise of STRIDE steps; a step has PARTS equal parts; INNER steps of a vector
   follow each other at once, where a step is too short to be a pass. */
#define DEFINE_RUN(NAME, GIVEN, CARRIED, SCRATCH, DRAW, STRIDE, PARTS, INNER)                      \
  void run_##NAME(long paths, long steps, long saves, uint64_t seed, const double *par,            \
                  double *state, double *sums, int threads) {                                      \
    const NAME##_const constants = NAME##_setup(par);                                              \
    const Keys keys = keys_of(seed);                                                               \
    const long rounds = steps / saves / STRIDE;                                                    \
    _Pragma("omp parallel for num_threads(threads) schedule(dynamic)")                             \
    for (long first = 0; first < paths; first += BLOCK) {                                          \
      real y[VECTORS][CARRIED];                                                                    \
      Counter counter[VECTORS];                                                                    \
      Words words[VECTORS];                                                                        \
      real xi[VECTORS][STRIDE], t[VECTORS][SCRATCH];                                               \
      double sum[saves][2];                                                                        \
      for (int v = 0; v < VECTORS; v++) {                                                          \
        word path;                                                                                 \
        for (int i = 0; i < LANES; i++) {                                                          \
          long at = first + v * LANES + i;                                                         \
          path[i] = at;                                                                            \
          for (int j = 0; j < GIVEN; j++) y[v][j][i] = state[j * paths + at];                      \
        }                                                                                          \
        counter[v] = counter_of(path, keys);                                                       \
        NAME##_enter(y[v], &constants);                                                            \
      }                                                                                            \
      for (long save = 0; save < saves; save++) {                                                  \
        for (long round = 0; round < rounds; round++) {                                            \
          Moment now = moment_of(save * rounds + round, keys);                                     \
          for (int v = 0; v < VECTORS; v++) words[v] = philox(counter[v], now, &keys);             \
          for (int v = 0; v < VECTORS; v++) DRAW(words[v], xi[v]);                                 \
          for (int i = 0; i < STRIDE * PARTS; i += INNER) {                                        \
            for (int v = 0; v < VECTORS; v++)                                                      \
              NAME##_guess(y[v], xi[v][i / PARTS], t[v], &constants);                              \
            for (int v = 0; v < VECTORS; v++) NAME##_solve(y[v], t[v], &constants);                \
            for (int v = 0; v < VECTORS; v++)                                                      \
              _Pragma("GCC unroll 8") for (int j = i; j < i + INNER; j++)                          \
                NAME##_step(y[v], xi[v][j / PARTS], t[v], &constants);                             \
          }                                                                                        \
        }                                                                                          \
        real once = same(0.0), twice = same(0.0);                                                  \
        for (int v = 0; v < VECTORS; v++) {                                                        \
          real H = NAME##_energy(y[v], &constants);                                                \
          once += H;                                                                               \
          twice += H * H;                                                                          \
        }                                                                                          \
        sum[save][0] = total(once), sum[save][1] = total(twice);                                   \
      }                                                                                            \
      for (int v = 0; v < VECTORS; v++) {                                                          \
        NAME##_leave(y[v], &constants);                                                            \
        for (int i = 0; i < LANES; i++)                                                            \
          for (int j = 0; j < GIVEN; j++) state[j * paths + first + v * LANES + i] = y[v][j][i];   \
      }                                                                                            \
      _Pragma("omp critical") for (long save = 0; save < saves; save++) {                          \
        sums[2 * save] += sum[save][0];                                                            \
        sums[2 * save + 1] += sum[save][1];                                                        \
      }                                                                                            \
    }                                                                                              \
  }

DEFINE_RUN(vdp, 2, 2, 1, normal_pair, 2, 1, 1)
DEFINE_RUN(verlet, 2, 3, 1, normal_pair, 2, 1, 1)
DEFINE_RUN(dirk, 2, 2, 3, normal_pair, 2, 2, 1)
DEFINE_RUN(kubo, 2, 2, 1, die_throws, 8, 1, 8)
DEFINE_RUN(lorentz, 4, 4, 10, normal_pair, 2, 1, 1)

/* The noise itself, to be looked at: out is paths x steps; normal numbers, or -1, 0, 1. */
void noise(long paths, long steps, uint64_t seed, int three_point, double *out) {
  const Keys keys = keys_of(seed);
  const int stride = three_point ? 8 : 2;
  for (long first = 0; first < paths; first += LANES) {
    word path;
    for (int i = 0; i < LANES; i++) path[i] = first + i;
    Counter counter = counter_of(path, keys);
    for (long n = 0; n < steps / stride; n++) {
      Words w = philox(counter, moment_of(n, keys), &keys);
      real xi[8];
      if (three_point)
        die_throws(w, xi);
      else
        normal_pair(w, xi);
      for (int j = 0; j < LANES; j++)
        for (int i = 0; i < stride; i++) {
          word face = (word)xi[i];
          double three = face[j] == 0 ? 1 : face[j] == 1 ? -1 : 0;
          out[(first + j) * steps + n * stride + i] = three_point ? three : xi[i][j];
        }
    }
  }
}

long block(void) { return BLOCK; }
