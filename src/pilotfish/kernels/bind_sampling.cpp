#include "bind_sampling.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>

#include <array>
#include <cstdint>
#include <exception>

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
               uint64_t seed, uint32_t choice, uint64_t position, bool absent) {
  const int32_t n = size_of(logits);
  const nb::gil_scoped_release release;
  return pilotfish::choose(logits.data(), n, temperature, top_k, top_p, min_p, seed, choice, position,
                           absent);
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

void bind_sampling(nb::module_& m) {
  nb::register_exception_translator(translate);
  const auto logits = [] { return nb::arg("logits").noconvert(); };
  const auto absent = [] { return nb::arg("absent") = false; };  // -inf is an id that can't be said
  m.def("choose", choose, logits(), "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a, "choice"_a,
        "position"_a, absent(),
        "The token that pilotfish.sampling.choose gives; the parameters must be valid.");
  m.def("argmax", argmax, logits(), absent(), "The id with the largest logit, the lowest one on a tie.");
  m.def("margin", margin, logits(), absent(), "The largest logit minus the second largest.");
  m.def("probability", probability, logits(), "token"_a, absent(),
        "softmax(logits)[token] at temperature 1.");
  m.def("digest", digest, logits(), "A 64-bit hash of the row's bits.");
  m.def("philox4x32", philox, "counter"_a, "key"_a, "Philox4x32-10.");
  m.def("exp64", pilotfish::exp64, "x"_a, "exp(max(x, -708)) for x <= 709.");
  m.def("log64", pilotfish::log64, "x"_a, "log(x) for normal, positive, finite x.");
}
