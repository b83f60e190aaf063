// Compares the kernels of one instruction set with the portable ones, bit by bit: `make emulate`. Its output
// is a digest of the portable results, which must be the same on every kind of processor.
//
// PILOTFISH_KERNELS is the function that returns the kernels in question.
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "half.h"
#include "kernels.h"

namespace {

using namespace pilotfish;

const Kernels& tested = *PILOTFISH_KERNELS();
const Kernels& portable = *kernels_portable();

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Distributions of the standard library differ between libraries; bits and products don't.
std::mt19937 bits(1);
uint32_t below(uint32_t n) { return static_cast<uint32_t>(bits()) % n; }
float number(float size = 1.0f) {  // within +-2 size
  return static_cast<float>(static_cast<int32_t>(bits())) * bits_to_float(0x30800000u) * size;
}
uint16_t half() {  // below 2, subnormals and zero included
  return static_cast<uint16_t>(below(2) << 15 | below(0x4000));
}
std::vector<float> numbers(size_t n, float size = 1.0f) {
  std::vector<float> x(n);
  for (float& f : x) f = number(size);
  return x;
}

long compared = 0, different = 0;
uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a

// Any NaN is like any other: which one comes out depends on the order of operands, which compilers swap.
void compare(const char* what, const float* got, const float* want, size_t n) {
  long wrong = 0;
  for (size_t i = 0; i < n; i++) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(want[i]);
    wrong += !both_nan && float_to_bits(got[i]) != float_to_bits(want[i]);
  }
  compared += static_cast<long>(n);
  different += wrong;
  if (wrong > 0) std::fprintf(stderr, "%s: %ld of %zu differ\n", what, wrong, n);
}

void add_to_digest(const float* want, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const uint32_t word = std::isnan(want[i]) ? 0x7fc00000u : float_to_bits(want[i]);
    digest = (digest ^ word) * 0x100000001b3u;
  }
}

void check(const char* what, const float* got, const float* want, size_t n) {
  add_to_digest(want, n);
  compare(what, got, want, n);
}

void check(const char* what, const std::vector<ActBlock>& got, const std::vector<ActBlock>& want) {
  for (size_t i = 0; i < got.size(); i++) {
    const auto fields = [](const ActBlock& b) {
      std::vector<float> all(b.q, b.q + kBlock);
      for (float f : {b.d, b.ds, float(b.s16[0]), float(b.s16[1]), float(b.sum)}) all.push_back(f);
      return all;
    };
    check(what, fields(got[i]).data(), fields(want[i]).data(), kBlock + 5);
  }
}

enum class Codes { random, least, greatest, mixed };
enum class Activations { random, least, greatest, mixed };

uint8_t code(Codes kind) {
  switch (kind) {
    case Codes::random:
      return static_cast<uint8_t>(bits());
    case Codes::least:
      return 0;
    case Codes::greatest:
      return 0xff;
    case Codes::mixed:
      return below(2) != 0 ? 0xff : 0;
  }
  return 0;
}

float activation(Activations kind) {
  switch (kind) {
    case Activations::random:
      return number();
    case Activations::least:
      return -3.0f;  // with 3 for the largest of a block, codes are -127 and 127
    case Activations::greatest:
      return 3.0f;
    case Activations::mixed:
      return below(2) != 0 ? 3.0f : -3.0f;
  }
  return 0.0f;
}

template <size_t N>
void set_halves(uint16_t (&to)[N]) {
  for (uint16_t& h : to) h = half();
}

template <class Packed>
void set_scales(Packed& b, Codes codes) {  // of Q4_K and Q5_K: six bits
  set_halves(b.d);
  set_halves(b.dmin);
  for (auto* scales : {&b.sc, &b.mn})
    for (auto& of_sub_block : *scales)
      for (uint8_t& s : of_sub_block) s = code(codes) & 63;
}

// Signed scales: any within -least..least - 1, or these two.
template <size_t N>
void set_signed(int8_t (&to)[N][kRows], Codes codes, int least) {
  for (auto& scales : to)
    for (int8_t& s : scales) {
      const auto any = static_cast<int>(below(static_cast<uint32_t>(2 * least)));
      s = static_cast<int8_t>(codes == Codes::random ? any - least : any % 2 != 0 ? least - 1 : -least);
    }
}

