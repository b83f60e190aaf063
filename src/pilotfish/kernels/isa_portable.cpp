#include "kernels.h"
#include "simd_portable.h"
//
#include "tile_in_fours.inl"
//
#include "isa_body.inl"

const pilotfish::Kernels* pilotfish::kernels_portable() {
  static const Kernels table = make_table("portable");
  return &table;
}
