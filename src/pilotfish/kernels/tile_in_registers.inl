// A group of 16 packed rows times the activations of N tokens, for sets with registers for a whole sub-block
// of 16 rows and an accumulator a token.
//
// Each sub-block of 32 columns is unpacked once and used for all tokens of the tile. An output element is
//   acc = fma(float(integer dot) * d_activation, d_weight, acc)  [acc = fma(minimum, ds_activation, acc)]
// (two minimums: acc = fma(float(minimums * sums) * d_activation, d_minimum, acc)) over ascending sub-blocks:
// an order that depends on nothing but the number of columns.
#include "unpack.inl"

namespace {

template <class Format, int N>
void tile(const uint8_t* group, int columns, const uint8_t* act, size_t step, float* out) {
  constexpr size_t kShare = sizeof(typename Format::Packed) / Format::kSubs;  // of a sub-block
  V::F acc[N];
  for (auto& a : acc) a = V::zero();
  const auto* block = reinterpret_cast<const typename Format::Packed*>(group);
  for (int b = 0; b < columns / kBlock; b += Format::kSubs, block++) {
    for (int sub = 0; sub < Format::kSubs; sub++, act += step) {
      prefetch<kShare>(reinterpret_cast<const uint8_t*>(block) + sub * kShare + kAhead);
      V::U x[8];
      Format::template unpack<0, 8>(*block, sub, 0, x);
      const V::F scale = Format::scale(*block, sub, 0);
      V::F minimum = V::zero();
      if constexpr (Format::kMinimum) minimum = Format::minimum(*block, sub, 0);
      V::Scales minimums{};
      if constexpr (kTwoMinimums<Format>) minimums = Format::minimums(*block, sub, 0);
      const auto* tokens = reinterpret_cast<const ActBlock*>(act);
      const auto each = [&](auto dot) {
#pragma GCC unroll 16
        for (int t = 0; t < N; t++) {
          const ActBlock& a = tokens[t];
          acc[t] = V::fma(V::mul(dot(a), V::set(a.d)), scale, acc[t]);
          if constexpr (kTwoMinimums<Format>)
            acc[t] = V::fma(V::mul(V::sums_scaled(minimums, a.s16), V::set(a.d)), minimum, acc[t]);
          else if constexpr (Format::kMinimum)
            acc[t] = V::fma(minimum, V::set(a.ds), acc[t]);
        }
      };
      if constexpr (Format::kScaled) {
        const V::Scales scales = Format::scales(*block, sub, 0);
        each([&](const ActBlock& a) { return V::dot_scaled<Format::kOffset>(x, a.q, a.s16, scales); });
      } else {
        each([&](const ActBlock& a) {
          return V::to_float(V::dot<Format::kMax, Format::kOffset>(x, a.q, a.sum));
        });
      }
    }
  }
  for (int t = 0; t < N; t++) V::store(out + 16 * t, acc[t]);
}

}  // namespace
