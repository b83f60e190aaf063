// ARMv8.2 with the dot product instructions: 4 rows at a time.
#pragma once
#include <arm_neon.h>

#include <cstdint>

namespace {

struct V {
  static constexpr int W = 4;
  static constexpr int kMaxTokens = 8;
  static constexpr int kTogether = 4;  // tokens whose sums fit the registers
  static constexpr int kQueries = 6;   // most queries that share each read of a key
  static constexpr int kChains = 16;   // vectors of sums that fit the registers
  using F = float32x4_t;
  using I = int32x4_t;
  using U = uint8x16_t;

  static F zero() { return vdupq_n_f32(0.0f); }
  static F set(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  // Not FMAX and FMIN, which return a NaN and know -0 from 0: the second argument, unless the first wins.
  static F max(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static F min(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static F abs(F a) { return vabsq_f32(a); }
  static F to_float(I x) { return vcvtq_f32_s32(x); }
  static F load_half(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static F load_bf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static void store_half(uint16_t* p, F x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static F load_u8(const uint8_t* p) {
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four_bytes(p))))));
  }
  static F load_i8(const int8_t* p) { return vcvtq_f32_s32(widened(p)); }
  // Whole numbers in -127..127 as int8.
  static void store_codes(int8_t* p, F x) {
    const int16x4_t half = vqmovn_s32(vcvtnq_s32_f32(x));
    const uint32_t four = vget_lane_u32(vreinterpret_u32_s8(vqmovn_s16(vcombine_s16(half, half))), 0);
    __builtin_memcpy(p, &four, 4);
  }
  static F exp2_whole(F n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
  }

  static U bytes(const uint8_t* p) { return vld1q_u8(p); }
  template <int B>
  static U mask(U x) {
    return vandq_u8(x, vdupq_n_u8(B));
  }
  static U either(U a, U b) { return vorrq_u8(a, b); }
  template <int S>  // bits of the bytes to the right, or to the left if negative
  static U shift(U x) {
    if constexpr (S > 0) return vshrq_n_u8(x, S);
    if constexpr (S < 0) return vshlq_n_u8(x, -S);
    return x;
  }

  // Codes in 0..15 replaced by the table's bytes.
  static U lookup(const uint8_t table[16], U x) { return vqtbl1q_u8(vld1q_u8(table), x); }

  using Four = int8x16_t;  // four columns of a token, in every lane
  static Four four(const int8_t* a) {
    int32_t word;
    __builtin_memcpy(&word, a, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
  }
  static I none() { return vdupq_n_s32(0); }
  // Hinders the compiler from computing other sums before this one, and running out of registers.
  static void keep(I& sum) { asm volatile("" : "+w"(sum)); }

  // `sum` and x a over eight columns, codes x in 0..Max; codes of 8 bits are taken as int8 + 128.
  template <int Max>
  static I add_products(I sum, const U* x, const Four* a) {
    static_assert(Max <= 255);
    for (int j = 0; j < 2; j++)
      sum = vdotq_s32(sum, vreinterpretq_s8_u8(Max > 127 ? veorq_u8(x[j], vdupq_n_u8(0x80)) : x[j]), a[j]);
    return sum;
  }
  // The sum of (x - Offset) a over 32 columns; `activations` is the sum of the a.
  template <int Max, int Offset>
  static I total(I sum, int32_t activations) {
    static_assert(Max <= 127 || Offset == 128);
    return Max > 127 || Offset == 0 ? sum : vsubq_s32(sum, vdupq_n_s32(Offset * activations));
  }

  struct Scales {
    I first, second;
  };
  static Scales scales(const int8_t* first, const int8_t* second) {
    return {widened(first), widened(second)};
  }
  // `sum` and x a over eight columns times their scale.
  template <int Max>
  static I add_scaled(I sum, const U* x, const Four* a, I scale) {
    return vmlaq_s32(sum, add_products<Max>(none(), x, a), scale);
  }
  // The halves' sums of activations times their scales.
  static F sums_scaled(const Scales& s, const int16_t s16[2]) { return to_float(offset(s, s16)); }
  // The sum of (x - Offset) a scale over 32 columns; |result| < 2^24, so it is exact as a float.
  template <int Offset>
  static I total_scaled(I sum, const Scales& s, const int16_t s16[2]) {
    return Offset == 0 ? sum : vmlsq_n_s32(sum, offset(s, s16), Offset);
  }

 private:
  static I offset(const Scales& s, const int16_t s16[2]) {
    return vmlaq_n_s32(vmulq_n_s32(s.first, s16[0]), s.second, s16[1]);
  }
  static uint32_t four_bytes(const void* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, 4);
    return word;
  }
  static I widened(const int8_t* p) { return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four_bytes(p))))); }
};

}  // namespace
