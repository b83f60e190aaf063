// A group of 16 packed rows times the activations of N tokens.
//
// Each sub-block of 32 columns is unpacked once and used for all tokens of the tile. An output element is
//   acc = fma(float(integer dot) * d_activation, d_weight, acc)  [acc = fma(minimum, ds_activation, acc)]
// over ascending sub-blocks: an order that depends on nothing but the number of columns.

namespace {

using pilotfish::ActBlock;
using pilotfish::kBlock;
using pilotfish::kRows;

// Codes of vector j from planes of nibbles: low nibbles are even vectors, high ones odd.
template <class Format, class Packed>
inline void unpack_nibbles(const uint8_t* q, V::U x[8], const Packed&) {
  for (int p = 0; p < 4; p++) {
    const V::U both = V::bytes(q + 64 * p);
    x[2 * p] = V::mask<15>(both);
    x[2 * p + 1] = V::mask<15>(V::right<4>(both));
  }
}
// A fifth bit: bit j of every byte belongs to vector j.
inline void add_fifth_bits(const uint8_t* h, V::U x[8]) {
  const V::U bits = V::bytes(h);
  x[0] = V::either(x[0], V::mask<16>(V::left<4>(bits)));
  x[1] = V::either(x[1], V::mask<16>(V::left<3>(bits)));
  x[2] = V::either(x[2], V::mask<16>(V::left<2>(bits)));
  x[3] = V::either(x[3], V::mask<16>(V::left<1>(bits)));
  x[4] = V::either(x[4], V::mask<16>(bits));
  x[5] = V::either(x[5], V::mask<16>(V::right<1>(bits)));
  x[6] = V::either(x[6], V::mask<16>(V::right<2>(bits)));
  x[7] = V::either(x[7], V::mask<16>(V::right<3>(bits)));
}
// Bits five and six: two vectors, bits 2 i and 2 i + 1 of the first belong to vector i, of the second to i
// + 4.
inline void add_top_bits(const uint8_t* h, V::U x[8]) {
  for (int half = 0; half < 2; half++) {
    const V::U bits = V::bytes(h + 64 * half);
    V::U* y = x + 4 * half;
    y[0] = V::either(y[0], V::mask<48>(V::left<4>(bits)));
    y[1] = V::either(y[1], V::mask<48>(V::left<2>(bits)));
    y[2] = V::either(y[2], V::mask<48>(bits));
    y[3] = V::either(y[3], V::mask<48>(V::right<2>(bits)));
  }
}

// What a format adds to the common loop; `row` is the first of the W rows in hand.
struct FormatQ4_0 {
  using Packed = pilotfish::PackedQ4_0;
  static constexpr int kSubs = 1, kMax = 15, kOffset = 8;
  static constexpr bool kMinimum = false, kScaled = false;
  static void unpack(const Packed& b, int, int row, V::U x[8]) {
    unpack_nibbles<FormatQ4_0>(b.q + 4 * row, x, b);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
};
struct FormatQ4_1 {
  using Packed = pilotfish::PackedQ4_1;
  static constexpr int kSubs = 1, kMax = 15, kOffset = 0;
  static constexpr bool kMinimum = true, kScaled = false;
  static void unpack(const Packed& b, int, int row, V::U x[8]) {
    unpack_nibbles<FormatQ4_1>(b.q + 4 * row, x, b);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
  static V::F minimum(const Packed& b, int, int row) { return V::load_half(b.m + row); }
};
struct FormatQ5_0 {
  using Packed = pilotfish::PackedQ5_0;
  static constexpr int kSubs = 1, kMax = 31, kOffset = 16;
  static constexpr bool kMinimum = false, kScaled = false;
  static void unpack(const Packed& b, int, int row, V::U x[8]) {
    unpack_nibbles<FormatQ5_0>(b.q + 4 * row, x, b);
    add_fifth_bits(b.h + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
};
struct FormatQ8_0 {
  using Packed = pilotfish::PackedQ8_0;
  static constexpr int kSubs = 1, kMax = 255, kOffset = 128;
  static constexpr bool kMinimum = false, kScaled = false;
  static void unpack(const Packed& b, int, int row, V::U x[8]) {
    for (int j = 0; j < 8; j++) x[j] = V::bytes(b.q + 64 * j + 4 * row);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
};
template <class P, bool kFifth>
struct FormatK {  // Q4_K and Q5_K
  using Packed = P;
  static constexpr int kSubs = 8, kMax = kFifth ? 31 : 15, kOffset = 0;
  static constexpr bool kMinimum = true, kScaled = false;
  static void unpack(const Packed& b, int sub, int row, V::U x[8]) {
    unpack_nibbles<FormatK>(b.q[sub] + 4 * row, x, b);
    if constexpr (kFifth) add_fifth_bits(b.h[sub] + 4 * row, x);
  }
  static V::F scale(const Packed& b, int sub, int row) {  // 11 + 6 bits: exact
    return V::mul(V::load_half(b.d + row), V::load_u8(b.sc[sub] + row));
  }
  static V::F minimum(const Packed& b, int sub, int row) {
    return V::sub(V::zero(), V::mul(V::load_half(b.dmin + row), V::load_u8(b.mn[sub] + row)));
  }
};
using FormatQ4_K = FormatK<pilotfish::PackedQ4_K, false>;
using FormatQ5_K = FormatK<pilotfish::PackedQ5_K, true>;
struct FormatQ6_K {
  using Packed = pilotfish::PackedQ6_K;
  static constexpr int kSubs = 8, kMax = 63, kOffset = 32;
  static constexpr bool kMinimum = false, kScaled = true;
  static void unpack(const Packed& b, int sub, int row, V::U x[8]) {
    unpack_nibbles<FormatQ6_K>(b.q[sub] + 4 * row, x, b);
    add_top_bits(b.h[sub] + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
  static V::Scales scales(const Packed& b, int sub, int row) {
    return V::scales(b.sc[2 * sub] + row, b.sc[2 * sub + 1] + row);
  }
};

// Weights are used once a pass and come from memory: they are asked for some kilobytes ahead, since the
// hardware alone follows a stream only up to the next page. What lies behind a matrix is asked for in vain,
// not read.
constexpr size_t kAhead = 3072;  // measured: 2 to 4 KB are best, less comes too late
template <size_t kBytes>
inline void prefetch(const uint8_t* p) {
#pragma GCC unroll 16
  for (size_t at = 0; at < kBytes; at += 64) __builtin_prefetch(p + at);
}

template <class Format, int N>
void tile(const uint8_t* group, int columns, const uint8_t* act, size_t stride, float* out) {
  constexpr size_t kShare = sizeof(typename Format::Packed) / Format::kSubs;  // of a sub-block
  V::F acc[kParts][N];
  for (auto& part : acc)
    for (auto& a : part) a = V::zero();
  const auto* block = reinterpret_cast<const typename Format::Packed*>(group);
  const auto* token0 = reinterpret_cast<const ActBlock*>(act);
  for (int b = 0; b < columns / kBlock; b += Format::kSubs, block++) {
    for (int sub = 0; sub < Format::kSubs; sub++) {
      prefetch<kShare>(reinterpret_cast<const uint8_t*>(block) + sub * kShare + kAhead);
#pragma GCC unroll 1
      for (int part = 0; part < kParts; part++) {
        const int row = part * V::W;
        V::U x[8];
        Format::unpack(*block, sub, row, x);
        const V::F scale = Format::scale(*block, sub, row);
        V::F minimum = V::zero();
        if constexpr (Format::kMinimum) minimum = Format::minimum(*block, sub, row);
        const auto* token = reinterpret_cast<const uint8_t*>(token0 + b + sub);
        // Opaque, or the compiler would broadcast all activations ahead of this loop and spill them.
        if constexpr (kParts > 1) asm volatile("" : "+r"(token));
        const auto each = [&](auto dot) {
#pragma GCC unroll 16
          for (int t = 0; t < N; t++) {
            const auto* a = reinterpret_cast<const ActBlock*>(token + t * stride);
            acc[part][t] = V::fma(V::mul(dot(*a), V::set(a->d)), scale, acc[part][t]);
            if constexpr (Format::kMinimum) acc[part][t] = V::fma(minimum, V::set(a->ds), acc[part][t]);
          }
        };
        if constexpr (Format::kScaled) {
          const V::Scales scales = Format::scales(*block, sub, row);
          each([&](const ActBlock& a) { return V::dot_scaled(x, a.q, a.s16, scales); });
        } else {
          each([&](const ActBlock& a) {
            return V::to_float(V::dot<Format::kMax, Format::kOffset>(x, a.q, a.sum));
          });
        }
      }
    }
  }
  for (int t = 0; t < N; t++)
    for (int part = 0; part < kParts; part++) V::store(out + 16 * t + part * V::W, acc[part][t]);
}

// Float weights, float activations: even and odd columns apart, added at the end.
template <class Element, V::F (*kLoad)(const Element*), int N>
void tile_of_floats(const uint8_t* group, int columns, const uint8_t* act, size_t stride, float* out) {
  Lanes acc[2][N];
  for (auto& side : acc)
    for (auto& a : side) a = Lanes::set(0.0f);
  const auto* w = reinterpret_cast<const Element*>(group);
  for (int k = 0; k < columns; k++, w += kRows) {
    Lanes column;
    for (int part = 0; part < kParts; part++) column.v[part] = kLoad(w + part * V::W);
    for (int t = 0; t < N; t++) {
      const float a = reinterpret_cast<const float*>(act + t * stride)[k];
      acc[k & 1][t] = fma(column, a, acc[k & 1][t]);
    }
  }
  for (int t = 0; t < N; t++) add(acc[0][t], acc[1][t]).store(out + 16 * t);
}

template <class Format>
void dequantize_group(const uint8_t* group, int sub_block, float* columns) {
  const auto& block = reinterpret_cast<const typename Format::Packed*>(group)[sub_block / Format::kSubs];
  const int sub = sub_block % Format::kSubs;
  for (int row = 0; row < kRows; row += V::W) {
    V::U x[8];
    Format::unpack(block, sub, row, x);
    float scale[V::W], minimum[V::W] = {}, scale2[V::W];
    V::store(scale, Format::scale(block, sub, row));
    for (int i = 0; i < V::W; i++) scale2[i] = scale[i];
    if constexpr (Format::kMinimum) V::store(minimum, Format::minimum(block, sub, row));
    if constexpr (Format::kScaled)
      for (int i = 0; i < V::W; i++) {
        scale[i] *= block.sc[2 * sub][row + i];
        scale2[i] *= block.sc[2 * sub + 1][row + i];
      }
    for (int j = 0; j < 8; j++) {
      uint8_t codes[4 * V::W];
      __builtin_memcpy(codes, &x[j], sizeof(codes));
      for (int i = 0; i < V::W; i++)
        for (int c = 0; c < 4; c++)
          columns[(4 * j + c) * kRows + row + i] =
              (j < 4 ? scale[i] : scale2[i]) * static_cast<float>(codes[4 * i + c] - Format::kOffset) +
              minimum[i];
    }
  }
}

using Tile = pilotfish::Kernels::Tile;

template <class Format, int N = V::kMaxTokens>
void fill(Tile* tiles) {
  tiles[N] = tile<Format, N>;
  if constexpr (N > 1) fill<Format, N - 1>(tiles);
}
template <class Element, V::F (*kLoad)(const Element*), int N = V::kMaxTokens>
void fill_floats(Tile* tiles) {
  tiles[N] = tile_of_floats<Element, kLoad, N>;
  if constexpr (N > 1) fill_floats<Element, kLoad, N - 1>(tiles);
}

void tile_float(pilotfish::Type type, const uint8_t* group, int columns, const float* act, float* out) {
  using pilotfish::Type;
  Lanes acc = Lanes::set(0.0f);
  float w[kBlock * kRows];
  for (int b = 0; b < columns / kBlock; b++) {
    switch (type) {
      case Type::Q4_0:
        dequantize_group<FormatQ4_0>(group, b, w);
        break;
      case Type::Q4_1:
        dequantize_group<FormatQ4_1>(group, b, w);
        break;
      case Type::Q5_0:
        dequantize_group<FormatQ5_0>(group, b, w);
        break;
      case Type::Q8_0:
        dequantize_group<FormatQ8_0>(group, b, w);
        break;
      case Type::Q4_K:
        dequantize_group<FormatQ4_K>(group, b, w);
        break;
      case Type::Q5_K:
        dequantize_group<FormatQ5_K>(group, b, w);
        break;
      case Type::Q6_K:
        dequantize_group<FormatQ6_K>(group, b, w);
        break;
      default:
        return;
    }
    for (int k = 0; k < kBlock; k++) acc = fma(Lanes::load(w + k * kRows), act[b * kBlock + k], acc);
  }
  acc.store(out);
}

}  // namespace
