// Intel's vectors on a CPU that has AVX2 only: found before the compiler's own header, it lets SIMDe stand in
// for AVX-512 and AVX-VNNI.
#pragma once
#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulated {

// Not inline: these are many instructions in many places, which would take minutes to compile.
__attribute__((noinline, unused)) static __m256i dpbusd(__m256i sum, __m256i a, __m256i b) {
  return simde_mm256_dpbusd_epi32(sum, a, b);
}
__attribute__((noinline, unused)) static simde__m512i dpbusd(const simde__m512i& sum, const simde__m512i& a,
                                                             const simde__m512i& b) {
  return simde_mm512_dpbusd_epi32(sum, a, b);
}

// What SIMDe 0.7.4 lacks, lane by lane.
template <class To, class ToLane, class FromLane, class From, class Convert>
inline To lane_by_lane(const From& from, const Convert& convert) {
  constexpr int kLanes = sizeof(To) / sizeof(ToLane);
  static_assert(sizeof(From) / sizeof(FromLane) == kLanes);
  FromLane x[kLanes];
  ToLane y[kLanes];
  std::memcpy(x, &from, sizeof(from));
  for (int i = 0; i < kLanes; i++) y[i] = static_cast<ToLane>(convert(x[i]));
  To to;
  std::memcpy(&to, y, sizeof(to));
  return to;
}

inline simde__m512 cvtepi32_ps(const simde__m512i& a) {
  return lane_by_lane<simde__m512, float, int32_t>(a, [](int32_t x) { return static_cast<float>(x); });
}
inline simde__m512i cvtps_epi32(const simde__m512& a) {
  return lane_by_lane<simde__m512i, int32_t, float>(a, [](float x) {
    return std::fabs(x) < 2147483648.0f ? static_cast<int32_t>(std::nearbyint(x)) : INT32_MIN;
  });
}
inline simde__m512i cvtepu8_epi32(const __m128i& a) {
  return lane_by_lane<simde__m512i, uint32_t, uint8_t>(a, [](uint8_t x) { return x; });
}
inline simde__m512i cvtepi8_epi32(const __m128i& a) {
  return lane_by_lane<simde__m512i, int32_t, int8_t>(a, [](int8_t x) { return x; });
}
inline simde__m512i cvtepu16_epi32(const __m256i& a) {
  return lane_by_lane<simde__m512i, uint32_t, uint16_t>(a, [](uint16_t x) { return x; });
}
inline simde__m512 cvtph_ps(const __m256i& a) {
  return lane_by_lane<simde__m512, float, uint16_t>(a, [](uint16_t x) { return _cvtsh_ss(x); });
}
template <int Rounding>
inline __m256i cvtps_ph(const simde__m512& a) {
  return lane_by_lane<__m256i, uint16_t, float>(a, [](float x) { return _cvtss_sh(x, Rounding); });
}

}  // namespace emulated

#undef _mm256_dpbusd_avx_epi32
#undef _mm512_dpbusd_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#define _mm256_dpbusd_avx_epi32 emulated::dpbusd
#define _mm512_dpbusd_epi32 emulated::dpbusd
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#define _mm512_cvtepu8_epi32 emulated::cvtepu8_epi32
#define _mm512_cvtepi8_epi32 emulated::cvtepi8_epi32
#define _mm512_cvtepu16_epi32 emulated::cvtepu16_epi32
#define _mm512_cvtph_ps emulated::cvtph_ps
#define _mm512_cvtps_ph(x, rounding) emulated::cvtps_ph<rounding>(x)
