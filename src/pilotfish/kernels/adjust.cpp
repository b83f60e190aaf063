// Each change is computed in float64 and rounded to float32 once, so that NumPy gives the same bits.

#include "adjust.h"

#include <algorithm>
#include <limits>

#include "row.h"
#include "sampling.h"

namespace pilotfish {
namespace {

// The nearest float that is finite.
float rounded(double value) {
  constexpr double most = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -most, most));
}

}  // namespace

void adjust(const float* logits, int32_t n, const Adjustment& a, bool absent, float* out) {
  check(logits, n, absent);
  std::copy_n(logits, n, out);
  const auto outside = [&](int32_t id) { return id < 0 || id >= n || logits[id] == kAbsent; };
  for (size_t i = 0; i < a.id_count; ++i) {
    const int32_t id = a.ids[i];
    if (outside(id)) continue;
    double x = out[id];
    if (a.repeated[i] > 0) x = x > 0.0 ? x / a.repeat_penalty : x * a.repeat_penalty;
    if (a.generated[i] > 0) x = x - (a.generated[i] * a.frequency_penalty + a.presence_penalty);
    out[id] = rounded(x);
  }
  for (size_t i = 0; i < a.bias_count; ++i) {
    if (!outside(a.biased[i])) out[a.biased[i]] = rounded(out[a.biased[i]] + a.bias[i]);
  }
  for (size_t i = 0; i < a.ban_count; ++i) {
    if (!outside(a.banned[i])) out[a.banned[i]] = kAbsent;
  }
}

}  // namespace pilotfish
