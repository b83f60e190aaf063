// Packed weights: 16 output rows interleaved, so that one vector holds the same four columns of 16 (8, 4)
// rows.
//
// A block covers 16 rows and 32 columns (256 for the K types, as 8 sub-blocks of 32). Its codes are unsigned
// bytes; byte (row r, column 4 j + c) of a sub-block is byte 4 r + c of vector j, j = 0..7. Low bits are kept
// as four planes of 64 bytes: plane p holds vector 2 p in its low nibbles and vector 2 p + 1 in its high
// ones. A plane of pairs holds two bits of four vectors, a plane of bits one bit of eight, each the lowest
// bits of the first. Nothing is lost: packing only moves bits of the file's own blocks (ggml's formats,
// ggml-common.h / gguf `quants`).
#pragma once
#include <cstddef>
#include <cstdint>

namespace pilotfish {

constexpr int kRows = 16;   // output rows of a group
constexpr int kBlock = 32;  // columns that share an activation scale

// ggml's numbers.
enum class Type : int32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  IQ4_XS = 23,
  BF16 = 30,
  MXFP4 = 39
};
constexpr int kTypes = 40;

// What the codes of IQ4_NL and IQ4_XS stand for, plus 128; and those of MXFP4 (e2m1, doubled), plus 12.
constexpr uint8_t kTableIQ4[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t kTableMXFP4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// 32 activations: x[i] ~ d * q[i].
struct ActBlock {
  int8_t q[32];
  float d;
  float ds;        // d * sum, for formats with a minimum
  int16_t s16[2];  // sums of the two halves
  int32_t sum;     // sum of q
};
static_assert(sizeof(ActBlock) == 48);

struct PackedQ4_0 {
  uint8_t q[256];
  uint16_t d[16];
};  // (q - 8) d
struct PackedQ4_1 {
  uint8_t q[256];
  uint16_t d[16], m[16];
};  // q d + m
struct PackedQ5_0 {
  uint8_t q[256], h[64];
  uint16_t d[16];
};  // (q - 16) d
struct PackedQ5_1 {
  uint8_t q[256], h[64];
  uint16_t d[16], m[16];
};  // q d + m
struct PackedQ8_0 {
  uint8_t q[512];
  uint16_t d[16];
};  // (q - 128) d, not in planes
struct PackedQ2_K {
  uint8_t q[8][128], scmn[16][16];  // pairs; by 16 columns a scale in the low nibble, a minimum in the high
  uint16_t d[16], dmin[16];
};  // q d sc - dmin mn
struct PackedQ3_K {
  uint8_t q[8][128], h[8][64];  // pairs, third bits
  int8_t sc[16][16];
  uint16_t d[16];
};  // (q - 4) d sc
struct PackedQ4_K {
  uint8_t q[8][256], sc[8][16], mn[8][16];
  uint16_t d[16], dmin[16];
};  // q d sc - dmin mn
struct PackedQ5_K {
  uint8_t q[8][256], h[8][64], sc[8][16], mn[8][16];
  uint16_t d[16], dmin[16];
};
struct PackedQ6_K {
  uint8_t q[8][256], h[8][128];
  int8_t sc[16][16];
  uint16_t d[16];
};  // (q - 32) d sc
struct PackedIQ4_NL {
  uint8_t q[256];
  uint16_t d[16];
};  // (kTableIQ4[q] - 128) d
struct PackedIQ4_XS {
  uint8_t q[8][256];
  int8_t sc[8][16];
  uint16_t d[16];
};  // (kTableIQ4[q] - 128) d sc
struct PackedMXFP4 {
  uint8_t q[256];
  uint16_t d[16];  // bfloat16, which every scale of the type is, halved as codes are doubled
};  // (kTableMXFP4[q] - 12) d
// Float types: column by column, 16 rows side by side.

struct TypeInfo {
  int columns;       // columns of a block
  int file_bytes;    // bytes of one row's block in the file
  int packed_bytes;  // bytes of 16 rows' block
};

static constexpr TypeInfo type_info(Type t) {
  switch (t) {
    case Type::F32:
      return {1, 4, 64};
    case Type::F16:
      return {1, 2, 32};
    case Type::BF16:
      return {1, 2, 32};
    case Type::Q4_0:
      return {32, 18, sizeof(PackedQ4_0)};
    case Type::Q4_1:
      return {32, 20, sizeof(PackedQ4_1)};
    case Type::Q5_0:
      return {32, 22, sizeof(PackedQ5_0)};
    case Type::Q5_1:
      return {32, 24, sizeof(PackedQ5_1)};
    case Type::Q8_0:
      return {32, 34, sizeof(PackedQ8_0)};
    case Type::Q2_K:
      return {256, 84, sizeof(PackedQ2_K)};
    case Type::Q3_K:
      return {256, 110, sizeof(PackedQ3_K)};
    case Type::Q4_K:
      return {256, 144, sizeof(PackedQ4_K)};
    case Type::Q5_K:
      return {256, 176, sizeof(PackedQ5_K)};
    case Type::Q6_K:
      return {256, 210, sizeof(PackedQ6_K)};
    case Type::IQ4_NL:
      return {32, 18, sizeof(PackedIQ4_NL)};
    case Type::IQ4_XS:
      return {256, 136, sizeof(PackedIQ4_XS)};
    case Type::MXFP4:
      return {32, 17, sizeof(PackedMXFP4)};
  }
  return {0, 0, 0};
}

static constexpr bool is_float(Type t) { return t == Type::F32 || t == Type::F16 || t == Type::BF16; }

static constexpr size_t packed_bytes(Type t, int64_t rows, int64_t columns) {
  const TypeInfo info = type_info(t);
  return static_cast<size_t>((rows + kRows - 1) / kRows) * static_cast<size_t>(columns / info.columns) *
         static_cast<size_t>(info.packed_bytes);
}

}  // namespace pilotfish
