// How fast this machine reads memory: what a pass over all weights is measured against.
#pragma once
#include <cstddef>

namespace pilotfish {

// Bytes a second of the best of `repeats` reads of `bytes` bytes with so many threads; throws std::bad_alloc.
double read_bandwidth(size_t bytes, int threads, int repeats);

}  // namespace pilotfish
