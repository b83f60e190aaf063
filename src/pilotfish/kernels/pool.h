// One process-wide pool of threads, leased for a pass.
#pragma once
#include <atomic>
#include <cstdint>

namespace pilotfish {

// Meets all threads of a pass; spins, since the others are at most microseconds away, and yields when they
// aren't.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}
  void wait();

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> phase_{0};
};

// Runs body(argument, thread) on `threads` threads, the caller being thread 0, and returns when all are done.
// Passes of several engines take turns. Workers spin for some milliseconds after a pass, then sleep; a
// forked child gets workers of its own. Denormals are kept (FTZ and DAZ off) for the time of the body, then
// restored.
void run_on_threads(int threads, void (*body)(void*, int), void* argument);

template <class Body>
void run_on_threads(int threads, Body& body) {
  run_on_threads(threads, [](void* b, int thread) { (*static_cast<Body*>(b))(thread); }, &body);
}

}  // namespace pilotfish