// 16 rows of a quantized type, as packed. Extreme codes have extreme scales of either sign.
std::vector<uint8_t> quantized_group(Type type, int columns, Codes codes) {
  std::vector<uint8_t> group(packed_bytes(type, kRows, columns));
  for (uint8_t& b : group) b = code(codes);
  const int bytes = type_info(type).packed_bytes;
  for (uint8_t* at = group.data(); at < group.data() + group.size(); at += bytes) {
    switch (type) {
      case Type::Q4_0:
        set_halves(reinterpret_cast<PackedQ4_0*>(at)->d);
        break;
      case Type::Q4_1:
        set_halves(reinterpret_cast<PackedQ4_1*>(at)->d);
        set_halves(reinterpret_cast<PackedQ4_1*>(at)->m);
        break;
      case Type::Q5_0:
        set_halves(reinterpret_cast<PackedQ5_0*>(at)->d);
        break;
      case Type::Q5_1:
        set_halves(reinterpret_cast<PackedQ5_1*>(at)->d);
        set_halves(reinterpret_cast<PackedQ5_1*>(at)->m);
        break;
      case Type::Q2_K:
        set_halves(reinterpret_cast<PackedQ2_K*>(at)->d);
        set_halves(reinterpret_cast<PackedQ2_K*>(at)->dmin);
        break;
      case Type::Q3_K:
        set_halves(reinterpret_cast<PackedQ3_K*>(at)->d);
        set_signed(reinterpret_cast<PackedQ3_K*>(at)->sc, codes, 32);
        break;
      case Type::Q8_0:
        set_halves(reinterpret_cast<PackedQ8_0*>(at)->d);
        break;
      case Type::Q4_K:
        set_scales(*reinterpret_cast<PackedQ4_K*>(at), codes);
        break;
      case Type::Q5_K:
        set_scales(*reinterpret_cast<PackedQ5_K*>(at), codes);
        break;
      case Type::Q6_K: {
        auto& b = *reinterpret_cast<PackedQ6_K*>(at);
        set_halves(b.d);
        set_signed(b.sc, codes, 128);
        break;
      }
      case Type::IQ4_NL:
        set_halves(reinterpret_cast<PackedIQ4_NL*>(at)->d);
        break;
      case Type::IQ4_XS:
        set_halves(reinterpret_cast<PackedIQ4_XS*>(at)->d);
        set_signed(reinterpret_cast<PackedIQ4_XS*>(at)->sc, codes, 32);
        break;
      case Type::MXFP4:  // powers of two: subnormals, 2^-95..2^32
        for (uint16_t& d : reinterpret_cast<PackedMXFP4*>(at)->d)
          d = static_cast<uint16_t>(below(4) == 0 ? 0x20u << below(2) : (32 + below(128)) << 7);
        break;
      default:
        break;
    }
  }
  return group;
}

constexpr int kColumns = 768;
constexpr int kTokens = 16;  // the largest tile of any instruction set, so that all draw the same numbers

// Every tile against the portable tile for one token.
// Tokens lie `apart` bytes apart; `stride` is what the kernel is told.
void compare_tiles(const char* what, Type type, const std::vector<uint8_t>& group, const uint8_t* act,
                   size_t apart, size_t stride, int columns) {
  std::vector<float> want(16 * kTokens), got(want.size());
  for (int t = 0; t < kTokens; t++)
    portable.tile[static_cast<int>(type)][1](group.data(), columns, act + t * apart, stride, &want[16 * t]);
  add_to_digest(want.data(), want.size());
  for (int tokens = 1; tokens <= tested.max_tokens; tokens++) {
    tested.tile[static_cast<int>(type)][tokens](group.data(), columns, act, stride, got.data());
    compare(what, got.data(), want.data(), 16 * static_cast<size_t>(tokens));
  }
}

void quantized_matrices() {
  const size_t blocks = kColumns / kBlock;
  for (const auto& [type, name] : {std::pair{Type::Q4_0, "Q4_0"},
                                   {Type::Q4_1, "Q4_1"},
                                   {Type::Q5_0, "Q5_0"},
                                   {Type::Q5_1, "Q5_1"},
                                   {Type::Q8_0, "Q8_0"},
                                   {Type::Q2_K, "Q2_K"},
                                   {Type::Q3_K, "Q3_K"},
                                   {Type::Q4_K, "Q4_K"},
                                   {Type::Q5_K, "Q5_K"},
                                   {Type::Q6_K, "Q6_K"},
                                   {Type::IQ4_NL, "IQ4_NL"},
                                   {Type::IQ4_XS, "IQ4_XS"},
                                   {Type::MXFP4, "MXFP4"}})
    for (Codes codes : {Codes::random, Codes::least, Codes::greatest, Codes::mixed}) {
      const auto group = quantized_group(type, kColumns, codes);
      for (auto kind : {Activations::random, Activations::least, Activations::greatest, Activations::mixed}) {
        std::vector<ActBlock> act(kTokens * blocks), want(act.size());
        std::vector<float> x(act.size() * kBlock);
        for (float& f : x) f = activation(kind);
        for (int t = 0; t < kTokens; t++) {
          const float* row = x.data() + static_cast<size_t>(t) * kColumns;
          tested.quantize(row, kColumns, act.data() + t, kTokens);
          portable.quantize(row, kColumns, want.data() + t, kTokens);
        }
        check("activations", act, want);
        compare_tiles(name, type, group, reinterpret_cast<const uint8_t*>(act.data()), sizeof(ActBlock),
                      kTokens * sizeof(ActBlock), kColumns);
        float one[2][kRows];
        tested.tile_float(type, group.data(), kColumns, x.data(), one[0]);
        portable.tile_float(type, group.data(), kColumns, x.data(), one[1]);
        check(name, one[0], one[1], kRows);
      }
    }
}

