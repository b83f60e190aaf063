#include "bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "pool.h"
#include "weights.h"

namespace pilotfish {

double read_bandwidth(size_t bytes, int threads, int repeats) {
  constexpr size_t kLine = 64;
  bytes = std::max<size_t>(bytes / kLine, 1) * kLine;
  Arena arena(bytes);
  uint8_t* data = arena.take(bytes);
  std::vector<uint64_t> sums(static_cast<size_t>(threads) *
                             8);  // a cache line apart; kept, or nothing is read
  const auto part = [&](int thread, auto work) {
    const size_t lines = bytes / kLine;
    const size_t begin = lines * thread / threads, end = lines * (thread + 1) / threads;
    work(data + begin * kLine, (end - begin) * kLine);
  };
  auto touch = [&](int thread) { part(thread, [](uint8_t* p, size_t n) { std::memset(p, 1, n); }); };
  run_on_threads(threads, touch);

  double best = 0;
  for (int i = 0; i < repeats; i++) {
    auto read = [&](int thread) {
      part(thread, [&](const uint8_t* p, size_t n) {
        uint64_t sum[8] = {};
        for (size_t at = 0; at < n; at += kLine) {
          uint64_t line[8];
          std::memcpy(line, p + at, kLine);
          for (int j = 0; j < 8; j++) sum[j] += line[j];
        }
        for (const uint64_t s : sum) sums[static_cast<size_t>(thread) * 8] += s;
      });
    };
    const auto start = std::chrono::steady_clock::now();
    run_on_threads(threads, read);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes) / took.count());
  }
  return best;
}

}  // namespace pilotfish
