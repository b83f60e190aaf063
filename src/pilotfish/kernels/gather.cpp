// One row of a packed matrix as floats: for embeddings.
#include <cstring>

#include "half.h"
#include "weights.h"

namespace pilotfish {
namespace {

int code_at(const uint8_t* planes, int row, int k) {
  const int j = k / 4;
  return planes[64 * (j / 2) + 4 * row + k % 4] >> (j & 1 ? 4 : 0) & 15;
}
int bit_at(const uint8_t* plane, int row, int k) { return plane[4 * row + k % 4] >> (k / 4) & 1; }
int pair_at(const uint8_t* planes, int row, int k) {
  const int j = k / 4;
  return planes[64 * (j / 4) + 4 * row + k % 4] >> 2 * (j % 4) & 3;
}
uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

// One packed block of one row as floats.
void gather_block(Type type, const uint8_t* from, int row, float* out) {
  switch (type) {
    case Type::F32:
      std::memcpy(out, from + 4 * row, 4);
      return;
    case Type::F16:
      *out = half_to_float(half_at(from + 2 * row));
      return;
    case Type::BF16:
      *out = bf16_to_float(half_at(from + 2 * row));
      return;
    case Type::Q4_0: {
      const auto& p = *reinterpret_cast<const PackedQ4_0*>(from);
      for (int k = 0; k < 32; k++)
        out[k] = half_to_float(p.d[row]) * static_cast<float>(code_at(p.q, row, k) - 8);
      return;
    }
    case Type::Q4_1: {
      const auto& p = *reinterpret_cast<const PackedQ4_1*>(from);
      const float d = half_to_float(p.d[row]), m = half_to_float(p.m[row]);
      for (int k = 0; k < 32; k++) out[k] = d * static_cast<float>(code_at(p.q, row, k)) + m;
      return;
    }
    case Type::Q5_0: {
      const auto& p = *reinterpret_cast<const PackedQ5_0*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 32; k++)
        out[k] = d * static_cast<float>((code_at(p.q, row, k) | bit_at(p.h, row, k) << 4) - 16);
      return;
    }
    case Type::Q5_1: {
      const auto& p = *reinterpret_cast<const PackedQ5_1*>(from);
      const float d = half_to_float(p.d[row]), m = half_to_float(p.m[row]);
      for (int k = 0; k < 32; k++)
        out[k] = d * static_cast<float>(code_at(p.q, row, k) | bit_at(p.h, row, k) << 4) + m;
      return;
    }
    case Type::Q8_0: {
      const auto& p = *reinterpret_cast<const PackedQ8_0*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 32; k++) out[k] = d * static_cast<float>(p.q[64 * (k / 4) + 4 * row + k % 4] - 128);
      return;
    }
    case Type::Q2_K: {
      const auto& p = *reinterpret_cast<const PackedQ2_K*>(from);
      const float d = half_to_float(p.d[row]), dmin = half_to_float(p.dmin[row]);
      for (int k = 0; k < 256; k++) {
        const int both = p.scmn[k / 16][row];
        const float scale = d * static_cast<float>(both & 15), minimum = dmin * static_cast<float>(both >> 4);
        out[k] = scale * static_cast<float>(pair_at(p.q[k / 32], row, k % 32)) - minimum;
      }
      return;
    }
    case Type::Q3_K: {
      const auto& p = *reinterpret_cast<const PackedQ3_K*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 256; k++) {
        const int sub = k / 32, i = k % 32;
        const int code = pair_at(p.q[sub], row, i) | bit_at(p.h[sub], row, i) << 2;
        out[k] = d * static_cast<float>(p.sc[k / 16][row]) * static_cast<float>(code - 4);
      }
      return;
    }
    case Type::Q4_K:
    case Type::Q5_K: {
      const auto& four = *reinterpret_cast<const PackedQ4_K*>(from);
      const auto& five = *reinterpret_cast<const PackedQ5_K*>(from);
      const bool fifth = type == Type::Q5_K;
      const float d = half_to_float(fifth ? five.d[row] : four.d[row]);
      const float dmin = half_to_float(fifth ? five.dmin[row] : four.dmin[row]);
      for (int k = 0; k < 256; k++) {
        const int sub = k / 32;
        const int code = fifth ? code_at(five.q[sub], row, k % 32) | bit_at(five.h[sub], row, k % 32) << 4
                               : code_at(four.q[sub], row, k % 32);
        const float scale = d * static_cast<float>(fifth ? five.sc[sub][row] : four.sc[sub][row]);
        const float minimum = dmin * static_cast<float>(fifth ? five.mn[sub][row] : four.mn[sub][row]);
        out[k] = scale * static_cast<float>(code) - minimum;
      }
      return;
    }
    case Type::Q6_K: {
      const auto& p = *reinterpret_cast<const PackedQ6_K*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 256; k++) {
        const int sub = k / 32, i = k % 32;
        const int code = code_at(p.q[sub], row, i) | pair_at(p.h[sub], row, i) << 4;
        out[k] = d * static_cast<float>(p.sc[k / 16][row]) * static_cast<float>(code - 32);
      }
      return;
    }
    case Type::IQ4_NL: {
      const auto& p = *reinterpret_cast<const PackedIQ4_NL*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 32; k++) out[k] = d * static_cast<float>(kTableIQ4[code_at(p.q, row, k)] - 128);
      return;
    }
    case Type::IQ4_XS: {
      const auto& p = *reinterpret_cast<const PackedIQ4_XS*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 256; k++) {
        const float scale = d * static_cast<float>(p.sc[k / 32][row]);
        out[k] = scale * static_cast<float>(kTableIQ4[code_at(p.q[k / 32], row, k % 32)] - 128);
      }
      return;
    }
    case Type::MXFP4: {
      const auto& p = *reinterpret_cast<const PackedMXFP4*>(from);
      const float d = bf16_to_float(p.d[row]);
      for (int k = 0; k < 32; k++) out[k] = d * static_cast<float>(kTableMXFP4[code_at(p.q, row, k)] - 12);
      return;
    }
  }
}

}  // namespace

void Weight::gather(int64_t row, float* out) const {
  const TypeInfo info = type_info(type);
  const uint8_t* from = group(row / kRows);
  for (int64_t k = 0; k < columns; k += info.columns, from += info.packed_bytes)
    gather_block(type, from, static_cast<int>(row % kRows), out + k);
}

}  // namespace pilotfish
