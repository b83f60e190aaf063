#pragma once

#include <nanobind/nanobind.h>

// Adds choose, argmax, margin, probability, digest, philox4x32, exp64 and log64 to the module.
void bind_sampling(nanobind::module_& m);
