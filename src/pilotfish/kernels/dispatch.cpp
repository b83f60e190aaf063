#include "dispatch.h"

#if defined(PILOTFISH_X86)
#include <cpuid.h>
#endif

namespace pilotfish {

#if !defined(PILOTFISH_X86)
const Kernels* kernels_avx2() { return nullptr; }
const Kernels* kernels_avx512() { return nullptr; }
#endif

namespace {

#if defined(PILOTFISH_X86)
bool has_f16c() {  // clang's __builtin_cpu_supports doesn't know the name
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool runs(const std::string& isa) {
  if (isa == "portable") return true;
#if defined(PILOTFISH_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
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
