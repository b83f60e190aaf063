#include "kernels.h"
#include "simd_avx2.h"
//
#include "tile_in_fours.inl"
//
#include "isa_body.inl"

const pilotfish::Kernels* pilotfish::kernels_avx2() {
  static const Kernels table = make_table("avx2");
  return &table;
}
