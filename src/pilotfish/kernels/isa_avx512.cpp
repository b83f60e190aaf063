#include "kernels.h"
#include "simd_avx512.h"
//
#include "tile_in_registers.inl"
//
#include "isa_body.inl"

const pilotfish::Kernels* pilotfish::kernels_avx512() {
  static const Kernels table = make_table("avx512");
  return &table;
}
