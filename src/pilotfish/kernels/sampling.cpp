// Compiled with -ffp-contract=off; plain loops that compilers vectorise, no intrinsics.
//
// A row is cut into chunks of 64 ids whose largest logits are kept, so that most work skips most chunks.
// Each truncation keeps a prefix of the ids in order of (-logit, id); a `Cut` names the last id kept.

#include "sampling.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "math64.h"
#include "philox.h"

namespace pilotfish {
namespace {

constexpr int kChunk = 64;
constexpr int kLanes = 16;

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr float kAbsent = -std::numeric_limits<float>::infinity();

// Whether a value is a fault; the bits of the one infinity that is none come as `allowed`.
bool is_fault(float value, uint32_t allowed) {
  const uint32_t bits = bits_of(value);
  return ((bits & 0x7f800000U) == 0x7f800000U) & (bits != allowed);
}

// 0 is no infinity, so nothing is let through.
uint32_t allowed_bits(bool absent) { return absent ? bits_of(kAbsent) : 0U; }

[[noreturn]] void throw_fault(const float* logits, int32_t n, uint32_t allowed) {
  int32_t id = 0;
  while (id < n - 1 && !is_fault(logits[id], allowed)) ++id;
  const float value = logits[id];
  const char* name = value > 0 ? "inf" : value < 0 ? "-inf" : "nan";
  throw NumericsFault("the logit of token " + std::to_string(id) + " is " + name);
}

bool no_fault(const float* logits, int32_t n, uint32_t allowed) {
  uint32_t bad = 0;
  for (int32_t i = 0; i < n; ++i) bad |= is_fault(logits[i], allowed) ? 1U : 0U;
  return bad == 0;
}

void check(const float* logits, int32_t n, bool absent) {
  const uint32_t allowed = allowed_bits(absent);
  if (!no_fault(logits, n, allowed)) throw_fault(logits, n, allowed);
}

void check_any(float largest) {
  if (largest == kAbsent) throw NumericsFault("no token has a logit");
}

float larger(float a, float b) { return a > b ? a : b; }

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

// The last id kept, in order of (-logit, id).
struct Cut {
  float logit;
  int32_t id;

