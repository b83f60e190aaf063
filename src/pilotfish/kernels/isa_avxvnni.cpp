#include "kernels.h"
#include "simd_avxvnni.h"
//
#include "tile_in_fours.inl"
//
#include "isa_body.inl"

const pilotfish::Kernels* pilotfish::kernels_avxvnni() {
  static const Kernels table = make_table("avxvnni");
  return &table;
}
