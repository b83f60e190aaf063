// A group of 16 packed rows times the activations of N tokens, for sets with few or narrow registers: half a
// sub-block's columns of all 16 rows at a time, so that the parts of the rows share each load of activations.
// Sums of the first half wait in `halves`, accumulators in `out`. The loops over tokens stay loops: unrolled,
// the compiler would load ahead and spill.
//
// Each sub-block of 32 columns is unpacked once and used for all tokens of the tile. An output element is
//   acc = fma(float(integer dot) * d_activation, d_weight, acc)  [acc = fma(minimum, ds_activation, acc)]
// (two minimums: acc = fma(float(minimums * sums) * d_activation, d_minimum, acc)) over ascending sub-blocks:
// an order that depends on nothing but the number of columns.
#include "unpack.inl"

namespace {

template <class Format, int N>
void tile(const uint8_t* group, int columns, const uint8_t* act, size_t step, float* out) {
  constexpr size_t kShare = sizeof(typename Format::Packed) / Format::kSubs;
  V::I halves[N][kParts];
  for (int i = 0; i < 16 * N; i += V::W) V::store(out + i, V::zero());
  const auto* block = reinterpret_cast<const typename Format::Packed*>(group);
  for (int b = 0; b < columns / kBlock; b += Format::kSubs, block++) {
    for (int sub = 0; sub < Format::kSubs; sub++, act += step) {
      prefetch<kShare>(reinterpret_cast<const uint8_t*>(block) + sub * kShare + kAhead);
      V::F scale[kParts], minimum[kParts];
      V::Scales scales[kParts], minimums[kParts];
      for (int part = 0; part < kParts; part++) {
        scale[part] = Format::scale(*block, sub, part * V::W);
        if constexpr (Format::kMinimum) minimum[part] = Format::minimum(*block, sub, part * V::W);
        if constexpr (Format::kScaled) scales[part] = Format::scales(*block, sub, part * V::W);
        if constexpr (kTwoMinimums<Format>) minimums[part] = Format::minimums(*block, sub, part * V::W);
      }
      const auto* tokens = reinterpret_cast<const ActBlock*>(act);
      V::U x[kParts][4];
      for (int part = 0; part < kParts; part++)
        Format::template unpack<0, 4>(*block, sub, part * V::W, x[part]);
#pragma GCC unroll 1
      for (int t = 0; t < N; t++) {
        const V::Columns a = V::columns(tokens[t].q);
        for (int part = 0; part < kParts; part++) {
          if constexpr (Format::kScaled)
            halves[t][part] = V::dot_scaled<Format::kMax>(x[part], a, scales[part].first);
          else
            halves[t][part] = V::dot<Format::kMax>(x[part], a);
        }
      }
      for (int part = 0; part < kParts; part++)
        Format::template unpack<4, 4>(*block, sub, part * V::W, x[part]);
#pragma GCC unroll 1
      for (int t = 0; t < N; t++) {
        const V::Columns a = V::columns(tokens[t].q + 16);
        const V::F d = V::set(tokens[t].d), ds = V::set(tokens[t].ds);
        for (int part = 0; part < kParts; part++) {
          V::I sum;
          if constexpr (Format::kScaled)
            sum = V::join_scaled<Format::kOffset>(
                halves[t][part], V::dot_scaled<Format::kMax>(x[part], a, scales[part].second), scales[part],
                tokens[t].s16);
          else
            sum = V::join<Format::kMax, Format::kOffset>(halves[t][part], V::dot<Format::kMax>(x[part], a),
                                                         tokens[t].sum);
          float* y = out + 16 * t + part * V::W;
          V::F acc = V::fma(V::mul(V::to_float(sum), d), scale[part], V::load(y));
          if constexpr (kTwoMinimums<Format>) {
            const V::F sums = V::sums_scaled(minimums[part], tokens[t].s16);
            acc = V::fma(V::mul(sums, d), minimum[part], acc);
          } else if constexpr (Format::kMinimum) {
            acc = V::fma(minimum[part], ds, acc);
          }
          V::store(y, acc);
        }
      }
    }
  }
}

}  // namespace