  bool keeps(float other_logit, int32_t other_id) const {
    return other_logit > logit || (other_logit == logit && other_id <= id);
  }
};

constexpr Cut kKeepAll{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};

// A logit and its id in 64 bits that sort ascending in order of (-logit, id); -0.0 equals 0.0.
uint32_t ascending(float logit) {
  const uint32_t bits = bits_of(logit + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

float from_ascending(uint32_t key) { return float_of((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key); }

uint64_t pack(float logit, int32_t id) {
  return uint64_t{~ascending(logit)} << 32 | static_cast<uint32_t>(id);
}

float logit_of(uint64_t packed) { return from_ascending(~static_cast<uint32_t>(packed >> 32)); }

int32_t id_of(uint64_t packed) { return static_cast<int32_t>(packed & 0xffffffffU); }

// Sorts entries that stand in order of ids: three stable counting passes over the 32 bits of the logit.
void sort_packed(std::vector<uint64_t>& entries) {
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
std::vector<uint64_t> leading(const Row& row, size_t count) {
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
double sum_lanes(double (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

// weights[i] = exp((logits[i] - largest) / temperature).
void weigh(const float* logits, size_t n, double largest, double temperature, double* weights) {
  for (size_t i = 0; i < n; ++i) weights[i] = clamp64((logits[i] - largest) / temperature);
  for (size_t i = 0; i < n; ++i) weights[i] = exp64_clamped(weights[i]);
}

// Sum of weights: element i goes to lane i mod 16.
double sum_weights(const float* logits, size_t n, double largest, double temperature) {
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

double sum_kept_weights(const Row& row, const Cut& cut, double temperature) {
  const double largest = row.logits[row.top];
  if (cut.logit == kKeepAll.logit) {
    return sum_weights(row.logits, static_cast<size_t>(row.n), largest, temperature);
  }
  std::vector<float> kept;
  for (size_t chunk = 0; chunk < row.maxima.size(); ++chunk) {
    if (row.maxima[chunk] < cut.logit) continue;
    const int32_t first = static_cast<int32_t>(chunk) * kChunk;
    for (int32_t id = first; id < row.chunk_end(static_cast<int32_t>(chunk)); ++id) {
      if (cut.keeps(row.logits[id], id)) kept.push_back(row.logits[id]);
    }
  }
  return sum_weights(kept.data(), kept.size(), largest, temperature);
}

Cut cut_top_k(const Row& row, int32_t top_k) {
  if (top_k == 0 || top_k >= row.n) return kKeepAll;
  const auto last = leading(row, static_cast<size_t>(top_k))[static_cast<size_t>(top_k) - 1];
  return {logit_of(last), id_of(last)};
}

// Narrows `cut`: the first entry at which the running sum reaches top_p of the whole is the last one kept.
Cut cut_top_p(const Row& row, const Cut& cut, double top_p, double temperature) {
  if (top_p >= 1.0) return cut;
  const double largest = row.logits[row.top];
  const double wanted = top_p * sum_kept_weights(row, cut, temperature);
  double sum = 0.0;
  size_t done = 0;
  for (size_t count = 64; done < static_cast<size_t>(row.n); count *= 8) {
    const std::vector<uint64_t> entries = leading(row, count);
    while (done < entries.size()) {
      float logits[64];
      double weights[64];
      const size_t size = std::min(std::size(weights), entries.size() - done);
      for (size_t i = 0; i < size; ++i) logits[i] = logit_of(entries[done + i]);
      weigh(logits, size, largest, temperature, weights);
      for (size_t i = 0; i < size; ++i) {
        const Cut here{logits[i], id_of(entries[done + i])};
        sum += weights[i];
        if (sum >= wanted) return here;
        if (here.logit == cut.logit && here.id == cut.id) return cut;
      }
      done += size;
    }
  }
  return cut;
}

// Narrows `cut` to the logits with (logit - largest) / temperature >= log(min_p), by bisection over floats.
Cut cut_min_p(const Row& row, const Cut& cut, double min_p, double temperature) {
  if (min_p == 0.0) return cut;
  const double largest = row.logits[row.top];
  const double least = log64(std::max(min_p, std::numeric_limits<double>::min()));
  const auto kept = [&](uint32_t key) { return (from_ascending(key) - largest) / temperature >= least; };
  uint32_t low = ascending(-std::numeric_limits<float>::max());
  if (kept(low)) return cut;
  uint32_t high = ascending(row.logits[row.top]);
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (kept(middle) ? high : low) = middle;
  }
  const Cut other{from_ascending(high), kKeepAll.id};
  return other.logit > cut.logit ? other : cut;
}

// The noise of one request at one position.
struct Noise {
  uint32_t key0, key1, position0, position1, choice;

  Noise(uint64_t seed, uint32_t choice_index, uint64_t position)
      : key0(static_cast<uint32_t>(seed)),
        key1(static_cast<uint32_t>(seed >> 32)),
        position0(static_cast<uint32_t>(position)),
        position1(static_cast<uint32_t>(position >> 32)),
        choice(choice_index) {}

  // Word i of the block is for token 4 * block + i: the upper 32 of its 64 bits; with kLower the lower 32.
  // (So the upper bits, which alone rule out nearly all tokens, cost a quarter of a Philox call each.)
  static constexpr uint32_t kLower = 0x80000000U;

  Words words(uint32_t block) const { return philox4x32({block, position0, position1, choice}, key0, key1); }

  double gumbel(int32_t id) const {
    const uint32_t block = static_cast<uint32_t>(id) / 4;
    const Words upper = words(block);
    const Words lower = words(block | kLower);
    const uint32_t uppers[] = {upper.w0, upper.w1, upper.w2, upper.w3};
    const uint32_t lowers[] = {lower.w0, lower.w1, lower.w2, lower.w3};
    const uint64_t bits = uint64_t{uppers[id % 4]} << 32 | lowers[id % 4];
    const double u = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
    // x + 1/2 rounds to even from 2^52 on, so the last of the 2^53 values would be 1.
    return -log64(-log64(u < 1.0 ? u : 1.0 - 0x1p-53));
  }
};

// Gumbel-max over the kept ids. Token i scores s + g with s = (logit - largest) / temperature and g = -log E,
// E = -log u. Few tokens can win, and one cheap bound finds nearly all that can't:
//
//   With W the upper 32 of the token's 64 random bits, u <= (W + 1) 2^-32, so E >= 1 - u >= V 2^-31 for
//   V = floor((2^32 - 1 - W) / 2). A float's bits, read as an integer over 2^23, less 127, are at most the
//   log2 of the float (m <= log2(1 + m) on [0, 1]). So log2 E >= bits(float(V)) 2^-23 - 158, and
//
//       (s + g) log2 e  <=  s log2 e - bits(float(V)) 2^-23 + 158.
//
//   The token is passed over if the right side is below best * log2 e - 1/64. Rounding in float is below that
//   1/64 while |s| log2 e < 2^14 (relative error of s: 2^-22; of the bits' 158 and of sums: 2^-16 at most).
//   And beyond, no token can win: E >= 2^-53 means g < 37, while `best` is at least the score of the largest
//   logit, which has s = 0 and E < 38, so above -4. NaN (0 times infinity) is below nothing: it is looked at.
class Race {
 public:
  Race(const Row& row, const Cut& cut, double temperature, const Noise& noise)
      : row_(row),
        cut_(cut),
        temperature_(temperature),
        noise_(noise),
        largest_(row.logits[row.top]),
        half_largest_(0.5F * row.logits[row.top]),
        // A smaller factor only weakens the bound. The logits are halved so that no difference overflows.
        scale_(static_cast<float>(std::min(2.0 * kLog2E / temperature, 1e30))),
        best_(noise.gumbel(row.top)),
        winner_(row.top) {}

  int32_t run() {
    for (size_t c = 0; c < row_.maxima.size(); ++c) {
      if (row_.maxima[c] < cut_.logit) continue;
      // 53 is the largest g log2 e.
      if ((0.5F * row_.maxima[c] - half_largest_) * scale_ + 54.0F < threshold()) continue;
      const int32_t first = static_cast<int32_t>(c) * kChunk;
      const int32_t size = row_.chunk_end(static_cast<int32_t>(c)) - first;
      if (size == kChunk) {
        filter(row_.logits + first, first);
      } else {
        float padded[kChunk] = {};
        std::copy_n(row_.logits + first, size, padded);
        filter(padded, first);
      }
      uint32_t any = 0;
      for (int i = 0; i < kChunk; ++i) any |= possible_[i];
      for (int32_t i = 0; any != 0 && i < size; ++i) {
        if (possible_[i] != 0) look(first + i);
      }
    }
    return winner_;
  }

 private:
  float threshold() const { return static_cast<float>(best_ * kLog2E - 1.0 / 64); }

  void filter(const float* chunk, int32_t first) {
    const Noise noise = noise_;
    const uint32_t first_block = static_cast<uint32_t>(first) / 4;
    uint32_t upper[kChunk];
    for (uint32_t i = 0; i < kChunk / 4; ++i) {
      const Words words = noise.words(first_block + i);
      upper[4 * i] = words.w0;
      upper[4 * i + 1] = words.w1;
      upper[4 * i + 2] = words.w2;
      upper[4 * i + 3] = words.w3;
    }
    const float half_largest = half_largest_;
    const float scale = scale_;
    const float least = threshold() - 158.0F;
    for (int i = 0; i < kChunk; ++i) {
      const float v = static_cast<float>(static_cast<int32_t>(~upper[i] >> 1));
      const float log2_v = static_cast<float>(static_cast<int32_t>(bits_of(v))) * 0x1p-23F;
      possible_[i] = (0.5F * chunk[i] - half_largest) * scale - log2_v < least ? 0U : 1U;
    }
  }

  void look(int32_t id) {
    if (!cut_.keeps(row_.logits[id], id)) return;
    const double score = (row_.logits[id] - largest_) / temperature_ + noise_.gumbel(id);
    if (score > best_ || (score == best_ && id < winner_)) {
      best_ = score;
      winner_ = id;
    }
  }

  const Row& row_;
  const Cut cut_;
  const double temperature_;
  const Noise noise_;
  const double largest_;
  const float half_largest_;
  const float scale_;
  double best_;
  int32_t winner_;
  uint32_t possible_[kChunk];
};

}  // namespace

int32_t choose(const float* logits, int32_t n, double temperature, int32_t top_k, double top_p, double min_p,
               uint64_t seed, uint32_t choice, uint64_t position, bool absent) {
  const Row row(logits, n, absent);
  if (temperature == 0.0) return row.top;
  Cut cut = cut_top_k(row, top_k);
  cut = cut_top_p(row, cut, top_p, temperature);
  cut = cut_min_p(row, cut, min_p, temperature);
  return Race(row, cut, temperature, Noise(seed, choice, position)).run();
}

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
