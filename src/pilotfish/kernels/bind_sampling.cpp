#include "bind_sampling.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "adjust.h"
#include "math64.h"
#include "philox.h"
#include "sampling.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

int32_t size_of(const Logits& logits) {
  if (logits.size() < 1 || logits.size() > (size_t{1} << 30)) {
    throw nb::value_error("a row has 1 to 2**30 logits");
  }
  return static_cast<int32_t>(logits.size());
}

// NumericsFault becomes pilotfish.errors.NumericsError, wherever in the module it is thrown.
void translate(const std::exception_ptr& pointer, void* /*unused*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const pilotfish::NumericsFault& fault) {
    const nb::object error = nb::module_::import_("pilotfish.errors").attr("NumericsError");
    const nb::object hint = nb::module_::import_("pilotfish.sampling").attr("NUMERICS_HINT");
    PyErr_SetObject(error.ptr(), nb::make_tuple(fault.what(), hint).ptr());
  }
}

int32_t choose(const Logits& logits, double temperature, int32_t top_k, double top_p, double min_p,
               uint64_t seed, uint32_t choice, uint64_t position, bool absent,
               const AdjustmentArrays* adjustment) {
  const int32_t n = size_of(logits);
  const nb::gil_scoped_release release;
  return choose_adjusted(logits.data(), n, adjustment, temperature, top_k, top_p, min_p, seed, choice,
                         position, absent);
}

using NewRow = nb::ndarray<nb::numpy, float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

NewRow adjust(const Logits& logits, const AdjustmentArrays& adjustment, bool absent) {
  const int32_t n = size_of(logits);
  auto* out = new float[static_cast<size_t>(n)];
  const nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  pilotfish::adjust(logits.data(), n, adjustment.lists, absent, out);
  return NewRow(out, {static_cast<size_t>(n)}, owner);
}

std::pair<double, std::vector<std::pair<int32_t, double>>> logprobs(const Logits& logits, int32_t token,
                                                                    int32_t count, bool absent) {
  return logprobs_of(logits.data(), size_of(logits), token, count, absent);
}

int32_t argmax(const Logits& logits, bool absent) {
  const int32_t n = size_of(logits);
  const nb::gil_scoped_release release;
  return pilotfish::argmax(logits.data(), n, absent);
}

double margin(const Logits& logits, bool absent) {
  const int32_t n = size_of(logits);
  const nb::gil_scoped_release release;
  return pilotfish::margin(logits.data(), n, absent);
}

double probability(const Logits& logits, int32_t token, bool absent) {
  const int32_t n = size_of(logits);
  if (token < 0 || token >= n) throw nb::index_error("the token is not in the vocabulary");
  const nb::gil_scoped_release release;
  return pilotfish::probability(logits.data(), n, token, absent);
}

uint64_t digest(const Logits& logits) {
  const int32_t n = size_of(logits);
  const nb::gil_scoped_release release;
  return pilotfish::digest(logits.data(), n);
}

std::array<uint32_t, 4> philox(const std::array<uint32_t, 4>& counter, const std::array<uint32_t, 2>& key) {
  const pilotfish::Words words =
      pilotfish::philox4x32({counter[0], counter[1], counter[2], counter[3]}, key[0], key[1]);
  return {words.w0, words.w1, words.w2, words.w3};
}

}  // namespace

AdjustmentArrays::AdjustmentArrays(Array<int32_t> ids_, Array<int32_t> repeated_, Array<int32_t> generated_,
                                   Array<int32_t> biased_, Array<double> bias_, Array<int32_t> banned_,
                                   double presence_penalty, double frequency_penalty, double repeat_penalty)
    : ids(std::move(ids_)),
      repeated(std::move(repeated_)),
      generated(std::move(generated_)),
      biased(std::move(biased_)),
      bias(std::move(bias_)),
      banned(std::move(banned_)) {
  if (repeated.size() != ids.size() || generated.size() != ids.size() || bias.size() != biased.size()) {
    throw nb::value_error("lists that belong together are equally long");
  }
  lists = {ids.data(),    repeated.data(),  generated.data(),  ids.size(),
           biased.data(), bias.data(),      bias.size(),       banned.data(),
           banned.size(), presence_penalty, frequency_penalty, repeat_penalty};
}

int32_t choose_adjusted(const float* logits, int32_t n, const AdjustmentArrays* adjustment,
                        double temperature, int32_t top_k, double top_p, double min_p, uint64_t seed,
                        uint32_t choice, uint64_t position, bool absent) {
  if (adjustment == nullptr) {
    return pilotfish::choose(logits, n, temperature, top_k, top_p, min_p, seed, choice, position, absent);
  }
  thread_local std::vector<float> adjusted;
  adjusted.resize(static_cast<size_t>(n));
  pilotfish::adjust(logits, n, adjustment->lists, absent, adjusted.data());
  return pilotfish::choose(adjusted.data(), n, temperature, top_k, top_p, min_p, seed, choice, position,
                           true);
}

std::pair<double, std::vector<std::pair<int32_t, double>>> logprobs_of(const float* logits, int32_t n,
                                                                       int32_t token, int32_t count,
                                                                       bool absent) {
  if (token < 0 || token >= n) throw nb::index_error("the token is not in the vocabulary");
  if (count < 0) throw nb::value_error("the number of likeliest tokens is 0 or more");
  const nb::gil_scoped_release release;
  pilotfish::Logprobs found = pilotfish::logprobs(logits, n, token, count, absent);
  return {found.token, std::move(found.top)};
}

void bind_sampling(nb::module_& m) {
  nb::register_exception_translator(translate);
  nb::class_<AdjustmentArrays>(m, "Adjustment", "Lists of ids whose logits are changed; see adjusting.py.")
      .def(nb::init<AdjustmentArrays::Array<int32_t>, AdjustmentArrays::Array<int32_t>,
                    AdjustmentArrays::Array<int32_t>, AdjustmentArrays::Array<int32_t>,
                    AdjustmentArrays::Array<double>, AdjustmentArrays::Array<int32_t>, double, double,
                    double>(),
           nb::arg("ids").noconvert(), nb::arg("repeated").noconvert(), nb::arg("generated").noconvert(),
           nb::arg("biased").noconvert(), nb::arg("bias").noconvert(), nb::arg("banned").noconvert(),
           "presence_penalty"_a, "frequency_penalty"_a, "repeat_penalty"_a);
  const auto logits = [] { return nb::arg("logits").noconvert(); };
  const auto absent = [] { return nb::arg("absent") = false; };  // -inf is an id that can't be said
  m.def("choose", choose, logits(), "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a, "choice"_a,
        "position"_a, absent(), nb::arg("adjustment").none() = nb::none(),
        "The token that pilotfish.sampling.choose gives; the parameters must be valid.");
  m.def("adjust", adjust, logits(), "adjustment"_a, absent(), "A copy of the row, adjusted.");
  m.def("logprobs", logprobs, logits(), "token"_a, "count"_a, absent(),
        "log(softmax(logits)) of a token, and (id, log-probability) of the `count` likeliest.");
  m.def("argmax", argmax, logits(), absent(), "The id with the largest logit, the lowest one on a tie.");
  m.def("margin", margin, logits(), absent(), "The largest logit minus the second largest.");
  m.def("probability", probability, logits(), "token"_a, absent(),
        "softmax(logits)[token] at temperature 1.");
  m.def("digest", digest, logits(), "A 64-bit hash of the row's bits.");
  m.def("philox4x32", philox, "counter"_a, "key"_a, "Philox4x32-10.");
  m.def("exp64", pilotfish::exp64, "x"_a, "exp(max(x, -708)) for x <= 709.");
  m.def("log64", pilotfish::log64, "x"_a, "log(x) for normal, positive, finite x.");
}
