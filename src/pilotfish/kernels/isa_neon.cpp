#include "kernels.h"
#include "simd_neon.h"
//
#include "tile_in_fours.inl"
//
#include "isa_body.inl"

const pilotfish::Kernels* pilotfish::kernels_neon() {
  static const Kernels table = make_table("neon");
  return &table;
}
