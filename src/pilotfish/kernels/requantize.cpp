#include "requantize.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "half.h"
#include "pool.h"

namespace pilotfish {
namespace {

constexpr float kLargestHalf = 65504.0f;

// Four rows at a time, in vectors that every machine has.
constexpr int kFour = 4;
using Four = float __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));
using Codes = int32_t __attribute__((vector_size(16)));

Four four(const float* x) {
  Four v;
  std::memcpy(&v, x, sizeof(v));
  return v;
}
Four all(float x) { return Four{x, x, x, x}; }

// Rounds rows row .. row + 3 of a block: 32 columns of 16 floats.
void round_rows(const float* x, int row, PackedQ4_0& to) {
  const auto column = [&](int k) { return four(x + k * kRows + row); };
  Four most = all(0.0f), unsound = all(0.0f);
  for (int k = 0; k < kBlock; k++) {
    const Four size = column(k) < 0.0f ? -column(k) : column(k), before = most < 0.0f ? -most : most;
    most = size > before ? column(k) : most;
    unsound += column(k) * 0.0f;  // NaN if any is not finite
  }
  for (int r = 0; r < kFour; r++) {
    const float step = std::clamp(most[r] / -8.0f, -kLargestHalf, kLargestHalf);
    to.d[row + r] = float_to_half(unsound[r] == 0.0f ? step : std::numeric_limits<float>::quiet_NaN());
  }
  const Four inverse = -8.0f / most;  // infinite for zeros, whose steps are then NaN
  const auto code = [&](int k) {
    const Four steps = column(k) * inverse + 8.5f;           // the nearest, once cut off
    const Four positive = steps > 0.0f ? steps : all(0.0f);  // NaN is not
    const Four within = positive < 15.0f ? positive : all(15.0f);
    return reinterpret_cast<Words>(__builtin_convertvector(within, Codes));
  };
  for (int plane = 0; plane < 4; plane++) {  // 4 columns in the low nibbles, the next 4 in the high ones
    Words bytes{};
    for (int k = 0; k < 4; k++)
      bytes |= (code(8 * plane + k) | code(8 * plane + 4 + k) << 4) << static_cast<uint32_t>(8 * k);
    std::memcpy(to.q + 64 * plane + 4 * row, &bytes, sizeof(bytes));
  }
}

}  // namespace

void requantize(const Kernels& kernels, const Weight& from, Weight& to, int64_t first, int threads) {
  std::atomic<int64_t> next{0};
  auto body = [&](int) {
    alignas(64) float x[kBlock * kRows];
    for (int64_t g; (g = next.fetch_add(1, std::memory_order_relaxed)) < from.groups();) {
      auto* blocks = reinterpret_cast<PackedQ4_0*>(to.data + (first / kRows + g) * to.group_bytes);
      for (int b = 0; b < static_cast<int>(to.columns / kBlock); b++) {
        kernels.dequantize(from.type, from.group(g), b, x);
        for (int row = 0; row < kRows; row += kFour) round_rows(x, row, blocks[b]);
      }
    }
  };
  run_on_threads(threads, body);
}

}  // namespace pilotfish