void float_matrices() {
  const auto x = numbers(kTokens * kColumns);
  for (const auto& [type, name] : {std::pair{Type::F32, "F32"}, {Type::F16, "F16"}, {Type::BF16, "BF16"}}) {
    std::vector<uint8_t> group(packed_bytes(type, kRows, kColumns));
    for (size_t i = 0; i < kRows * kColumns; i++) {
      const float f = number();
      const auto h = static_cast<uint16_t>(type == Type::F16 ? half() : float_to_bits(f) >> 16);
      if (type == Type::F32)
        std::memcpy(&group[4 * i], &f, 4);
      else
        std::memcpy(&group[2 * i], &h, 2);
    }
    compare_tiles(name, type, group, reinterpret_cast<const uint8_t*>(x.data()), 4 * kColumns, 4 * kColumns,
                  kColumns);
  }
}

// All halves and all bfloat16, as matrices of one column.
void every_half() {
  const std::vector<float> ones(kTokens, 1.0f);
  for (Type type : {Type::F16, Type::BF16})
    for (uint32_t first = 0; first < 0x10000; first += kRows) {
      std::vector<uint8_t> group(2 * kRows);
      for (uint32_t i = 0; i < kRows; i++) {
        const auto h = static_cast<uint16_t>(first + i);
        std::memcpy(&group[2 * i], &h, 2);
      }
      compare_tiles("one half", type, group, reinterpret_cast<const uint8_t*>(ones.data()), 4, 4, 1);
    }
}

// Every half, the middle between it and the next, and what lies beside these.
void rounding_to_half() {
  std::vector<float> x = {65519.0f, 65520.0f, 65536.0f, 1e30f, kInfinity, 1e-8f, 1e-40f, 0.0f};
  for (uint16_t h = 0; h < 0x7bff; h++) {
    const float low = half_to_float(h), high = half_to_float(static_cast<uint16_t>(h + 1));
    const float middle = 0.5f * (low + high);
    for (float f :
         {low, middle, bits_to_float(float_to_bits(middle) - 1), bits_to_float(float_to_bits(middle) + 1)})
      x.push_back(f);
  }
  const size_t positive = x.size();
  for (size_t i = 0; i < positive; i++) x.push_back(-x[i]);
  while (x.size() % 16 != 0) x.push_back(0.0f);
  std::vector<uint16_t> got(x.size()), want(x.size());
  tested.to_half(x.data(), got.data(), static_cast<int>(x.size()));
  portable.to_half(x.data(), want.data(), static_cast<int>(x.size()));
  const std::vector<float> got_floats(got.begin(), got.end()), want_floats(want.begin(), want.end());
  check("to_half", got_floats.data(), want_floats.data(), x.size());
}

void activations() {
  std::vector<std::vector<float>> blocks;
  for (float size : {1e-42f, 1e-31f, 1e-20f, 1.0f, 1e20f, 1e38f}) blocks.push_back(numbers(kBlock, size));
  for (float special : {0.0f, -0.0f, kInfinity, -kInfinity, kNaN}) {
    blocks.emplace_back(kBlock, special);
    blocks.push_back(numbers(kBlock));
    blocks.back()[below(kBlock)] = special;
  }
  std::vector<float> halves(kBlock, 127.0f);  // codes between two whole numbers
  for (int i = 1; i < kBlock; i++) halves[i] = static_cast<float>(4 * i - 64) + 0.5f;
  blocks.push_back(halves);
  for (const auto& x : blocks) {
    std::vector<ActBlock> got(1), want(1);
    tested.quantize(x.data(), kBlock, got.data(), 1);
    portable.quantize(x.data(), kBlock, want.data(), 1);
    check("quantize", got, want);
  }
}

