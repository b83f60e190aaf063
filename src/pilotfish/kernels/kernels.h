// What one instruction set offers; program.cpp knows nothing else of it.
#pragma once
#include "formats.h"

namespace pilotfish {

// A partial attention result of one query: largest score, sum of exp(score - largest), then the weighted
// values.
constexpr int kPartialHeader = 2;
constexpr int kPage = 64;       // positions of a KV page
constexpr int kBlockPages = 4;  // pages of an attention block, which has one maximum
constexpr int kBlockKeys = kBlockPages * kPage;

// Pages of one KV head. keys: [head][64], values: [64][head]. Behind the last page stands the one that is
// likely to be read next, to be fetched into the cache on the way.
struct KeyBlock {
  int pages;
  const uint16_t* keys[kBlockPages + 1];
  const uint16_t* values[kBlockPages + 1];
};

struct Kernels {
  const char* name;
  int max_tokens;  // largest tile

  // out[t * 16 + r] = row r of a packed group times the activations of token t, for 1..max_tokens tokens.
  // Quantized types read ActBlocks: those of the tokens side by side, sub-blocks `stride` bytes apart, so
  // that a tile is one stream. Float types read floats, tokens `stride` bytes apart.
  using Tile = void (*)(const uint8_t* group, int columns, const uint8_t* act, size_t stride, float* out);
  Tile tile[kTypes][17];

  // Columns 32 * block on of a packed group of any type, as floats: out[k * 16 + r] is row r's k-th.
  void (*dequantize)(Type type, const uint8_t* group, int block, float* out);
  // The debug path: any type, float activations, one token.
  void (*tile_float)(Type type, const uint8_t* group, int columns, const float* act, float* out);

  // y = x / sqrt(mean(x^2) + eps) * weight; n is a multiple of 16, and y may be x
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  // out[i * step] = x[32 i ..]; n is a multiple of 32
  void (*quantize)(const float* x, int n, ActBlock* out, int step);
  void (*silu_mul)(const float* gate, const float* up, float* y, int n);
  void (*gelu_mul)(const float* gate, const float* up, float* y, int n);     // by tanh
  void (*rope)(float* x, const float* cosine, const float* sine, int half);  // pairs (i, i + half)
  void (*scale)(float* x, float factor, int n);
  void (*to_half)(const float* x, uint16_t* y, int n);

  // One block of keys from fresh state for `queries` queries: partial[q * stride] gets header and head
  // values. Bit j of masks[kBlockPages * q + page] says whether query q sees key j of the page.
  void (*attend)(const float* const* q, const uint64_t* masks, int queries, int head, const KeyBlock& block,
                 float* scores, float* partial, size_t stride);
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
