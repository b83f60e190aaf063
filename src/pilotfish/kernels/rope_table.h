// Cosines and sines of rope angles, from our own float64 arithmetic: libm differs between machines.
#pragma once
#include <cstdint>
#include <vector>

#include "math64.h"

namespace pilotfish {

// sin and cos of x, 0 <= x < 2^20, within 1e-15: Cody and Waite's reduction by pi/2, then Taylor series.
static inline void sincos64(double x, double* sine, double* cosine) {
  const double n = (x * 0.63661977236758134308 + 6755399441055744.0) - 6755399441055744.0;
  double r = x - n * 1.57079632673412561417e+00;  // pi/2 in three parts; n times the first two is exact
  r -= n * 6.07710050630396597660e-11;
  r -= n * 2.02226624879595063154e-21;
  const double q = r * r;
  double s = -1.0 / 1307674368000.0;
  s = s * q + 1.0 / 6227020800.0;
  s = s * q - 1.0 / 39916800.0;
  s = s * q + 1.0 / 362880.0;
  s = s * q - 1.0 / 5040.0;
  s = s * q + 1.0 / 120.0;
  s = s * q - 1.0 / 6.0;
  s = s * q * r + r;
  double c = 1.0 / 20922789888000.0;
  c = c * q - 1.0 / 87178291200.0;
  c = c * q + 1.0 / 479001600.0;
  c = c * q - 1.0 / 3628800.0;
  c = c * q + 1.0 / 40320.0;
  c = c * q - 1.0 / 720.0;
  c = c * q + 1.0 / 24.0;
  c = c * q - 1.0 / 2.0;
  c = c * q + 1.0;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      *sine = s, *cosine = c;
      return;
    case 1:
      *sine = c, *cosine = -s;
      return;
    case 2:
      *sine = -s, *cosine = -c;
      return;
    default:
      *sine = -c, *cosine = s;
  }
}

// Angle of pair i at position p is p * base^(-2 i / dimensions) (RoFormer, Su et al. 2021), divided by the
// pair's factor; cosines and sines are multiplied by `magnitude`.
struct RopeTable {
  RopeTable(double base, int dimensions, const std::vector<float>& factors, double magnitude)
      : magnitude(magnitude) {
    for (int i = 0; i < dimensions / 2; i++)
      frequency.push_back(exp64(-2.0 * i / dimensions * log64(base)) / factors[i]);
  }
  void fill(int32_t position, float* cosine, float* sine) const {
    for (size_t i = 0; i < frequency.size(); i++) {
      double s, c;
      sincos64(position * frequency[i], &s, &c);
      cosine[i] = static_cast<float>(c * magnitude);
      sine[i] = static_cast<float>(s * magnitude);
    }
  }
  std::vector<double> frequency;
  double magnitude;
};

}  // namespace pilotfish
