// AVX2 with the VEX-coded VNNI instructions: as AVX2, but for integer dot products without scales of their
// own.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace avx2 {
#include "simd_avx2.h"
}

namespace {

struct V : avx2::V {
  // `sum` and x a over eight columns.
  template <int Max>
  static I add_products(I sum, const U* x, const Four* a) {
    static_assert(Max <= 255);
    return _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(sum, x[0], a[0]), x[1], a[1]);
  }
  // The sum of (x - Offset) a over 32 columns; `activations` is the sum of the a.
  template <int Max, int Offset>
  static I total(I sum, int32_t activations) {
    return Offset == 0 ? sum : _mm256_sub_epi32(sum, _mm256_set1_epi32(Offset * activations));
  }
};

}  // namespace
