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
    case Type::Q8_0:
      return {2, 8};
    case Type::Q4_K:
      return {16, 32};
    case Type::Q5_K:  // 8 words of fifth bits, then nibbles
      return {16, 40};
    case Type::Q6_K:  // 32 words of low bits, then 16 of the two high ones
      return {0, 48};
    default:
      return {0, 1};
  }
}

// Bits 0..3 of `bits` as the lowest bits of four bytes.
uint32_t spread(uint32_t bits) {
  bits &= 15;
  return (bits | bits << 7 | bits << 14 | bits << 21) & kBits;
}

// Four codes as unsigned bytes: columns 4 j .. 4 j + 3 of row r's sub-block.
template <Type T>
uint32_t codes_of(const Words* file, int sub, int j, int r) {
  if constexpr (T == Type::Q4_0 || T == Type::Q4_1) return file[j % 4][r] >> j / 4 * 4 & kNibbles;
  if constexpr (T == Type::Q5_0)
    return (file[1 + j % 4][r] >> j / 4 * 4 & kNibbles) | spread(file[0][r] >> 4 * j) << 4;
  if constexpr (T == Type::Q8_0) return file[j][r] ^ 0x80808080u;
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
void put_fifth_bits(uint8_t* plane, const Words* codes) {
  Words bits{};
  for (int j = 0; j < 8; j++)
    for (int r = 0; r < kRows; r++) bits[r] |= (codes[j][r] >> 4 & kBits) << j;
  std::memcpy(plane, bits, 64);
}
void put_top_bits(uint8_t* planes, const Words* codes) {
  for (int half = 0; half < 2; half++) {
    Words bits{};
    for (int j = 0; j < 4; j++)
      for (int r = 0; r < kRows; r++) bits[r] |= (codes[4 * half + j][r] >> 4 & kPairs) << 2 * j;
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
  if constexpr (T == Type::Q8_0) reinterpret_cast<PackedQ8_0*>(to)->d[row] = half_at(block);
  if constexpr (T == Type::Q4_K) put_scales_k(*reinterpret_cast<PackedQ4_K*>(to), block, row);
  if constexpr (T == Type::Q5_K) put_scales_k(*reinterpret_cast<PackedQ5_K*>(to), block, row);
  if constexpr (T == Type::Q6_K) {
    auto& p = *reinterpret_cast<PackedQ6_K*>(to);
    for (int i = 0; i < 16; i++) p.sc[i][row] = static_cast<int8_t>(block[192 + i]);
    p.d[row] = half_at(block + 208);
  }
}

// The codes of one sub-block of 16 rows; `block` is the packed block.
template <Type T>
void put_codes(const Words* codes, int sub, uint8_t* block) {
  if constexpr (T == Type::Q4_0 || T == Type::Q4_1) put_nibbles(block, codes);
  if constexpr (T == Type::Q5_0) {
    put_nibbles(reinterpret_cast<PackedQ5_0*>(block)->q, codes);
    put_fifth_bits(reinterpret_cast<PackedQ5_0*>(block)->h, codes);
  }
  if constexpr (T == Type::Q8_0) std::memcpy(block, codes, 512);
  if constexpr (T == Type::Q4_K) put_nibbles(reinterpret_cast<PackedQ4_K*>(block)->q[sub], codes);
  if constexpr (T == Type::Q5_K) {
    put_nibbles(reinterpret_cast<PackedQ5_K*>(block)->q[sub], codes);
    put_fifth_bits(reinterpret_cast<PackedQ5_K*>(block)->h[sub], codes);
  }
  if constexpr (T == Type::Q6_K) {
    put_nibbles(reinterpret_cast<PackedQ6_K*>(block)->q[sub], codes);
    put_top_bits(reinterpret_cast<PackedQ6_K*>(block)->h[sub], codes);
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
    case Type::Q8_0:
      return pack_group<Type::Q8_0>;
    case Type::Q4_K:
      return pack_group<Type::Q4_K>;
    case Type::Q5_K:
      return pack_group<Type::Q5_K>;
    case Type::Q6_K:
      return pack_group<Type::Q6_K>;
  }
  return nullptr;
}

int code_at(const uint8_t* planes, int row, int k) {
  const int j = k / 4;
  return planes[64 * (j / 2) + 4 * row + k % 4] >> (j & 1 ? 4 : 0) & 15;
}
int fifth_bit(const uint8_t* plane, int row, int k) { return (plane[4 * row + k % 4] >> (k / 4) & 1) << 4; }

// One packed block of one row as floats.
void gather_block(Type type, const uint8_t* from, int row, float* out) {
  switch (type) {
    case Type::F32:
      std::memcpy(out, from + 4 * row, 4);
      return;
    case Type::F16:
      *out = half_to_float(half_at(from + 2 * row));
      return;
    case Type::BF16:
      *out = bf16_to_float(half_at(from + 2 * row));
      return;
    case Type::Q4_0: {
      const auto& p = *reinterpret_cast<const PackedQ4_0*>(from);
      for (int k = 0; k < 32; k++)
        out[k] = half_to_float(p.d[row]) * static_cast<float>(code_at(p.q, row, k) - 8);
      return;
    }
    case Type::Q4_1: {
      const auto& p = *reinterpret_cast<const PackedQ4_1*>(from);
      const float d = half_to_float(p.d[row]), m = half_to_float(p.m[row]);
      for (int k = 0; k < 32; k++) out[k] = d * static_cast<float>(code_at(p.q, row, k)) + m;
      return;
    }
    case Type::Q5_0: {
      const auto& p = *reinterpret_cast<const PackedQ5_0*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 32; k++)
        out[k] = d * static_cast<float>((code_at(p.q, row, k) | fifth_bit(p.h, row, k)) - 16);
      return;
    }
    case Type::Q8_0: {
      const auto& p = *reinterpret_cast<const PackedQ8_0*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 32; k++) out[k] = d * static_cast<float>(p.q[64 * (k / 4) + 4 * row + k % 4] - 128);
      return;
    }
    case Type::Q4_K:
    case Type::Q5_K: {
      const auto& four = *reinterpret_cast<const PackedQ4_K*>(from);
      const auto& five = *reinterpret_cast<const PackedQ5_K*>(from);
      const bool fifth = type == Type::Q5_K;
      const float d = half_to_float(fifth ? five.d[row] : four.d[row]);
      const float dmin = half_to_float(fifth ? five.dmin[row] : four.dmin[row]);
      for (int k = 0; k < 256; k++) {
        const int sub = k / 32;
        const int code = fifth ? code_at(five.q[sub], row, k % 32) | fifth_bit(five.h[sub], row, k % 32)
                               : code_at(four.q[sub], row, k % 32);
        const float scale = d * static_cast<float>(fifth ? five.sc[sub][row] : four.sc[sub][row]);
        const float minimum = dmin * static_cast<float>(fifth ? five.mn[sub][row] : four.mn[sub][row]);
        out[k] = scale * static_cast<float>(code) - minimum;
      }
      return;
    }
    case Type::Q6_K: {
      const auto& p = *reinterpret_cast<const PackedQ6_K*>(from);
      const float d = half_to_float(p.d[row]);
      for (int k = 0; k < 256; k++) {
        const int sub = k / 32, i = k % 32, j = i / 4;
        const int top = (p.h[sub][64 * (j / 4) + 4 * row + i % 4] >> 2 * (j % 4) & 3) << 4;
        out[k] = d * static_cast<float>(p.sc[k / 16][row]) *
                 static_cast<float>((code_at(p.q[sub], row, i) | top) - 32);
      }
      return;
    }
  }
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

void Weight::gather(int64_t row, float* out) const {
  const TypeInfo info = type_info(type);
  const uint8_t* from = group(row / kRows);
  for (int64_t k = 0; k < columns; k += info.columns, from += info.packed_bytes)
    gather_block(type, from, static_cast<int>(row % kRows), out + k);
}

}  // namespace pilotfish
