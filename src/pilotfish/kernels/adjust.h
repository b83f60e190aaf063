// What a few logits of a row are changed by before a token is chosen: the C++ twin of pilotfish/adjusting.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pilotfish {

// Lists of ids; ids outside the row are passed over, no id stands twice in `ids` or in `biased`.
struct Adjustment {
  const int32_t* ids = nullptr;        // ids that have occurred
  const int32_t* repeated = nullptr;   // how often, in the window of repeat_penalty
  const int32_t* generated = nullptr;  // how often, in the answer
  size_t id_count = 0;
  const int32_t* biased = nullptr;
  const double* bias = nullptr;
  size_t bias_count = 0;
  const int32_t* banned = nullptr;
  size_t ban_count = 0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repeat_penalty = 1.0;
};

// Writes the row of `n` >= 1 logits to `out`, adjusted; the logit of a banned id is -inf. Throws
// NumericsFault on NaN or +-inf in the row; with `absent`, -inf is an id that can't be said, and stays so.
void adjust(const float* logits, int32_t n, const Adjustment& adjustment, bool absent, float* out);

}  // namespace pilotfish
