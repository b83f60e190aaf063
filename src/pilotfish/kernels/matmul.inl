// Matrices whose weights or activations are floats, and the table of tiles.

namespace {

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

// Multiplies what belongs to the first and the second 16 columns by their scales.
inline void scale_halves(const V::Scales& s, float x[2][V::W]) {
  constexpr int16_t kFirst[2] = {1, 0}, kSecond[2] = {0, 1};
  V::store(x[0], V::mul(V::load(x[0]), V::sums_scaled(s, kFirst)));
  V::store(x[1], V::mul(V::load(x[1]), V::sums_scaled(s, kSecond)));
}

template <class Format>
void dequantize_group(const uint8_t* group, int sub_block, float* columns) {
  const auto& block = reinterpret_cast<const typename Format::Packed*>(group)[sub_block / Format::kSubs];
  const int sub = sub_block % Format::kSubs;
  for (int row = 0; row < kRows; row += V::W) {
    V::U x[8];
    Format::template unpack<0, 8>(block, sub, row, x);
    float scale[2][V::W], minimum[2][V::W] = {};  // of the first and the second 16 columns
    for (int half = 0; half < 2; half++) {
      V::store(scale[half], Format::scale(block, sub, row));
      if constexpr (Format::kMinimum) V::store(minimum[half], Format::minimum(block, sub, row));
    }
    if constexpr (Format::kScaled) scale_halves(Format::scales(block, sub, row), scale);
    if constexpr (kTwoMinimums<Format>) scale_halves(Format::minimums(block, sub, row), minimum);
    for (int j = 0; j < 8; j++) {
      uint8_t codes[4 * V::W];
      __builtin_memcpy(codes, &x[j], sizeof(codes));
      for (int i = 0; i < V::W; i++)
        for (int c = 0; c < 4; c++)
          columns[(4 * j + c) * kRows + row + i] =
              scale[j / 4][i] * static_cast<float>(codes[4 * i + c] - Format::kOffset) + minimum[j / 4][i];
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

template <class Element, V::F (*kLoad)(const Element*)>
void floats_of_group(const uint8_t* group, int block, float* columns) {
  const auto* from = reinterpret_cast<const Element*>(group) + block * kBlock * kRows;
  for (int i = 0; i < kBlock * kRows; i += V::W) V::store(columns + i, kLoad(from + i));
}

void dequantize(pilotfish::Type type, const uint8_t* group, int block, float* columns) {
  using pilotfish::Type;
  switch (type) {
    case Type::F32:
      return floats_of_group<float, V::load>(group, block, columns);
    case Type::F16:
      return floats_of_group<uint16_t, V::load_half>(group, block, columns);
    case Type::BF16:
      return floats_of_group<uint16_t, V::load_bf16>(group, block, columns);
    case Type::Q4_0:
      return dequantize_group<FormatQ4_0>(group, block, columns);
    case Type::Q4_1:
      return dequantize_group<FormatQ4_1>(group, block, columns);
    case Type::Q5_0:
      return dequantize_group<FormatQ5_0>(group, block, columns);
    case Type::Q5_1:
      return dequantize_group<FormatQ5_1>(group, block, columns);
    case Type::Q8_0:
      return dequantize_group<FormatQ8_0>(group, block, columns);
    case Type::Q2_K:
      return dequantize_group<FormatQ2_K>(group, block, columns);
    case Type::Q3_K:
      return dequantize_group<FormatQ3_K>(group, block, columns);
    case Type::Q4_K:
      return dequantize_group<FormatQ4_K>(group, block, columns);
    case Type::Q5_K:
      return dequantize_group<FormatQ5_K>(group, block, columns);
    case Type::Q6_K:
      return dequantize_group<FormatQ6_K>(group, block, columns);
    case Type::IQ4_NL:
      return dequantize_group<FormatIQ4_NL>(group, block, columns);
    case Type::IQ4_XS:
      return dequantize_group<FormatIQ4_XS>(group, block, columns);
    case Type::MXFP4:
      return dequantize_group<FormatMXFP4>(group, block, columns);
  }
}

void tile_float(pilotfish::Type type, const uint8_t* group, int columns, const float* act, float* out) {
  Lanes acc = Lanes::set(0.0f);
  float w[kBlock * kRows];
  for (int b = 0; b < columns / kBlock; b++) {
    dequantize(type, group, b, w);
    for (int k = 0; k < kBlock; k++) acc = fma(Lanes::load(w + k * kRows), act[b * kBlock + k], acc);
  }
  acc.store(out);
}

}  // namespace
