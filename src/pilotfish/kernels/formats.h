// Packed weights: 16 output rows interleaved, so that one vector holds the same four columns of 16 (8, 4)
// rows.
//
// A block covers 16 rows and 32 columns (256 for the K types, as 8 sub-blocks of 32). Its codes are unsigned
// bytes; byte (row r, column 4 j + c) of a sub-block is byte 4 r + c of vector j, j = 0..7. Low bits are kept
// as four planes of 64 bytes: plane p holds vector 2 p in its low nibbles and vector 2 p + 1 in its high
// ones. Nothing is lost: packing only moves bits of the file's own blocks (ggml's formats, ggml-common.h /
// gguf `quants`).
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
  Q8_0 = 8,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30
};
constexpr int kTypes = 31;

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
struct PackedQ8_0 {
  uint8_t q[512];
  uint16_t d[16];
};  // (q - 128) d, not in planes
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
    case Type::Q8_0:
      return {32, 34, sizeof(PackedQ8_0)};
    case Type::Q4_K:
      return {256, 144, sizeof(PackedQ4_K)};
    case Type::Q5_K:
      return {256, 176, sizeof(PackedQ5_K)};
    case Type::Q6_K:
      return {256, 210, sizeof(PackedQ6_K)};
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
