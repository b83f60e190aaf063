// exp and log in float64 (and a coarser exp in float32), built from + - * / and bit operations only, so that
// every machine and NumPy (sampling.py has the same operations in the same order) give the same bits. Needs
// -ffp-contract=off.
#pragma once

#include <cstdint>
#include <cstring>

namespace pilotfish {
namespace {

inline double from_bits(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint64_t to_bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2High = 6.93147180369123816490e-01;  // ln 2, 21 zero bits behind: n times it is exact
constexpr double kLn2Low = 1.90821492927058770002e-10;   // ln 2 - kLn2High
constexpr double kRound = 6755399441055744.0;            // 1.5 * 2^52: adding it rounds to an integer
constexpr double kExpFloor = -708.0;                     // exp64 of less is exp64 of this: nothing subnormal

// exp64(x) is exp(max(x, -708)) for x <= 709, within 1 ulp.
// x = n ln 2 + r with |r| <= ln(2)/2; 1 + r, and Taylor's terms r^2 to r^13 (the rest is below 2^-57), even
// and odd ones apart.
inline double clamp64(double x) { return x > kExpFloor ? x : kExpFloor; }

// For -708 <= x <= 709. Loops clamp first, in a loop of their own: GCC makes a branch of the two together.
inline double exp64_clamped(double x) {
  const double shifted = x * kLog2E + kRound;
  const double n = shifted - kRound;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  const double q = r * r;
  double even = 1.0 / 479001600;
  even = even * q + 1.0 / 3628800;
  even = even * q + 1.0 / 40320;
  even = even * q + 1.0 / 720;
  even = even * q + 1.0 / 24;
  even = even * q + 1.0 / 2;
  double odd = 1.0 / 6227020800;
  odd = odd * q + 1.0 / 39916800;
  odd = odd * q + 1.0 / 362880;
  odd = odd * q + 1.0 / 5040;
  odd = odd * q + 1.0 / 120;
  odd = odd * q + 1.0 / 6;
  const double y = 1.0 + (r + q * (even + r * odd));
  // The low bits of `shifted` are n: moved into the exponent they multiply by 2^n.
  return from_bits(to_bits(y) + (to_bits(shifted) << 52));
}

inline double exp64(double x) { return exp64_clamped(clamp64(x)); }

// exp32(x) is exp(max(x, -87)) for x <= 0 in float32, within 3e-7; likewise, to r^6.
inline float clamp32(float x) { return x > -87.0F ? x : -87.0F; }

inline float exp32_clamped(float x) {
  const float shifted = x * 1.44269504F + 12582912.0F;
  const float n = shifted - 12582912.0F;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float y = 1.0F / 720;
  y = y * r + 1.0F / 120;
  y = y * r + 1.0F / 24;
  y = y * r + 1.0F / 6;
  y = y * r + 0.5F;
  y = y * r + 1.0F;
  y = y * r + 1.0F;
  uint32_t bits;
  uint32_t exponent;
  std::memcpy(&bits, &y, sizeof bits);
  std::memcpy(&exponent, &shifted, sizeof exponent);
  bits += exponent << 23;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}

// log(x) for normal, positive, finite x. Within 1 ulp.
// x = 2^k (1 + d) with 1 + d in [sqrt(1/2), sqrt(2)); with s = d / (2 + d) the logarithm of 1 + d is
// 2 atanh(s) = d - s (d - R), R = 2 (s^2/3 + s^4/5 + ...) to s^22 (the rest is below 2^-60).
inline double log64(double x) {
  constexpr uint64_t root_half = 0x3fe6a09e667f3bcdU;
  constexpr uint64_t one = 0x3ff0000000000000U;
  const uint64_t moved = to_bits(x) - root_half + one;
  const double k = static_cast<double>(static_cast<int64_t>(moved >> 52) - 1023);
  const double d = from_bits((moved & 0x000fffffffffffffU) + root_half) - 1.0;
  const double s = d / (2.0 + d);
  const double q = s * s;
  double sum = 2.0 / 23;
  sum = sum * q + 2.0 / 21;
  sum = sum * q + 2.0 / 19;
  sum = sum * q + 2.0 / 17;
  sum = sum * q + 2.0 / 15;
  sum = sum * q + 2.0 / 13;
  sum = sum * q + 2.0 / 11;
  sum = sum * q + 2.0 / 9;
  sum = sum * q + 2.0 / 7;
  sum = sum * q + 2.0 / 5;
  sum = sum * q + 2.0 / 3;
  sum = sum * q;
  return k * kLn2High + (d - (s * (d - sum) - k * kLn2Low));
}

}  // namespace
}  // namespace pilotfish
