// 16 virtual lanes on whatever vectors the instruction set has: the same additions in the same order
// everywhere.
#pragma once
#include <initializer_list>

#include "kernels.h"

namespace {

constexpr int kParts = 16 / V::W;

struct Lanes {
  V::F v[kParts];

  static Lanes set(float x) {
    Lanes r;
    for (auto& f : r.v) f = V::set(x);
    return r;
  }
  static Lanes load(const float* p) {
    Lanes r;
    for (int i = 0; i < kParts; i++) r.v[i] = V::load(p + i * V::W);
    return r;
  }
  static Lanes load_half(const uint16_t* p) {
    Lanes r;
    for (int i = 0; i < kParts; i++) r.v[i] = V::load_half(p + i * V::W);
    return r;
  }
  void store(float* p) const {
    for (int i = 0; i < kParts; i++) V::store(p + i * V::W, v[i]);
  }
  void store_half(uint16_t* p) const {
    for (int i = 0; i < kParts; i++) V::store_half(p + i * V::W, v[i]);
  }
};

#define PILOTFISH_LANES(op, ...)                                \
  Lanes r;                                                      \
  for (int i = 0; i < kParts; i++) r.v[i] = V::op(__VA_ARGS__); \
  return r
inline Lanes add(const Lanes& a, const Lanes& b) { PILOTFISH_LANES(add, a.v[i], b.v[i]); }
inline Lanes sub(const Lanes& a, const Lanes& b) { PILOTFISH_LANES(sub, a.v[i], b.v[i]); }
inline Lanes mul(const Lanes& a, const Lanes& b) { PILOTFISH_LANES(mul, a.v[i], b.v[i]); }
inline Lanes div(const Lanes& a, const Lanes& b) { PILOTFISH_LANES(div, a.v[i], b.v[i]); }
inline Lanes max(const Lanes& a, const Lanes& b) { PILOTFISH_LANES(max, a.v[i], b.v[i]); }
inline Lanes min(const Lanes& a, const Lanes& b) { PILOTFISH_LANES(min, a.v[i], b.v[i]); }
inline Lanes abs(const Lanes& a) { PILOTFISH_LANES(abs, a.v[i]); }
inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  PILOTFISH_LANES(fma, a.v[i], b.v[i], c.v[i]);
}
inline Lanes fma(const Lanes& a, float b, const Lanes& c) {
  const V::F f = V::set(b);
  PILOTFISH_LANES(fma, a.v[i], f, c.v[i]);
}
inline Lanes exp2_whole(const Lanes& n) { PILOTFISH_LANES(exp2_whole, n.v[i]); }
#undef PILOTFISH_LANES

// One fixed tree: lane i meets i + 8, then i + 4, i + 2, i + 1.
template <class Meet, class MeetOne>
inline float folded(const Lanes& a, const Meet& meet, const MeetOne& meet_one) {
  V::F v[kParts];
  for (int i = 0; i < kParts; i++) v[i] = a.v[i];
  for (int parts = kParts / 2; parts > 0; parts /= 2)
    for (int i = 0; i < parts; i++) v[i] = meet(v[i], v[i + parts]);
  float x[V::W];
  V::store(x, v[0]);
  for (int step = V::W / 2; step > 0; step /= 2)
    for (int i = 0; i < step; i++) x[i] = meet_one(x[i], x[i + step]);
  return x[0];
}
inline float sum(const Lanes& a) {
  return folded(a, V::add, [](float x, float y) { return x + y; });
}
inline float largest(const Lanes& a) {
  return folded(a, V::max, [](float x, float y) { return x > y ? x : y; });
}

// Nearest whole number, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
inline Lanes nearest(const Lanes& x) {
  const Lanes magic = Lanes::set(12582912.0f);
  return sub(add(x, magic), magic);
}

// exp, relative error about 1e-7; the polynomial is Cephes' expf (Moshier). exp of NaN is NaN: max and min
// give their second argument if one is.
inline Lanes exp(const Lanes& unbounded) {
  const Lanes x = min(Lanes::set(88.0f), max(Lanes::set(-87.0f), unbounded));
  const Lanes n = nearest(mul(x, Lanes::set(1.44269504088896341f)));
  Lanes r = fma(n, -0.693359375f, x);
  r = fma(n, 2.12194440e-4f, r);
  Lanes p = Lanes::set(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = fma(p, r, Lanes::set(c));
  p = add(fma(p, mul(r, r), r), Lanes::set(1.0f));
  return mul(p, exp2_whole(n));
}

}  // namespace
