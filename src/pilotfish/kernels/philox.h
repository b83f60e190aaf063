// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy
// as 1, 2, 3" (SC 2011): 128 random bits are a pure function of a 128-bit counter and a 64-bit key.
#pragma once

#include <cstdint>

namespace pilotfish {
namespace {

struct Words {
  uint32_t w0, w1, w2, w3;
};

inline Words philox_round(Words c, uint32_t key0, uint32_t key1) {
  const uint64_t p = uint64_t{0xD2511F53U} * c.w0;
  const uint64_t q = uint64_t{0xCD9E8D57U} * c.w2;
  return {static_cast<uint32_t>(q >> 32) ^ c.w1 ^ key0, static_cast<uint32_t>(q),
          static_cast<uint32_t>(p >> 32) ^ c.w3 ^ key1, static_cast<uint32_t>(p)};
}

// The rounds are written out so that a loop over counters is a single loop, which compilers vectorise.
inline Words philox4x32(Words c, uint32_t key0, uint32_t key1) {
  constexpr uint32_t a = 0x9E3779B9U;
  constexpr uint32_t b = 0xBB67AE85U;
  c = philox_round(c, key0, key1);
  c = philox_round(c, key0 + a, key1 + b);
  c = philox_round(c, key0 + 2 * a, key1 + 2 * b);
  c = philox_round(c, key0 + 3 * a, key1 + 3 * b);
  c = philox_round(c, key0 + 4 * a, key1 + 4 * b);
  c = philox_round(c, key0 + 5 * a, key1 + 5 * b);
  c = philox_round(c, key0 + 6 * a, key1 + 6 * b);
  c = philox_round(c, key0 + 7 * a, key1 + 7 * b);
  c = philox_round(c, key0 + 8 * a, key1 + 8 * b);
  return philox_round(c, key0 + 9 * a, key1 + 9 * b);
}

}  // namespace
}  // namespace pilotfish
