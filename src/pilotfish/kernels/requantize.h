// Weights rounded to four bits and their scales, for draft models: they need not be exact.
#pragma once
#include "kernels.h"
#include "weights.h"

namespace pilotfish {

// Rows of `from`, of any type, become rows first.. of `to`, of type Q4_0 and as long. `first` and the number
// of rows are whole groups of 16 unless these are the last rows.
//
// A step is, in a block of 32, the weight of largest size over -8, and each weight becomes the nearest of
// -8..7 steps (ggml's rule). It keeps the largest weights: a step of least squared error was worse for
// drafts, though it is nearer on average. A step beyond a half's range becomes its largest number; that of a
// block with a NaN or an infinity becomes NaN, so that a pass says so.
void requantize(const Kernels& kernels, const Weight& from, Weight& to, int64_t first, int threads);

}  // namespace pilotfish
