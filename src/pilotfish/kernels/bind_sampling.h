#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "adjust.h"

// An Adjustment, and the arrays it points into.
struct AdjustmentArrays {
  template <class T>
  using Array = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

  // ids, repeated and generated are equally long, biased and bias too.
  AdjustmentArrays(Array<int32_t> ids, Array<int32_t> repeated, Array<int32_t> generated,
                   Array<int32_t> biased, Array<double> bias, Array<int32_t> banned, double presence_penalty,
                   double frequency_penalty, double repeat_penalty);

  Array<int32_t> ids, repeated, generated, biased;
  Array<double> bias;
  Array<int32_t> banned;
  pilotfish::Adjustment lists;
};

// The token chosen from a row, adjusted first unless `adjustment` is null. The caller need not hold the GIL.
int32_t choose_adjusted(const float* logits, int32_t n, const AdjustmentArrays* adjustment,
                        double temperature, int32_t top_k, double top_p, double min_p, uint64_t seed,
                        uint32_t choice, uint64_t position, bool absent);

// As pilotfish::logprobs, checked, for Python; the caller holds the GIL, which is released meanwhile.
std::pair<double, std::vector<std::pair<int32_t, double>>> logprobs_of(const float* logits, int32_t n,
                                                                       int32_t token, int32_t count,
                                                                       bool absent);

// Adds Adjustment, choose, adjust, argmax, margin, probability, logprobs, digest, philox4x32, exp64 and log64
// to the module.
void bind_sampling(nanobind::module_& m);
