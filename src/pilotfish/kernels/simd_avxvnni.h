// AVX2 with the VEX-coded VNNI instructions: as AVX2, but for the integer dot products.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace avx2 {
#include "simd_avx2.h"
}

namespace {

struct V : avx2::V {
  // Sum of x a over 16 columns.
  template <int Max>
  static I dot(const U* x, const Columns& a) {
    static_assert(Max <= 255);
    I total = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) total = _mm256_dpbusd_avx_epi32(total, x[j], a.four[j]);
    return total;
  }
  // Both halves' sum of (x - Offset) a; `sum` is that of the 32 activations.
  template <int Max, int Offset>
  static I join(I first, I second, int32_t sum) {
    const I total = _mm256_add_epi32(first, second);
    return Offset == 0 ? total : _mm256_sub_epi32(total, _mm256_set1_epi32(Offset * sum));
  }

  struct Scales {
    I first, second;
  };
  static Scales scales(const int8_t* first, const int8_t* second) {
    return {widened(first), widened(second)};
  }
  // Sum of x a over 16 columns times their scale.
  template <int Max>
  static I dot_scaled(const U* x, const Columns& a, I scale) {
    return _mm256_mullo_epi32(dot<Max>(x, a), scale);
  }
  // The halves' sums of activations times their scales.
  static F sums_scaled(const Scales& s, const int16_t s16[2]) { return to_float(offset(s, s16)); }
  // Both halves' sum of (x - Offset) a scale; |result| < 2^24, so it is exact as a float.
  template <int Offset>
  static I join_scaled(I first, I second, const Scales& s, const int16_t s16[2]) {
    static_assert((Offset & (Offset - 1)) == 0);
    const I total = _mm256_add_epi32(first, second);
    if constexpr (Offset == 0) return total;
    return _mm256_sub_epi32(total, _mm256_slli_epi32(offset(s, s16), __builtin_ctz(Offset)));
  }

 private:
  static I offset(const Scales& s, const int16_t s16[2]) {
    return _mm256_add_epi32(_mm256_mullo_epi32(s.first, _mm256_set1_epi32(s16[0])),
                            _mm256_mullo_epi32(s.second, _mm256_set1_epi32(s16[1])));
  }
  static I widened(const int8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
};

}  // namespace
