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

// Sub-block `sub` of one row's block in the file: its 32 codes as unsigned bytes.
void file_codes(Type type, const uint8_t* block, int sub, uint8_t codes[32]) {
  switch (type) {
    case Type::Q4_0:
    case Type::Q4_1: {
      const uint8_t* q = block + (type == Type::Q4_0 ? 2 : 4);
      for (int i = 0; i < 16; i++) codes[i] = q[i] & 15, codes[i + 16] = q[i] >> 4;
      return;
    }
    case Type::Q5_0: {
      uint32_t h;
      std::memcpy(&h, block + 2, 4);
      const uint8_t* q = block + 6;
      for (int i = 0; i < 16; i++) {
        codes[i] = static_cast<uint8_t>((q[i] & 15) | (h >> i & 1) << 4);
        codes[i + 16] = static_cast<uint8_t>((q[i] >> 4) | (h >> (i + 16) & 1) << 4);
      }
      return;
    }
    case Type::Q8_0:
      for (int i = 0; i < 32; i++) codes[i] = block[2 + i] ^ 0x80;
      return;
    case Type::Q4_K:
    case Type::Q5_K: {  // 64 columns share 32 bytes: low nibbles the first 32, high the next
      const uint8_t* q = block + (type == Type::Q4_K ? 16 : 48) + 32 * (sub / 2);
      for (int i = 0; i < 32; i++) codes[i] = sub & 1 ? q[i] >> 4 : q[i] & 15;
      if (type == Type::Q5_K)
        for (int i = 0; i < 32; i++)
          codes[i] = static_cast<uint8_t>(codes[i] | (block[16 + i] >> sub & 1) << 4);
      return;
    }
    case Type::Q6_K: {  // 128 columns: 64 bytes of low bits, 32 bytes of two high bits for four runs of 32
      const int part = sub / 4, run = sub % 4;
      const uint8_t* low = block + 64 * part + 32 * (run & 1);
      const uint8_t* high = block + 128 + 32 * part;
      for (int i = 0; i < 32; i++) {
        const int nibble = run < 2 ? low[i] & 15 : low[i] >> 4;
        codes[i] = static_cast<uint8_t>(nibble | (high[i] >> (2 * run) & 3) << 4);
      }
      return;
    }
    default:
      return;
  }
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

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

// The codes of one row go to the same 4 bytes of each vector, so they are moved as words of 4 columns.
uint32_t word_at(const uint8_t* p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}
void put_word(uint8_t* vector, int row, uint32_t word) { std::memcpy(vector + 4 * row, &word, 4); }

void put_nibbles(uint8_t* planes, int row, const uint8_t codes[32]) {
  for (int p = 0; p < 4; p++) {
    const uint32_t even = word_at(codes + 8 * p) & 0x0f0f0f0fu,
                   odd = word_at(codes + 8 * p + 4) & 0x0f0f0f0fu;
    put_word(planes + 64 * p, row, even | odd << 4);
  }
}
void put_fifth_bits(uint8_t* plane, int row, const uint8_t codes[32]) {
  uint32_t bits = 0;
  for (int j = 0; j < 8; j++) bits |= (word_at(codes + 4 * j) >> 4 & 0x01010101u) << j;
  put_word(plane, row, bits);
}
void put_top_bits(uint8_t* planes, int row, const uint8_t codes[32]) {
  for (int half = 0; half < 2; half++) {
    uint32_t bits = 0;
    for (int j = 0; j < 4; j++) bits |= (word_at(codes + 16 * half + 4 * j) >> 4 & 0x03030303u) << 2 * j;
    put_word(planes + 64 * half, row, bits);
  }
}

template <class Packed>
void put_scales_k(Packed& p, const uint8_t* block, int row) {
  p.d[row] = half_at(block);
  p.dmin[row] = half_at(block + 2);
  for (int sub = 0; sub < 8; sub++) six_bit(block + 4, sub, &p.sc[sub][row], &p.mn[sub][row]);
}

// Puts row `row` of a group's block, read at `block` in the file, into the packed block at `to` (zeroed
// before).
void pack_block(Type type, const uint8_t* block, int row, uint8_t* to) {
  uint8_t codes[32];
  const int subs = type_info(type).columns / 32;
  for (int sub = 0; sub < subs; sub++) {
    file_codes(type, block, sub, codes);
    switch (type) {
      case Type::Q4_0:
      case Type::Q4_1:
        put_nibbles(to, row, codes);
        break;
      case Type::Q5_0: {
        auto& p = *reinterpret_cast<PackedQ5_0*>(to);
        put_nibbles(p.q, row, codes);
        put_fifth_bits(p.h, row, codes);
        break;
      }
      case Type::Q8_0:
        for (int j = 0; j < 8; j++) put_word(to + 64 * j, row, word_at(codes + 4 * j));
        break;
      case Type::Q4_K:
        put_nibbles(reinterpret_cast<PackedQ4_K*>(to)->q[sub], row, codes);
        break;
      case Type::Q5_K: {
        auto& p = *reinterpret_cast<PackedQ5_K*>(to);
        put_nibbles(p.q[sub], row, codes);
        put_fifth_bits(p.h[sub], row, codes);
        break;
      }
      case Type::Q6_K: {
        auto& p = *reinterpret_cast<PackedQ6_K*>(to);
        put_nibbles(p.q[sub], row, codes);
        put_top_bits(p.h[sub], row, codes);
        break;
      }
      default:
        break;
    }
  }
  switch (type) {
    case Type::Q4_0:
      reinterpret_cast<PackedQ4_0*>(to)->d[row] = half_at(block);
      break;
    case Type::Q4_1:
      reinterpret_cast<PackedQ4_1*>(to)->d[row] = half_at(block);
      reinterpret_cast<PackedQ4_1*>(to)->m[row] = half_at(block + 2);
      break;
    case Type::Q5_0:
      reinterpret_cast<PackedQ5_0*>(to)->d[row] = half_at(block);
      break;
    case Type::Q8_0:
      reinterpret_cast<PackedQ8_0*>(to)->d[row] = half_at(block);
      break;
    case Type::Q4_K:
      put_scales_k(*reinterpret_cast<PackedQ4_K*>(to), block, row);
      break;
    case Type::Q5_K:
      put_scales_k(*reinterpret_cast<PackedQ5_K*>(to), block, row);
      break;
    case Type::Q6_K: {
      auto& p = *reinterpret_cast<PackedQ6_K*>(to);
      for (int i = 0; i < 16; i++) p.sc[i][row] = static_cast<int8_t>(block[192 + i]);
      p.d[row] = half_at(block + 208);
      break;
    }
    default:
      break;
  }
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

void Weight::pack(const uint8_t* file, const int32_t* map, int threads) {
  const TypeInfo info = type_info(type);
  const int64_t blocks = columns / info.columns;
  const size_t row_bytes = static_cast<size_t>(blocks) * static_cast<size_t>(info.file_bytes);
  std::atomic<int64_t> next{0};
  auto body = [&](int) {
    for (int64_t g; (g = next.fetch_add(1)) < groups();) {
      uint8_t* to = data + g * group_bytes;
      for (int64_t b = 0; b < blocks; b++, to += info.packed_bytes)
        for (int r = 0; r < kRows && g * kRows + r < rows; r++) {
          const int64_t row = map != nullptr ? map[g * kRows + r] : g * kRows + r;
          const uint8_t* block = file + row * row_bytes + b * info.file_bytes;
          if (is_float(type))
            std::memcpy(to + r * info.file_bytes, block, static_cast<size_t>(info.file_bytes));
          else
            pack_block(type, block, r, to);
        }
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
