// AVX-512 with VNNI: 16 rows at a time.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace {

struct V {
  static constexpr int W = 16;
  static constexpr int kMaxTokens = 16;
  static constexpr int kQueries = 8;  // most queries that share each read of a key
  static constexpr int kChains = 16;  // vectors of sums that fit the registers
  using F = __m512;
  using I = __m512i;
  using U = __m512i;

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
  }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static F load_half(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_bf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void store_half(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static F load_u8(const uint8_t* p) {
    return to_float(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F load_i8(const int8_t* p) {
    return to_float(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // Whole numbers in -127..127 as int8.
  static void store_codes(int8_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
  }
  static F exp2_whole(F n) {
    const I biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }

  static U bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  template <int B>
  static U mask(U x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(B)));
  }
  static U either(U a, U b) { return _mm512_or_si512(a, b); }
  template <int S>  // bits of the 16-bit halves to the right, or to the left if negative
  static U shift(U x) {
    if constexpr (S > 0) return _mm512_srli_epi16(x, S);
    if constexpr (S < 0) return _mm512_slli_epi16(x, -S);
    return x;
  }

  // Codes in 0..15 replaced by the table's bytes.
  static U lookup(const uint8_t table[16], U x) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), x);
  }

  static I broadcast4(const int8_t* a) {
    int32_t word;
    __builtin_memcpy(&word, a, 4);
    return _mm512_set1_epi32(word);
  }

  // sum of (x - Offset) a over 32 columns, exact; codes x lie in 0..Max
  template <int Max, int Offset>
  static I dot(const U x[8], const int8_t* a, int32_t sum) {
    static_assert(Max <= 255);
    I total = _mm512_set1_epi32(-Offset * sum);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) total = _mm512_dpbusd_epi32(total, x[j], broadcast4(a + 4 * j));
    return total;
  }

  struct Scales {
    F first, second;
  };
  static Scales scales(const int8_t* first, const int8_t* second) {
    return {load_i8(first), load_i8(second)};
  }
  // The halves' sums of activations times their scales; exact, as all of what follows.
  static F sums_scaled(const Scales& s, const int16_t s16[2]) {
    return fma(set(s16[1]), s.second, fma(set(s16[0]), s.first, zero()));
  }
  // All values stay below 2^24 (2 * 16 * 32 * 127 * 128), so the float arithmetic is exact; from zero, so
  // that no sum is -0, which whole numbers don't have.
  template <int Offset>
  static F dot_scaled(const U x[8], const int8_t* a, const int16_t s16[2], const Scales& s) {
    I first = _mm512_set1_epi32(-Offset * s16[0]), second = _mm512_set1_epi32(-Offset * s16[1]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      first = _mm512_dpbusd_epi32(first, x[j], broadcast4(a + 4 * j));
      second = _mm512_dpbusd_epi32(second, x[j + 4], broadcast4(a + 16 + 4 * j));
    }
    return fma(to_float(second), s.second, fma(to_float(first), s.first, zero()));
  }
};

}  // namespace
