#include "dispatch.h"

#if defined(PILOTFISH_X86)
#include <cpuid.h>
#endif
#if defined(PILOTFISH_NEON) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace pilotfish {
namespace {

#if defined(PILOTFISH_X86)
bool has_f16c() {  // clang's __builtin_cpu_supports doesn't know the name
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool runs_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

#if defined(PILOTFISH_AVXVNNI)
bool runs_avxvnni() {  // some compilers' __builtin_cpu_supports don't know the name
  unsigned a, b, c, d;
  return runs_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}
#endif

#if defined(PILOTFISH_NEON)
bool runs_neon() {
#if defined(__APPLE__)
  return true;  // every Mac with an ARM processor has dot products
#elif defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}
#endif

struct Isa {
  const char* name;
  bool (*runs)();
  const Kernels* (*kernels)();
};

// Those that this build has, best first.
constexpr Isa kIsas[] = {
#if defined(PILOTFISH_X86)
    {"avx512", runs_avx512, kernels_avx512},
#endif
#if defined(PILOTFISH_AVXVNNI)
    {"avxvnni", runs_avxvnni, kernels_avxvnni},
#endif
#if defined(PILOTFISH_X86)
    {"avx2", runs_avx2, kernels_avx2},
#endif
#if defined(PILOTFISH_NEON)
    {"neon", runs_neon, kernels_neon},
#endif
    {"portable", [] { return true; }, kernels_portable}};

}  // namespace

std::vector<std::string> available_isas() {
  std::vector<std::string> all;
  for (const Isa& isa : kIsas)
    if (isa.runs()) all.emplace_back(isa.name);
  return all;
}

const Kernels* kernels_for(const std::string& name) {
  for (const Isa& isa : kIsas)
    if (name == isa.name && isa.runs()) return isa.kernels();
  return nullptr;
}

}  // namespace pilotfish