void rows() {
  const int n = 896;
  for (int round = 0; round < 30; round++) {
    const float size = round < 10 ? 1.0f : round < 20 ? 64.0f : 1e-22f;
    auto x = numbers(n, size);
    const auto w = numbers(n);
    if (round == 0) x[5] = kNaN;
    if (round == 1) x[6] = kInfinity;
    if (round == 2) x.assign(n, 0.0f);
    std::vector<float> got(n), want(n);
    const auto each = [&](const char* what, const auto& call) {
      call(tested, got.data());
      call(portable, want.data());
      check(what, got.data(), want.data(), n);
    };
    each("rms_norm", [&](const Kernels& k, float* y) { k.rms_norm(x.data(), w.data(), 1e-6f, n, y); });
    each("silu_mul", [&](const Kernels& k, float* y) { k.silu_mul(x.data(), w.data(), y, n); });
    each("gelu_mul", [&](const Kernels& k, float* y) { k.gelu_mul(x.data(), w.data(), y, n); });
    each("rope", [&](const Kernels& k, float* y) {
      std::memcpy(y, x.data(), n * sizeof(float));
      k.rope(y, w.data(), w.data() + n / 2, n / 2);
    });
    each("scale", [&](const Kernels& k, float* y) {
      std::memcpy(y, x.data(), n * sizeof(float));
      k.scale(y, w[0], n);
    });
  }
}

uint64_t visible_keys(int round) {
  const uint64_t any = static_cast<uint64_t>(bits()) << 32 | static_cast<uint32_t>(bits());
  const uint64_t few = any & (static_cast<uint64_t>(bits()) << 32 | static_cast<uint32_t>(bits()));
  switch (below(4) * (round > 3)) {
    case 0:
      return ~uint64_t{0} >> below(64);  // a prefix
    case 1:
      return any;
    case 2:
      return few;
    default:
      return 0;
  }
}

void attention() {
  for (int head : {64, 80, 128, 256})
    for (int round = 0; round < 20; round++) {
      const int queries = 1 + static_cast<int>(below(17));
      const size_t stride = static_cast<size_t>(head) + kPartialHeader;
      const auto q = numbers(static_cast<size_t>(queries * head), round % 4 == 0 ? 30.0f : 1.0f);
      const int pages = 1 + static_cast<int>(below(kBlockPages));
      std::vector<const float*> rows_of_q;
      std::vector<uint64_t> masks;
      for (int i = 0; i < queries; i++) {
        rows_of_q.push_back(&q[static_cast<size_t>(i * head)]);
        for (int page = 0; page < kBlockPages; page++) masks.push_back(visible_keys(round));
      }
      std::vector<uint16_t> keys(static_cast<size_t>(head * kBlockKeys)), values(keys.size());
      for (auto* halves : {&keys, &values})
        for (uint16_t& h : *halves) h = half();
      KeyBlock block{pages, {}, {}};
      for (int page = 0; page <= pages; page++) {  // behind the last one: the first again
        block.keys[page] = &keys[static_cast<size_t>(page % pages * head * kPage)];
        block.values[page] = &values[static_cast<size_t>(page % pages * head * kPage)];
      }
      std::vector<float> scores(static_cast<size_t>(queries * kBlockKeys));
      std::vector<float> partial[2], result[2];
      for (int i = 0; i < 2; i++) {
        const Kernels& k = i == 0 ? tested : portable;
        partial[i].resize(static_cast<size_t>(queries) * stride);
        k.attend(rows_of_q.data(), masks.data(), queries, head, block, scores.data(), partial[i].data(),
                 stride);
        std::vector<float> total(partial[i].begin(), partial[i].begin() + static_cast<long>(stride));
        for (int other = 1; other < queries; other++)
          k.merge(total.data(), &partial[i][static_cast<size_t>(other) * stride], head);
        result[i].resize(static_cast<size_t>(head));
        k.finish(total.data(), head, result[i].data());
      }
      check("attend", partial[0].data(), partial[1].data(), partial[0].size());
      check("merge, finish", result[0].data(), result[1].data(), result[0].size());
    }
}

}  // namespace

int main() {
  quantized_matrices();
  float_matrices();
  every_half();
  rounding_to_half();
  activations();
  rows();
  attention();
  std::fprintf(stderr, "%s: %ld results compared with portable, %ld differ\n", tested.name, compared,
               different);
  std::printf("%016" PRIx64 "\n", digest);
  return different == 0 ? 0 : 1;
}
