// What one instruction set offers; program.cpp knows nothing else of it.
#pragma once
#include "formats.h"

namespace pilotfish {

// A partial attention result of one query: largest score, sum of exp(score - largest), then the weighted
// values.
constexpr int kPartialHeader = 2;
constexpr int kPage = 64;  // positions of a KV page, keys of an attention block

struct Kernels {
  const char* name;
  int max_tokens;  // largest tile

  // out[t * 16 + r] = row r of a packed group times the activations of token t, for 1..max_tokens tokens.
  // Quantized types read ActBlocks: those of the tokens side by side, sub-blocks `stride` bytes apart, so
  // that a tile is one stream. Float types read floats, tokens `stride` bytes apart.
  using Tile = void (*)(const uint8_t* group, int columns, const uint8_t* act, size_t stride, float* out);
  Tile tile[kTypes][17];

  // The debug path: any type, float activations, one token.
  void (*tile_float)(Type type, const uint8_t* group, int columns, const float* act, float* out);

  // y = x / sqrt(mean(x^2) + eps) * weight; n is a multiple of 16
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  // out[i * step] = x[32 i ..]; n is a multiple of 32
  void (*quantize)(const float* x, int n, ActBlock* out, int step);
  void (*silu_mul)(const float* gate, const float* up, float* y, int n);
  void (*rope)(float* x, const float* cosine, const float* sine, int half);  // pairs (i, i + half)
  void (*scale)(float* x, float factor, int n);
  void (*to_half)(const float* x, uint16_t* y, int n);

  // One block of 64 keys from fresh state for `queries` queries: partial[q * stride] gets header and head
  // values. keys: [head][64], values: [64][head]; bit j of masks[q] says whether query q sees key j. The next
  // block's are fetched into the cache on the way; with none, this block's own.
  void (*attend)(const float* const* q, const uint64_t* masks, int queries, int head, const uint16_t* keys,
                 const uint16_t* values, const uint16_t* next_keys, const uint16_t* next_values,
                 float* partial, size_t stride);
  // Merges `part` into `total` (ascending blocks); an empty side leaves the other.
  void (*merge)(float* total, const float* part, int head);
  void (*finish)(const float* total, int head, float* y);  // y = values / sum
};

// Which of these a build has is for CMakeLists.txt to say; dispatch.cpp knows.
const Kernels* kernels_portable();
const Kernels* kernels_avx2();
const Kernels* kernels_avxvnni();
const Kernels* kernels_avx512();
const Kernels* kernels_neon();

}  // namespace pilotfish
