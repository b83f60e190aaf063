// AVX2 + FMA + F16C, without VNNI (simd_avxvnni.h adds it): 8 rows at a time.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace {

struct V {
  static constexpr int W = 8;            // lanes of a vector
  static constexpr int kMaxTokens = 16;  // tokens of a matrix tile
  static constexpr int kTogether = 4;    // tokens whose sums fit the registers
  static constexpr int kQueries = 6;     // most queries that share each read of a key
  static constexpr int kChains = 8;      // vectors of sums that fit the registers
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
  static F load_i8(const int8_t* p) {
    return to_float(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Whole numbers in -127..127 as int8.
  static void store_codes(int8_t* p, F x) {
    const I wide = _mm256_cvtps_epi32(x);
    const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(half, half));
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
  template <int S>  // bits of the 16-bit halves to the right, or to the left if negative
  static U shift(U x) {
    if constexpr (S > 0) return _mm256_srli_epi16(x, S);
    if constexpr (S < 0) return _mm256_slli_epi16(x, -S);
    return x;
  }

  // Codes in 0..15 replaced by the table's bytes.
  static U lookup(const uint8_t table[16], U x) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), x);
  }

  using Four = I;  // four columns of a token, in every lane
  static Four four(const int8_t* a) {
    int32_t word;
    __builtin_memcpy(&word, a, 4);
    return _mm256_set1_epi32(word);
  }
  static I none() { return _mm256_setzero_si256(); }
  // Hinders the compiler from computing other sums before this one, and running out of registers.
  static void keep(I& sum) { asm volatile("" : "+x"(sum)); }

  // `sum` and x a over eight columns, codes x in 0..Max: as pairs of int16 still to be added where 32 columns
  // fit (Q4), else as int32. Codes of 8 bits are taken as int8 + 128.
  template <int Max>
  static I add_products(I sum, const U* x, const Four* a) {
    if constexpr (kNarrow<Max>)
      return _mm256_add_epi16(_mm256_add_epi16(sum, _mm256_maddubs_epi16(x[0], a[0])),
                              _mm256_maddubs_epi16(x[1], a[1]));
    const I ones = _mm256_set1_epi16(1);
    if constexpr (Max <= 127) return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs<Max>(x, a), ones));
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
      const I w = _mm256_xor_si256(x[j], _mm256_set1_epi8(static_cast<char>(0x80)));
      const I products = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a[j], w));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, ones));
    }
    return sum;
  }
  // The sum of (x - Offset) a over 32 columns as int32, exact; `activations` is the sum of the a.
  template <int Max, int Offset>
  static I total(I sum, int32_t activations) {
    if constexpr (Max > 127) return sum;
    if constexpr (kNarrow<Max>) sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    return Offset == 0 ? sum : _mm256_sub_epi32(sum, _mm256_set1_epi32(Offset * activations));
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
  // `sum` and x a over eight columns times their scale.
  template <int Max>
  static I add_scaled(I sum, const U* x, const Four* a, I scale) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs<Max>(x, a), scale));
  }
  // The sum of (x - Offset) a scale over 32 columns; |result| < 2^24, so it is exact as a float. The offset
  // is multiplied into the scales, 8 bits each.
  template <int Offset>
  static I total_scaled(I sum, const Scales& s, const int16_t s16[2]) {
    static_assert(Offset <= 128 && (Offset & (Offset - 1)) == 0);
    if constexpr (Offset == 0) return sum;
    const I by = _mm256_slli_epi16(s.both, __builtin_ctz(Offset | 256));
    return _mm256_sub_epi32(sum, _mm256_madd_epi16(by, halves(s16)));
  }
  // The halves' sums of activations times their scales.
  static F sums_scaled(const Scales& s, const int16_t s16[2]) {
    return to_float(_mm256_madd_epi16(s.both, halves(s16)));
  }

 private:
  template <int Max>
  static constexpr bool kNarrow = Max * 254 * 8 <= 32767;

  // Sums of four products of eight columns, which fit int16.
  template <int Max>
  static I pairs(const U* x, const Four* a) {
    static_assert(Max * 254 * 2 <= 32767);
    return _mm256_add_epi16(_mm256_maddubs_epi16(x[0], a[0]), _mm256_maddubs_epi16(x[1], a[1]));
  }
  static I halves(const int16_t s16[2]) {
    int32_t sums;
    __builtin_memcpy(&sums, s16, 4);
    return _mm256_set1_epi32(sums);
  }
};

}  // namespace
