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
  static constexpr int kTogether = 1;  // tokens whose sums fit the registers
  static constexpr int kQueries = 2;   // most queries that share each read of a key
  static constexpr int kChains = 8;    // vectors of sums that fit the registers
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
  static F load_i8(const int8_t* p) {
    return F{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
             static_cast<float>(p[3])};
  }
  // Whole numbers in -127..127 as int8.
  static void store_codes(int8_t* p, F x) {
    for (int i = 0; i < 4; i++) p[i] = static_cast<int8_t>(x[i]);
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
  template <int S>  // bits of the 16-bit halves to the right, or to the left if negative
  static U shift(U x) {
    if constexpr (S > 0) return x >> S;
    if constexpr (S < 0) return x << -S;
    return x;
  }

  // Codes in 0..15 replaced by the table's bytes.
  static U lookup(const uint8_t table[16], U x) {
    uint8_t codes[16];
    std::memcpy(codes, &x, 16);
    for (uint8_t& c : codes) c = table[c];
    std::memcpy(&x, codes, 16);
    return x;
  }

  using Four = const int8_t*;  // four columns of a token
  static Four four(const int8_t* a) { return a; }
  static I none() { return I{}; }
  static void keep(I&) {}

  // `sum` and x a over eight columns.
  template <int Max>
  static I add_products(I sum, const U* x, const Four* a) {
    static_assert(Max <= 255);
    int32_t total[4] = {sum[0], sum[1], sum[2], sum[3]};
    for (int j = 0; j < 2; j++) {
      uint8_t codes[16];
      std::memcpy(codes, &x[j], 16);
      for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) total[r] += codes[4 * r + c] * a[j][c];
    }
    return I{total[0], total[1], total[2], total[3]};
  }
  // The sum of (x - Offset) a over 32 columns; `activations` is the sum of the a.
  template <int Max, int Offset>
  static I total(I sum, int32_t activations) {
    return sum - Offset * activations;
  }

  struct Scales {  // of the first and the second 16 columns
    I first, second;
  };
  static Scales scales(const int8_t* first, const int8_t* second) {
    return {I{first[0], first[1], first[2], first[3]}, I{second[0], second[1], second[2], second[3]}};
  }
  // `sum` and x a over eight columns times their scale.
  template <int Max>
  static I add_scaled(I sum, const U* x, const Four* a, I scale) {
    return sum + add_products<Max>(none(), x, a) * scale;
  }
  // The halves' sums of activations times their scales.
  static F sums_scaled(const Scales& s, const int16_t s16[2]) { return to_float(offset(s, s16)); }
  // The sum of (x - Offset) a scale over 32 columns; |result| < 2^24, so it is exact as a float.
  template <int Offset>
  static I total_scaled(I sum, const Scales& s, const int16_t s16[2]) {
    return sum - Offset * offset(s, s16);
  }

 private:
  static I offset(const Scales& s, const int16_t s16[2]) { return s16[0] * s.first + s16[1] * s.second; }
};

}  // namespace
