// A row of logits as the sampler sees it: checked, in chunks of 64 ids whose largest logits are kept, so that
// most work skips most chunks; its leading entries; sums of its weights.
//
// Compiled with -ffp-contract=off; plain loops that compilers vectorise, no intrinsics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "math64.h"
#include "sampling.h"

namespace pilotfish {
namespace {

constexpr int kChunk = 64;
constexpr int kLanes = 16;

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr float kAbsent = -std::numeric_limits<float>::infinity();

// Whether a value is a fault; the bits of the one infinity that is none come as `allowed`.
inline bool is_fault(float value, uint32_t allowed) {
  const uint32_t bits = bits_of(value);
  return ((bits & 0x7f800000U) == 0x7f800000U) & (bits != allowed);
}

// 0 is no infinity, so nothing is let through.
inline uint32_t allowed_bits(bool absent) { return absent ? bits_of(kAbsent) : 0U; }

[[noreturn]] inline void throw_fault(const float* logits, int32_t n, uint32_t allowed) {
  int32_t id = 0;
  while (id < n - 1 && !is_fault(logits[id], allowed)) ++id;
  const float value = logits[id];
  const char* name = value > 0 ? "inf" : value < 0 ? "-inf" : "nan";
  throw NumericsFault("the logit of token " + std::to_string(id) + " is " + name);
}

inline bool no_fault(const float* logits, int32_t n, uint32_t allowed) {
  uint32_t bad = 0;
  for (int32_t i = 0; i < n; ++i) bad |= is_fault(logits[i], allowed) ? 1U : 0U;
  return bad == 0;
}

inline void check(const float* logits, int32_t n, bool absent) {
  const uint32_t allowed = allowed_bits(absent);
  if (!no_fault(logits, n, allowed)) throw_fault(logits, n, allowed);
}

inline void check_any(float largest) {
  if (largest == kAbsent) throw NumericsFault("no token has a logit");
}

inline float larger(float a, float b) { return a > b ? a : b; }

// A checked row, and the largest logit of each chunk of 64 ids.
struct Row {
  const float* logits;
  int32_t n;
  std::vector<float> maxima;
  int32_t top;  // argmax

  Row(const float* values, int32_t count, bool absent)
      : logits(values), n(count), maxima((count + kChunk - 1) / kChunk) {
    const int32_t whole = n / kChunk;
    const uint32_t allowed = allowed_bits(absent);
    bool sound = no_fault(logits + whole * kChunk, n - whole * kChunk, allowed);
    for (int32_t c = 0; c < whole; ++c) {
      const float* chunk = logits + static_cast<std::ptrdiff_t>(c) * kChunk;
      sound &= no_fault(chunk, kChunk, allowed);
      float lanes[kLanes];
      for (int j = 0; j < kLanes; ++j) lanes[j] = chunk[j];
      for (int i = kLanes; i < kChunk; i += kLanes) {
        for (int j = 0; j < kLanes; ++j) lanes[j] = larger(chunk[i + j], lanes[j]);
      }
      for (int width = kLanes / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; ++j) lanes[j] = larger(lanes[j + width], lanes[j]);
      }
      maxima[c] = lanes[0];
    }
    if (!sound) throw_fault(logits, n, allowed);
    if (whole * kChunk < n) maxima[whole] = *std::max_element(logits + whole * kChunk, logits + n);
    const auto chunk = std::max_element(maxima.begin(), maxima.end());  // the first of equals
    check_any(*chunk);
    top = static_cast<int32_t>(chunk - maxima.begin()) * kChunk;
    while (logits[top] != *chunk) ++top;
  }

  int32_t chunk_end(int32_t chunk) const { return std::min(n, (chunk + 1) * kChunk); }
};

// A logit and its id in 64 bits that sort ascending in order of (-logit, id); -0.0 equals 0.0.
inline uint32_t ascending(float logit) {
  const uint32_t bits = bits_of(logit + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

inline float from_ascending(uint32_t key) {
  return float_of((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

inline uint64_t pack(float logit, int32_t id) {
  return uint64_t{~ascending(logit)} << 32 | static_cast<uint32_t>(id);
}

inline float logit_of(uint64_t packed) { return from_ascending(~static_cast<uint32_t>(packed >> 32)); }

inline int32_t id_of(uint64_t packed) { return static_cast<int32_t>(packed & 0xffffffffU); }

// Sorts entries that stand in order of ids: three stable counting passes over the 32 bits of the logit.
inline void sort_packed(std::vector<uint64_t>& entries) {
  if (entries.size() < 1024) {
    std::sort(entries.begin(), entries.end());
    return;
  }
  std::vector<uint64_t> other(entries.size());
  for (int shift = 32; shift < 64; shift += 11) {
    uint32_t start[2048] = {};
    for (const uint64_t entry : entries) ++start[entry >> shift & 2047];
    uint32_t sum = 0;
    for (uint32_t& count : start) {
      const uint32_t here = count;
      count = sum;
      sum += here;
    }
    for (const uint64_t entry : entries) other[start[entry >> shift & 2047]++] = entry;
    entries.swap(other);
  }
}

// The first entries in order of (-logit, id), at least `count` of them (all if there are fewer), sorted.
inline std::vector<uint64_t> leading(const Row& row, size_t count) {
  float least = -std::numeric_limits<float>::infinity();
  if (count <= row.maxima.size() / 2) {
    // The count-th largest of the chunks' maxima: at least `count` logits are as large.
    std::vector<float> maxima = row.maxima;
    const auto nth = maxima.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<float>());
    least = *nth;
  }
  std::vector<uint64_t> entries;
  entries.reserve(count <= row.maxima.size() / 2 ? 4 * count : static_cast<size_t>(row.n));
  for (size_t chunk = 0; chunk < row.maxima.size(); ++chunk) {
    if (row.maxima[chunk] < least) continue;
    const int32_t first = static_cast<int32_t>(chunk) * kChunk;
    for (int32_t id = first; id < row.chunk_end(static_cast<int32_t>(chunk)); ++id) {
      if (row.logits[id] >= least) entries.push_back(pack(row.logits[id], id));
    }
  }
  sort_packed(entries);
  return entries;
}

// Adds pairwise at distances 8, 4, 2, 1.
inline double sum_lanes(double (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

// weights[i] = exp((logits[i] - largest) / temperature).
inline void weigh(const float* logits, size_t n, double largest, double temperature, double* weights) {
  for (size_t i = 0; i < n; ++i) weights[i] = clamp64((logits[i] - largest) / temperature);
  for (size_t i = 0; i < n; ++i) weights[i] = exp64_clamped(weights[i]);
}

// Sum of weights: element i goes to lane i mod 16.
inline double sum_weights(const float* logits, size_t n, double largest, double temperature) {
  double lanes[kLanes] = {};
  double weights[16 * kLanes];
  for (size_t first = 0; first < n; first += std::size(weights)) {
    const float* block = logits + first;
    const size_t size = std::min(std::size(weights), n - first);
    weigh(block, size, largest, temperature, weights);
    for (size_t i = size; i % kLanes != 0; ++i) weights[i] = 0.0;
    for (size_t i = 0; i < size; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) lanes[j] += weights[i + j];
    }
  }
  return sum_lanes(lanes);
}

}  // namespace
}  // namespace pilotfish
