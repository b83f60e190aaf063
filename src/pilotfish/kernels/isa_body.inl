// All kernels of one instruction set; each isa_*.cpp includes its vectors, then this.
// Everything has internal linkage, so no code compiled for one machine can be linked into another's path.
#include "lanes.h"
//
#include "attention.inl"
#include "matmul.inl"
#include "rowwise.inl"

namespace {

pilotfish::Kernels make_table(const char* name) {
  using pilotfish::Type;
  pilotfish::Kernels k{};
  k.name = name;
  k.max_tokens = V::kMaxTokens;
  const auto tiles = [&](Type t) { return k.tile[static_cast<int>(t)]; };
  fill_floats<float, V::load>(tiles(Type::F32));
  fill_floats<uint16_t, V::load_half>(tiles(Type::F16));
  fill_floats<uint16_t, V::load_bf16>(tiles(Type::BF16));
  fill<FormatQ4_0>(tiles(Type::Q4_0));
  fill<FormatQ4_1>(tiles(Type::Q4_1));
  fill<FormatQ5_0>(tiles(Type::Q5_0));
  fill<FormatQ5_1>(tiles(Type::Q5_1));
  fill<FormatQ8_0>(tiles(Type::Q8_0));
  fill<FormatQ2_K>(tiles(Type::Q2_K));
  fill<FormatQ3_K>(tiles(Type::Q3_K));
  fill<FormatQ4_K>(tiles(Type::Q4_K));
  fill<FormatQ5_K>(tiles(Type::Q5_K));
  fill<FormatQ6_K>(tiles(Type::Q6_K));
  fill<FormatIQ4_NL>(tiles(Type::IQ4_NL));
  fill<FormatIQ4_XS>(tiles(Type::IQ4_XS));
  fill<FormatMXFP4>(tiles(Type::MXFP4));
  k.dequantize = dequantize;
  k.tile_float = tile_float;
  k.rms_norm = rms_norm;
  k.quantize = quantize;
  k.silu_mul = silu_mul;
  k.gelu_mul = gelu_mul;
  k.rope = rope;
  k.scale = scale;
  k.to_half = to_half;
  k.attend = attend;
  k.merge = merge;
  k.finish = finish;
  return k;
}

}  // namespace
