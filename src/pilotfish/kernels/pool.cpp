#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pilotfish {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int kSpins = 2000;  // tens of microseconds
// How long a worker looks out for the next pass. Choosing tokens and deciding what to draft take up to 2 ms,
// for eight sequences 5, and a virtual machine may take as long again to wake a processor that sleeps.
constexpr auto kAwake = std::chrono::microseconds(10000);

// The floating-point modes that the numeric rules ask for, for the time of a scope.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#elif defined(__aarch64__)
  FloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~FloatMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }

 private:
  uint64_t saved_;
#endif
};

class Pool {
 public:
  void run(int threads, void (*body)(void*, int), void* argument) {
    const std::lock_guard<std::mutex> lease(lease_);
    grow(threads - 1);
    body_ = body;
    argument_ = argument;
    threads_ = threads;
    if (threads > 1) {
      working_.store(workers_,
                     std::memory_order_relaxed);  // idle ones report too: none may oversleep a generation
      generation_.fetch_add(1, std::memory_order_seq_cst);
      if (asleep_.load(std::memory_order_seq_cst) > 0) {
        const std::lock_guard<std::mutex> lock(sleep_);
        wake_.notify_all();
      }
    }
    {
      const FloatMode mode;
      body(argument, 0);
    }
    for (int spin = 0; working_.load(std::memory_order_acquire) > 0; spin++)
      spin < kSpins ? relax() : (void)sched_yield();
  }

 private:
  void grow(int workers) {
    for (; workers_ < workers; workers_++) {
      const uint32_t seen = generation_.load(std::memory_order_relaxed);
      std::thread([this, index = workers_, seen] { work(index, seen); }).detach();
    }
  }

  void work(int index, uint32_t seen) {
    const FloatMode mode;
    for (;;) {
      seen = next_generation(seen);
      if (index + 1 < threads_) body_(argument_, index + 1);
      working_.fetch_sub(1, std::memory_order_release);
    }
  }

  uint32_t next_generation(uint32_t seen) {
    const auto start = std::chrono::steady_clock::now();
    for (int spin = 1;; spin++) {
      const uint32_t now = generation_.load(std::memory_order_acquire);
      if (now != seen) return now;
      relax();
      if (spin % 64 != 0) continue;
      if (spin % 1024 == 0) sched_yield();
      if (std::chrono::steady_clock::now() - start < kAwake) continue;
      std::unique_lock<std::mutex> lock(sleep_);
      asleep_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_seq_cst) != seen; });
      asleep_.fetch_sub(1, std::memory_order_relaxed);
      return generation_.load(std::memory_order_acquire);
    }
  }

  std::mutex lease_, sleep_;
  std::condition_variable wake_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> working_{0}, asleep_{0};
  int workers_ = 0;
  int threads_ = 0;
  void (*body_)(void*, int) = nullptr;
  void* argument_ = nullptr;
};

std::atomic<Pool*> pool{nullptr};

Pool& the_pool() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Threads don't survive a fork: the child forgets the pool (its memory stays) and makes another when it
    // needs one.
    pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr, std::memory_order_relaxed); });
  });
  Pool* existing = pool.load(std::memory_order_acquire);
  if (existing == nullptr) {
    Pool* fresh = new Pool;
    if (pool.compare_exchange_strong(existing, fresh)) return *fresh;
    delete fresh;
  }
  return *existing;
}

}  // namespace

void Barrier::wait() {
  if (threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  for (int spin = 0; phase_.load(std::memory_order_acquire) == phase; spin++)
    spin < kSpins ? relax() : (void)sched_yield();
}

void run_on_threads(int threads, void (*body)(void*, int), void* argument) {
  the_pool().run(threads, body, argument);
}

}  // namespace pilotfish
