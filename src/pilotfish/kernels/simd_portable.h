// Plain C++ on 4-lane vectors of the compiler: the reference that every instruction set agrees with bit for
// bit.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace {

struct V {
  static constexpr int W = 4;
  static constexpr int kMaxTokens = 4;
  static constexpr int kQueries = 2;
  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using U = uint16_t __attribute__((vector_size(16)));

  static F zero() { return F{0, 0, 0, 0}; }
  static F set(float x) { return F{x, x, x, x}; }
  static F load(const float* p) {
    F x;
    std::memcpy(&x, p, 16);
    return x;
  }
  static void store(float* p, F x) { std::memcpy(p, &x, 16); }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) {
    F r;
    for (int i = 0; i < 4; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
  }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F abs(F a) {
    I u;
    std::memcpy(&u, &a, 16);
    u &= 0x7fffffff;
    std::memcpy(&a, &u, 16);
    return a;
  }
  static F to_float(I x) { return __builtin_convertvector(x, F); }
  static F load_half(const uint16_t* p) {
    F x;
    for (int i = 0; i < 4; i++) x[i] = pilotfish::half_to_float(p[i]);
    return x;
  }
  static F load_bf16(const uint16_t* p) {
    F x;
    for (int i = 0; i < 4; i++) x[i] = pilotfish::bf16_to_float(p[i]);
    return x;
  }
  static void store_half(uint16_t* p, F x) {
    for (int i = 0; i < 4; i++) p[i] = pilotfish::float_to_half(x[i]);
  }
  static F load_u8(const uint8_t* p) {
    return F{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
             static_cast<float>(p[3])};
  }
  static F exp2_whole(F n) {
    I biased = (__builtin_convertvector(n, I) + 127) << 23;
    F r;
    std::memcpy(&r, &biased, 16);
    return r;
  }

  static U bytes(const uint8_t* p) {
    U x;
    std::memcpy(&x, p, 16);
    return x;
  }
  template <int B>
  static U mask(U x) {
    return x & static_cast<uint16_t>(B * 257);
  }
  static U either(U a, U b) { return a | b; }
  template <int S>
  static U left(U x) {
    return x << S;
  }
  template <int S>
  static U right(U x) {
    return x >> S;
  }

  // sum of x a over `vectors` vectors of four columns
  static I raw_dot(const U* x, const int8_t* a, int vectors) {
    int32_t total[4] = {0, 0, 0, 0};
    for (int j = 0; j < vectors; j++) {
      uint8_t codes[16];
      std::memcpy(codes, &x[j], 16);
      for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) total[r] += codes[4 * r + c] * a[4 * j + c];
    }
    return I{total[0], total[1], total[2], total[3]};
  }
  template <int Max, int Offset>
  static I dot(const U x[8], const int8_t* a, int32_t sum) {
    static_assert(Max <= 255);
    return raw_dot(x, a, 8) - Offset * sum;
  }

  struct Scales {
    I first, second;
  };
  static Scales scales(const int8_t* first, const int8_t* second) {
    return {I{first[0], first[1], first[2], first[3]}, I{second[0], second[1], second[2], second[3]}};
  }
  static F dot_scaled(const U x[8], const int8_t* a, const int16_t s16[2], const Scales& s) {
    const I first = (raw_dot(x, a, 4) - 32 * s16[0]) * s.first;
    const I second = (raw_dot(x + 4, a + 16, 4) - 32 * s16[1]) * s.second;
    return to_float(first + second);
  }
};

}  // namespace
