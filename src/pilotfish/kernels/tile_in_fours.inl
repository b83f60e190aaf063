// A group of 16 packed rows times the activations of N tokens, for sets with few or narrow registers: four
// tokens at a time (`V::kTogether`), with sums of all 16 rows in registers over a whole sub-block.
//
// Each sub-block of 32 columns is unpacked once and used for all tokens of the tile. An output element is
//   acc = fma(float(integer dot) * d_activation, d_weight, acc)  [acc = fma(minimum, ds_activation, acc)]
// (two minimums: acc = fma(float(minimums * sums) * d_activation, d_minimum, acc)) over ascending sub-blocks:
// an order that depends on nothing but the number of columns.
#include "unpack.inl"

namespace {

constexpr int kFour = V::kTogether;

// What a sub-block's integer sums are multiplied by, for each part of the 16 rows.
template <class Format>
struct Scaling {
  V::F scale[kParts], minimum[kParts];
  V::Scales scales[kParts], minimums[kParts];

  Scaling(const typename Format::Packed& block, int sub) {
    for (int part = 0; part < kParts; part++) {
      const int row = part * V::W;
      scale[part] = Format::scale(block, sub, row);
      if constexpr (Format::kMinimum) minimum[part] = Format::minimum(block, sub, row);
      if constexpr (Format::kScaled) scales[part] = Format::scales(block, sub, row);
      if constexpr (kTwoMinimums<Format>) minimums[part] = Format::minimums(block, sub, row);
    }
  }
};

// Adds a sub-block's share to the outputs of T tokens.
template <class Format, int T>
__attribute__((always_inline)) inline void add_sub_block(const V::U x[kParts][8], const Scaling<Format>& by,
                                                         const ActBlock* tokens, float* out) {
  if constexpr (T > 2) asm volatile("" : : "r"(x) : "memory");  // kept in memory, or each use would reload
  V::I sums[T][kParts];
  for (auto& sum : sums)
    for (auto& part : sum) part = V::none();
#pragma GCC unroll 4
  for (int j = 0; j < 8; j += 2) {
    V::U codes[kParts][2];
    for (int part = 0; part < kParts; part++)
      for (int i = 0; i < 2; i++) codes[part][i] = x[part][j + i];
#pragma GCC unroll 4
    for (int t = 0; t < T; t++) {
      const V::Four a[2] = {V::four(tokens[t].q + 4 * j), V::four(tokens[t].q + 4 * j + 4)};
      for (int part = 0; part < kParts; part++) {
        V::I& sum = sums[t][part];
        if constexpr (Format::kScaled)
          sum = V::add_scaled<Format::kMax>(sum, codes[part], a,
                                            j < 4 ? by.scales[part].first : by.scales[part].second);
        else
          sum = V::add_products<Format::kMax>(sum, codes[part], a);
        V::keep(sum);
      }
    }
    asm volatile("" : : : "memory");  // or the compiler would load and multiply ahead, and spill
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; t++) {
    const ActBlock& token = tokens[t];
    const V::F d = V::set(token.d), ds = V::set(token.ds);
    for (int part = 0; part < kParts; part++) {
      V::I sum;
      if constexpr (Format::kScaled)
        sum = V::total_scaled<Format::kOffset>(sums[t][part], by.scales[part], token.s16);
      else
        sum = V::total<Format::kMax, Format::kOffset>(sums[t][part], token.sum);
      float* y = out + 16 * t + part * V::W;
      V::F acc = V::fma(V::mul(V::to_float(sum), d), by.scale[part], V::load(y));
      if constexpr (kTwoMinimums<Format>)
        acc = V::fma(V::mul(V::sums_scaled(by.minimums[part], token.s16), d), by.minimum[part], acc);
      else if constexpr (Format::kMinimum)
        acc = V::fma(by.minimum[part], ds, acc);
      V::store(y, acc);
    }
  }
}

// The tile of fours + Rest tokens.
template <class Format, int Rest>
inline void tile_of(int fours, const uint8_t* group, int columns, const uint8_t* act, size_t step,
                    float* out) {
  constexpr size_t kShare = sizeof(typename Format::Packed) / Format::kSubs;
  for (int i = 0; i < 16 * (fours + Rest); i += V::W) V::store(out + i, V::zero());
  const auto* block = reinterpret_cast<const typename Format::Packed*>(group);
  for (int b = 0; b < columns / kBlock; b += Format::kSubs, block++) {
    for (int sub = 0; sub < Format::kSubs; sub++, act += step) {
      prefetch<kShare>(reinterpret_cast<const uint8_t*>(block) + sub * kShare + kAhead);
      const Scaling<Format> by(*block, sub);
      V::U x[kParts][8];
      for (int part = 0; part < kParts; part++)
        Format::template unpack<0, 8>(*block, sub, part * V::W, x[part]);
      const auto* tokens = reinterpret_cast<const ActBlock*>(act);
      for (int t = 0; t < fours; t += kFour) {
        add_sub_block<Format, kFour>(x, by, tokens + t, out + 16 * t);
      }
      if constexpr (Rest > 0) add_sub_block<Format, Rest>(x, by, tokens + fours, out + 16 * fours);
    }
  }
}

// One function for all that leave the same rest. Compiled for one number of fours, its loop would be peeled,
// and all loads come first.
template <class Format, int Rest>
__attribute__((noinline)) void tile_of_many(int fours, const uint8_t* group, int columns, const uint8_t* act,
                                            size_t step, float* out) {
  asm volatile("" : "+r"(fours));
  tile_of<Format, Rest>(fours, group, columns, act, step, out);
}

template <class Format, int N>
void tile(const uint8_t* group, int columns, const uint8_t* act, size_t step, float* out) {
  if constexpr (N <= kFour)
    tile_of<Format, N>(0, group, columns, act, step, out);
  else
    tile_of_many<Format, N % kFour>(N - N % kFour, group, columns, act, step, out);
}

}  // namespace
