// What else is asked of a row, whatever is chosen from it.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "math64.h"
#include "row.h"
#include "sampling.h"

namespace pilotfish {

int32_t argmax(const float* logits, int32_t n, bool absent) { return Row(logits, n, absent).top; }

double margin(const float* logits, int32_t n, bool absent) {
  check(logits, n, absent);
  if (n == 1) return std::numeric_limits<double>::infinity();
  float first[kLanes];
  float second[kLanes];
  std::fill_n(first, kLanes, -std::numeric_limits<float>::infinity());
  std::fill_n(second, kLanes, -std::numeric_limits<float>::infinity());
  const auto take = [&](int lane, float value) {
    const float smaller = value < first[lane] ? value : first[lane];
    second[lane] = smaller > second[lane] ? smaller : second[lane];
    first[lane] = value > first[lane] ? value : first[lane];
  };
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) take(j, logits[i + j]);
  }
  for (; i < n; ++i) take(0, logits[i]);
  for (int j = 1; j < kLanes; ++j) {
    take(0, first[j]);
    take(0, second[j]);
  }
  check_any(first[0]);
  return static_cast<double>(first[0]) - static_cast<double>(second[0]);
}

double probability(const float* logits, int32_t n, int32_t token, bool absent) {
  const Row row(logits, n, absent);
  if (logits[token] == kAbsent) return 0.0;
  const float largest = logits[row.top];
  double lanes[kLanes] = {};
  float weights[16 * kLanes];
  for (size_t first = 0; first < static_cast<size_t>(n); first += std::size(weights)) {
    const float* block = logits + first;
    const size_t size = std::min(std::size(weights), static_cast<size_t>(n) - first);
    const float* maxima = row.maxima.data() + first / kChunk;
    // What absent tokens weigh is too little to change a sum; where there are no others, time is saved.
    if (*std::max_element(maxima, maxima + (size + kChunk - 1) / kChunk) == kAbsent) continue;
    for (size_t i = 0; i < size; ++i) weights[i] = clamp32(block[i] - largest);
    for (size_t i = 0; i < size; ++i) weights[i] = exp32_clamped(weights[i]);
    for (size_t i = size; i % kLanes != 0; ++i) weights[i] = 0.0F;
    for (size_t i = 0; i < size; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(weights[i + j]);
    }
  }
  return static_cast<double>(exp32_clamped(clamp32(logits[token] - largest))) / sum_lanes(lanes);
}

Logprobs logprobs(const float* logits, int32_t n, int32_t token, int32_t count, bool absent) {
  const Row row(logits, n, absent);
  const double largest = logits[row.top];
  const double log_sum = log64(sum_weights(logits, static_cast<size_t>(n), largest, 1.0));
  Logprobs result{logits[token] - largest - log_sum, {}};
  const auto most = static_cast<size_t>(std::min(count, n));
  if (most == 0) return result;
  const std::vector<uint64_t> entries = leading(row, most);
  for (size_t i = 0; i < most; ++i) {
    result.top.emplace_back(id_of(entries[i]), logit_of(entries[i]) - largest - log_sum);
  }
  return result;
}

uint64_t digest(const float* logits, int32_t n, bool absent) {
  check(logits, n, absent);
  constexpr uint64_t odd = 0x9E3779B97F4A7C15U;
  // Each step is a bijection of the state for a fixed word and of the word for a fixed state.
  const auto mix = [](uint64_t state, uint64_t word) {
    state = (state ^ word) * odd;
    return state ^ state >> 29;
  };
  uint64_t lanes[8];
  for (uint64_t j = 0; j < 8; ++j) lanes[j] = mix(j + 1, static_cast<uint64_t>(n));
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    uint64_t words[8];
    std::memcpy(words, logits + i, sizeof words);
    for (int j = 0; j < 8; ++j) lanes[j] = mix(lanes[j], words[j]);
  }
  for (; i < n; ++i) lanes[0] = mix(lanes[0], bits_of(logits[i]));
  for (int j = 1; j < 8; ++j) lanes[0] = mix(lanes[0], lanes[j]);
  return mix(lanes[0], 0);
}

}  // namespace pilotfish
