// AVX2 + FMA + F16C, with or without VNNI: 8 rows at a time.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace {

struct V {
  static constexpr int W = 8;           // lanes of a vector
  static constexpr int kMaxTokens = 8;  // tokens of a matrix tile
  static constexpr int kQueries = 4;    // queries that share each read of a key
  using F = __m256;
  using I = __m256i;
  using U = __m256i;  // 4 bytes of each of W rows

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  static F load_half(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load_bf16(const uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static void store_half(uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  static F load_u8(const uint8_t* p) {
    return to_float(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // 2^n for whole n in [-126, 127]
  static F exp2_whole(F n) {
    const I biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }

  static U bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  template <int B>
  static U mask(U x) {
    return _mm256_and_si256(x, _mm256_set1_epi8(static_cast<char>(B)));
  }
  static U either(U a, U b) { return _mm256_or_si256(a, b); }
  template <int S>
  static U left(U x) {
    return S == 0 ? x : _mm256_slli_epi16(x, S);
  }
  template <int S>
  static U right(U x) {
    return S == 0 ? x : _mm256_srli_epi16(x, S);
  }

  static I broadcast4(const int8_t* a) {
    int32_t word;
    __builtin_memcpy(&word, a, 4);
    return _mm256_set1_epi32(word);
  }

  // sum of (x - Offset) a over 32 columns, exact; codes x lie in 0..Max
  template <int Max, int Offset>
  static I dot(const U x[8], const int8_t* a, int32_t sum) {
    if constexpr (Max > 127) {  // the codes are int8 + 128
      static_assert(Offset == 128);
      I total = _mm256_setzero_si256();
      const I ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++) {
        const I w = _mm256_xor_si256(x[j], _mm256_set1_epi8(static_cast<char>(0x80)));
        const I pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(broadcast4(a + 4 * j), w));
        total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
      }
      return total;
    } else {
      constexpr int chain = 32767 / (Max * 254) >= 8   ? 8
                            : 32767 / (Max * 254) >= 4 ? 4
                                                       : 2;  // int16 holds so many
      static_assert(Max * 254 * chain <= 32767);
      const I ones = _mm256_set1_epi16(1);
      I total = _mm256_set1_epi32(-Offset * sum);
#pragma GCC unroll 8
      for (int j = 0; j < 8; j += chain) {
        I pairs = _mm256_maddubs_epi16(x[j], broadcast4(a + 4 * j));
#pragma GCC unroll 8
        for (int i = j + 1; i < j + chain; i++)
          pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(x[i], broadcast4(a + 4 * i)));
        total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, ones));
      }
      return total;
    }
  }

  // Two scales a sub-block, one for each 16 columns, as int16 pairs.
  struct Scales {
    I first, second, both;
  };
  static Scales scales(const int8_t* first, const int8_t* second) {
    const I a = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(first)));
    const I b = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(second)));
    const I low = _mm256_set1_epi32(0xffff);
    const I al = _mm256_and_si256(a, low), bl = _mm256_and_si256(b, low);
    return {_mm256_or_si256(al, _mm256_slli_epi32(a, 16)), _mm256_or_si256(bl, _mm256_slli_epi32(b, 16)),
            _mm256_or_si256(al, _mm256_slli_epi32(b, 16))};
  }
  // float of: sum over 32 columns of (x - 32) a scale, exact; |result| < 2^24
  static F dot_scaled(const U x[8], const int8_t* a, const int16_t s16[2], const Scales& s) {
    I total = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int j = 0; j < 8; j += 2) {  // 63 * 254 * 2 fits int16
      const I pairs = _mm256_add_epi16(_mm256_maddubs_epi16(x[j], broadcast4(a + 4 * j)),
                                       _mm256_maddubs_epi16(x[j + 1], broadcast4(a + 4 * j + 4)));
      total = _mm256_add_epi32(total, _mm256_madd_epi16(pairs, j < 4 ? s.first : s.second));
    }
    int32_t sums;
    __builtin_memcpy(&sums, s16, 4);
    const I offset = _mm256_madd_epi16(s.both, _mm256_set1_epi32(sums));
    return to_float(_mm256_sub_epi32(total, _mm256_slli_epi32(offset, 5)));
  }
};

}  // namespace
