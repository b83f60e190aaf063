// Each truncation keeps a prefix of the ids in order of (-logit, id); a `Cut` names the last id kept.

#include "sampling.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <vector>

#include "math64.h"
#include "philox.h"
#include "row.h"

namespace pilotfish {
namespace {

// The last id kept, in order of (-logit, id).
struct Cut {
  float logit;
  int32_t id;

  bool keeps(float other_logit, int32_t other_id) const {
    return other_logit > logit || (other_logit == logit && other_id <= id);
  }
};

constexpr Cut kKeepAll{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};

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

}  // namespace pilotfish
