#include "dispatch.h"

namespace pilotfish {

#if !defined(PILOTFISH_X86)
const Kernels* kernels_avx2() { return nullptr; }
const Kernels* kernels_avx512() { return nullptr; }
#endif

namespace {

bool runs(const std::string& isa) {
  if (isa == "portable") return true;
#if defined(PILOTFISH_X86)
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == "avx2") return avx2;
  if (isa == "avx512")
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
#endif
  return false;
}

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> all;
  for (const char* isa : {"avx512", "avx2", "portable"})
    if (runs(isa)) all.emplace_back(isa);
  return all;
}

const Kernels* kernels_for(const std::string& isa) {
  if (!runs(isa)) return nullptr;
  if (isa == "avx512") return kernels_avx512();
  if (isa == "avx2") return kernels_avx2();
  return kernels_portable();
}

}  // namespace pilotfish
