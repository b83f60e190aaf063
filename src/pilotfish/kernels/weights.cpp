#include "weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "half.h"
#include "pool.h"

namespace pilotfish {

Arena::Arena(size_t bytes) : bytes_(std::max<size_t>(bytes, 64)) {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  madvise(p, bytes_, MADV_HUGEPAGE);  // fewer TLB misses; a kernel that won't is slower, not wrong
#endif
  start_ = static_cast<uint8_t*>(p);
}
Arena::~Arena() { munmap(start_, bytes_); }

uint8_t* Arena::take(size_t bytes) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  if (rounded > bytes_ - used_) throw std::bad_alloc();
  uint8_t* p = start_ + used_;
  used_ += rounded;
  return p;
}

Weight::Weight(std::shared_ptr<Arena> a, Type t, int64_t r, int64_t c)
    : arena(std::move(a)),
      type(t),
      rows(r),
      columns(c),
      group_bytes(packed_bytes(t, kRows, c)),
      data(arena->take(packed_bytes(t, r, c))) {}

namespace {

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

uint32_t word_at(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

constexpr uint32_t kNibbles = 0x0f0f0f0fu, kBits = 0x01010101u, kPairs = 0x03030303u;

// Packing moves words of 4 columns: word w of the 16 rows' blocks side by side, as vectors have them. Loops
// over the 16 become vector code on any machine, since all else is known when compiled.
using Words = uint32_t[kRows];

// Where the codes stand in a block of the file: first byte, and how many words.
struct CodeBytes {
  int first, words;
};
constexpr CodeBytes code_bytes(Type t) {
  switch (t) {
    case Type::Q4_0:
      return {2, 4};
    case Type::Q4_1:
      return {4, 4};
    case Type::Q5_0:  // one word of fifth bits, then nibbles
      return {2, 5};
    case Type::Q5_1:
      return {4, 5};
    case Type::Q8_0:
      return {2, 8};
    case Type::Q2_K:  // behind 16 bytes of scales
      return {16, 16};
    case Type::Q3_K:  // 8 words of third bits, then pairs
      return {0, 24};
    case Type::Q4_K:
      return {16, 32};
    case Type::Q5_K:  // 8 words of fifth bits, then nibbles
      return {16, 40};
    case Type::Q6_K:  // 32 words of low bits, then 16 of the two high ones
      return {0, 48};
    case Type::IQ4_NL:
      return {2, 4};
    case Type::IQ4_XS:
      return {8, 32};
    case Type::MXFP4:
      return {1, 4};
    default:
      return {0, 1};
  }
}

// Types with 32 columns to a block and their codes in four bits, in one order.
constexpr bool is_nibbles(Type t) {
  return t == Type::Q4_0 || t == Type::Q4_1 || t == Type::IQ4_NL || t == Type::MXFP4;
}

// Bits 0..3 of `bits` as the lowest bits of four bytes.
uint32_t spread(uint32_t bits) {
  bits &= 15;
  return (bits | bits << 7 | bits << 14 | bits << 21) & kBits;
}

// Four codes as unsigned bytes: columns 4 j .. 4 j + 3 of row r's sub-block.
template <Type T>
uint32_t codes_of(const Words* file, int sub, int j, int r) {
  if constexpr (is_nibbles(T)) return file[j % 4][r] >> j / 4 * 4 & kNibbles;
  if constexpr (T == Type::Q5_0 || T == Type::Q5_1)
    return (file[1 + j % 4][r] >> j / 4 * 4 & kNibbles) | spread(file[0][r] >> 4 * j) << 4;
  if constexpr (T == Type::Q8_0) return file[j][r] ^ 0x80808080u;
  // 128 columns share 8 words: the lowest pairs of bits the first 32, and so on.
  if constexpr (T == Type::Q2_K) return file[sub / 4 * 8 + j][r] >> 2 * (sub % 4) & kPairs;
  if constexpr (T == Type::Q3_K)
    return (file[8 + sub / 4 * 8 + j][r] >> 2 * (sub % 4) & kPairs) | (file[j][r] >> sub & kBits) << 2;
  if constexpr (T == Type::IQ4_XS) return file[4 * sub + j % 4][r] >> j / 4 * 4 & kNibbles;
  // 64 columns share 8 words: low nibbles the first 32, high the next.
  if constexpr (T == Type::Q4_K) return file[sub / 2 * 8 + j][r] >> sub % 2 * 4 & kNibbles;
  if constexpr (T == Type::Q5_K)
    return (file[8 + sub / 2 * 8 + j][r] >> sub % 2 * 4 & kNibbles) | (file[j][r] >> sub & kBits) << 4;
  if constexpr (T == Type::Q6_K) {
    // 128 columns: 16 words of low bits, 8 of two high bits for four runs of 32.
    const int part = sub / 4, run = sub % 4;
    const uint32_t low = file[16 * part + 8 * (run % 2) + j][r] >> run / 2 * 4 & kNibbles;
    return low | (file[32 + 8 * part + j][r] >> 2 * run & kPairs) << 4;
  }
  return 0;
}

// The 6-bit scale and minimum of sub-block `sub` from the 12 bytes that K types share among eight.
void six_bit(const uint8_t* s, int sub, uint8_t* scale, uint8_t* minimum) {
  if (sub < 4) {
    *scale = s[sub] & 63;
    *minimum = s[sub + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4);
    *minimum = static_cast<uint8_t>((s[sub + 4] >> 4) | (s[sub] >> 6) << 4);
  }
}

void put_nibbles(uint8_t* planes, const Words* codes) {
  for (int p = 0; p < 4; p++) {
    Words both;
    for (int r = 0; r < kRows; r++)
      both[r] = (codes[2 * p][r] & kNibbles) | (codes[2 * p + 1][r] & kNibbles) << 4;
    std::memcpy(planes + 64 * p, both, 64);
  }
}
// Bit `at` of the codes.
void put_bits(uint8_t* plane, const Words* codes, int at) {
  Words bits{};
  for (int j = 0; j < 8; j++)
    for (int r = 0; r < kRows; r++) bits[r] |= (codes[j][r] >> at & kBits) << j;
  std::memcpy(plane, bits, 64);
}
// Bits `at` and `at` + 1 of the codes.
void put_pairs(uint8_t* planes, const Words* codes, int at) {
  for (int half = 0; half < 2; half++) {
    Words bits{};
    for (int j = 0; j < 4; j++)
      for (int r = 0; r < kRows; r++) bits[r] |= (codes[4 * half + j][r] >> at & kPairs) << 2 * j;
    std::memcpy(planes + 64 * half, bits, 64);
  }
}

template <class Packed>
void put_scales_k(Packed& p, const uint8_t* block, int row) {
  p.d[row] = half_at(block);
  p.dmin[row] = half_at(block + 2);
  for (int sub = 0; sub < 8; sub++) six_bit(block + 4, sub, &p.sc[sub][row], &p.mn[sub][row]);
}

// The scales of row `row`, read at `block` in the file.
template <Type T>
void put_scales(const uint8_t* block, int row, uint8_t* to) {
  if constexpr (T == Type::Q4_0) reinterpret_cast<PackedQ4_0*>(to)->d[row] = half_at(block);
  if constexpr (T == Type::Q4_1) {
    reinterpret_cast<PackedQ4_1*>(to)->d[row] = half_at(block);
    reinterpret_cast<PackedQ4_1*>(to)->m[row] = half_at(block + 2);
  }
  if constexpr (T == Type::Q5_0) reinterpret_cast<PackedQ5_0*>(to)->d[row] = half_at(block);
  if constexpr (T == Type::Q5_1) {
    reinterpret_cast<PackedQ5_1*>(to)->d[row] = half_at(block);
    reinterpret_cast<PackedQ5_1*>(to)->m[row] = half_at(block + 2);
  }
  if constexpr (T == Type::Q8_0) reinterpret_cast<PackedQ8_0*>(to)->d[row] = half_at(block);
  if constexpr (T == Type::Q2_K) {
    auto& p = *reinterpret_cast<PackedQ2_K*>(to);
    for (int i = 0; i < 16; i++) p.scmn[i][row] = block[i];
    p.d[row] = half_at(block + 80);
    p.dmin[row] = half_at(block + 82);
  }
  if constexpr (T == Type::Q3_K) {
    auto& p = *reinterpret_cast<PackedQ3_K*>(to);
    for (int i = 0; i < 16; i++) {
      const int low = block[96 + i % 8] >> i / 8 * 4 & 15, high = block[104 + i % 4] >> i / 4 * 2 & 3;
      p.sc[i][row] = static_cast<int8_t>((low | high << 4) - 32);
    }
    p.d[row] = half_at(block + 108);
  }
  if constexpr (T == Type::Q4_K) put_scales_k(*reinterpret_cast<PackedQ4_K*>(to), block, row);
  if constexpr (T == Type::Q5_K) put_scales_k(*reinterpret_cast<PackedQ5_K*>(to), block, row);
  if constexpr (T == Type::Q6_K) {
    auto& p = *reinterpret_cast<PackedQ6_K*>(to);
    for (int i = 0; i < 16; i++) p.sc[i][row] = static_cast<int8_t>(block[192 + i]);
    p.d[row] = half_at(block + 208);
  }
  if constexpr (T == Type::IQ4_NL) reinterpret_cast<PackedIQ4_NL*>(to)->d[row] = half_at(block);
  if constexpr (T == Type::IQ4_XS) {
    auto& p = *reinterpret_cast<PackedIQ4_XS*>(to);
    p.d[row] = half_at(block);
    for (int i = 0; i < 8; i++) {
      const int low = block[4 + i / 2] >> i % 2 * 4 & 15, high = half_at(block + 2) >> 2 * i & 3;
      p.sc[i][row] = static_cast<int8_t>((low | high << 4) - 32);
    }
  }
  // 2^(e - 128); below the normal numbers a bit moves along the mantissa.
  if constexpr (T == Type::MXFP4)
    reinterpret_cast<PackedMXFP4*>(to)->d[row] =
        static_cast<uint16_t>(*block < 2 ? 0x20 << *block : (*block - 1) << 7);
}

// The codes of one sub-block of 16 rows; `block` is the packed block.
template <Type T>
void put_codes(const Words* codes, int sub, uint8_t* block) {
  if constexpr (is_nibbles(T)) put_nibbles(block, codes);
  if constexpr (T == Type::Q5_0 || T == Type::Q5_1) {
    put_nibbles(reinterpret_cast<PackedQ5_0*>(block)->q, codes);
    put_bits(reinterpret_cast<PackedQ5_0*>(block)->h, codes, 4);
  }
  if constexpr (T == Type::Q8_0) std::memcpy(block, codes, 512);
  if constexpr (T == Type::Q2_K) put_pairs(reinterpret_cast<PackedQ2_K*>(block)->q[sub], codes, 0);
  if constexpr (T == Type::Q3_K) {
    put_pairs(reinterpret_cast<PackedQ3_K*>(block)->q[sub], codes, 0);
    put_bits(reinterpret_cast<PackedQ3_K*>(block)->h[sub], codes, 2);
  }
  if constexpr (T == Type::IQ4_XS) put_nibbles(reinterpret_cast<PackedIQ4_XS*>(block)->q[sub], codes);
  if constexpr (T == Type::Q4_K) put_nibbles(reinterpret_cast<PackedQ4_K*>(block)->q[sub], codes);
  if constexpr (T == Type::Q5_K) {
    put_nibbles(reinterpret_cast<PackedQ5_K*>(block)->q[sub], codes);
    put_bits(reinterpret_cast<PackedQ5_K*>(block)->h[sub], codes, 4);
  }
  if constexpr (T == Type::Q6_K) {
    put_nibbles(reinterpret_cast<PackedQ6_K*>(block)->q[sub], codes);
    put_pairs(reinterpret_cast<PackedQ6_K*>(block)->h[sub], codes, 4);
  }
}

// Packs `blocks` blocks of `count` rows, which begin at `rows` in the file, as one group. Rows that aren't
// there stay as they are: zeros.
template <Type T>
void pack_group(const uint8_t* const* rows, int count, int64_t blocks, uint8_t* to) {
  constexpr TypeInfo info = type_info(T);
  constexpr CodeBytes in_file = code_bytes(T);
  for (int64_t b = 0; b < blocks; b++, to += info.packed_bytes) {
    const int64_t at = b * info.file_bytes;
    if constexpr (is_float(T)) {
      for (int r = 0; r < count; r++)
        std::memcpy(to + r * info.file_bytes, rows[r] + at, static_cast<size_t>(info.file_bytes));
    } else {
      Words file[in_file.words];
      // The code of Q8_0 is flipped, so what packs to zeros are zeros flipped.
      constexpr uint32_t absent = T == Type::Q8_0 ? 0x80808080u : 0;
      for (int r = 0; r < kRows; r++)
        for (int w = 0; w < in_file.words; w++)
          file[w][r] = r < count ? word_at(rows[r] + at + in_file.first + 4 * w) : absent;
      for (int sub = 0; sub < info.columns / 32; sub++) {
        Words codes[8];
        for (int j = 0; j < 8; j++)
          for (int r = 0; r < kRows; r++) codes[j][r] = codes_of<T>(file, sub, j, r);
        put_codes<T>(codes, sub, to);
      }
      for (int r = 0; r < count; r++) put_scales<T>(rows[r] + at, r, to);
    }
  }
}

using PackGroup = void (*)(const uint8_t* const*, int, int64_t, uint8_t*);

PackGroup pack_group_of(Type type) {
  switch (type) {
    case Type::F32:
      return pack_group<Type::F32>;
    case Type::F16:
      return pack_group<Type::F16>;
    case Type::BF16:
      return pack_group<Type::BF16>;
    case Type::Q4_0:
      return pack_group<Type::Q4_0>;
    case Type::Q4_1:
      return pack_group<Type::Q4_1>;
    case Type::Q5_0:
      return pack_group<Type::Q5_0>;
    case Type::Q5_1:
      return pack_group<Type::Q5_1>;
    case Type::Q8_0:
      return pack_group<Type::Q8_0>;
    case Type::Q2_K:
      return pack_group<Type::Q2_K>;
    case Type::Q3_K:
      return pack_group<Type::Q3_K>;
    case Type::Q4_K:
      return pack_group<Type::Q4_K>;
    case Type::Q5_K:
      return pack_group<Type::Q5_K>;
    case Type::Q6_K:
      return pack_group<Type::Q6_K>;
    case Type::IQ4_NL:
      return pack_group<Type::IQ4_NL>;
    case Type::IQ4_XS:
      return pack_group<Type::IQ4_XS>;
    case Type::MXFP4:
      return pack_group<Type::MXFP4>;
  }
  return nullptr;
}

}  // namespace

void Weight::pack(const uint8_t* file, const int32_t* map, int64_t first, int64_t count, int threads) {
  const int64_t blocks = columns / type_info(type).columns;
  const size_t row_bytes = static_cast<size_t>(blocks) * static_cast<size_t>(type_info(type).file_bytes);
  const PackGroup pack_group = pack_group_of(type);
  std::atomic<int64_t> next{first / kRows};
  auto body = [&](int) {
    for (int64_t g; (g = next.fetch_add(1)) * kRows < first + count;) {
      const uint8_t* sources[kRows];
      const auto n = static_cast<int>(std::min<int64_t>(kRows, first + count - g * kRows));
      for (int r = 0; r < n; r++) {
        const int64_t row = g * kRows + r;
        sources[r] = file + static_cast<size_t>(map != nullptr ? map[row] : row) * row_bytes;
      }
      pack_group(sources, n, blocks, data + g * group_bytes);
    }
  };
  run_on_threads(threads, body);
}

}  // namespace pilotfish
