// What distinguishes the packed formats: how codes are unpacked, and what scales them.
#pragma once
#include "lanes.h"

namespace {

using pilotfish::ActBlock;
using pilotfish::kBlock;
using pilotfish::kRows;

// Codes of vectors First..First + Count - 1, into x[0..Count - 1]; planes of nibbles: low nibbles are even
// vectors, high ones odd.
template <int First, int Count>
inline void unpack_nibbles(const uint8_t* q, V::U* x) {
#pragma GCC unroll 4
  for (int p = 0; p < Count / 2; p++) {
    const V::U both = V::bytes(q + 64 * (First / 2 + p));
    x[2 * p] = V::mask<15>(both);
    x[2 * p + 1] = V::mask<15>(V::shift<4>(both));
  }
}
// Bit number Bit of the codes: bit j of every byte belongs to vector j.
template <int Bit, int First, int Count>
inline void add_bits(const uint8_t* h, V::U* x) {
  const V::U bits = V::bytes(h);
  x[0] = V::either(x[0], V::mask<1 << Bit>(V::shift<First - Bit>(bits)));
  x[1] = V::either(x[1], V::mask<1 << Bit>(V::shift<First + 1 - Bit>(bits)));
  x[2] = V::either(x[2], V::mask<1 << Bit>(V::shift<First + 2 - Bit>(bits)));
  x[3] = V::either(x[3], V::mask<1 << Bit>(V::shift<First + 3 - Bit>(bits)));
  if constexpr (Count > 4) add_bits<Bit, First + 4, Count - 4>(h, x + 4);
}
// Codes of two bits: bits 2 i and 2 i + 1 of one vector for each four codes.
template <int First, int Count>
inline void unpack_pairs(const uint8_t* q, V::U* x) {
  const V::U bits = V::bytes(q + 16 * First);
  x[0] = V::mask<3>(bits);
  x[1] = V::mask<3>(V::shift<2>(bits));
  x[2] = V::mask<3>(V::shift<4>(bits));
  x[3] = V::mask<3>(V::shift<6>(bits));
  if constexpr (Count > 4) unpack_pairs<First + 4, Count - 4>(q, x + 4);
}
// Bits five and six, in pairs too.
template <int First, int Count>
inline void add_top_bits(const uint8_t* h, V::U* x) {
  const V::U bits = V::bytes(h + 16 * First);
  x[0] = V::either(x[0], V::mask<48>(V::shift<-4>(bits)));
  x[1] = V::either(x[1], V::mask<48>(V::shift<-2>(bits)));
  x[2] = V::either(x[2], V::mask<48>(bits));
  x[3] = V::either(x[3], V::mask<48>(V::shift<2>(bits)));
  if constexpr (Count > 4) add_top_bits<First + 4, Count - 4>(h, x + 4);
}

// Formats with scales by 16 columns and minimums have two of these too.
template <class Format>
constexpr bool kTwoMinimums = Format::kScaled && Format::kMinimum;

// What a format adds to the common loop; `row` is the first of the W rows in hand.
struct FormatQ4_0 {
  using Packed = pilotfish::PackedQ4_0;
  static constexpr int kSubs = 1, kMax = 15, kOffset = 8;
  static constexpr bool kMinimum = false, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int, int row, V::U* x) {
    unpack_nibbles<First, Count>(b.q + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
};
struct FormatQ4_1 {
  using Packed = pilotfish::PackedQ4_1;
  static constexpr int kSubs = 1, kMax = 15, kOffset = 0;
  static constexpr bool kMinimum = true, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int, int row, V::U* x) {
    unpack_nibbles<First, Count>(b.q + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
  static V::F minimum(const Packed& b, int, int row) { return V::load_half(b.m + row); }
};
struct FormatQ5_0 {
  using Packed = pilotfish::PackedQ5_0;
  static constexpr int kSubs = 1, kMax = 31, kOffset = 16;
  static constexpr bool kMinimum = false, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int, int row, V::U* x) {
    unpack_nibbles<First, Count>(b.q + 4 * row, x);
    add_bits<4, First, Count>(b.h + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
};
struct FormatQ5_1 {
  using Packed = pilotfish::PackedQ5_1;
  static constexpr int kSubs = 1, kMax = 31, kOffset = 0;
  static constexpr bool kMinimum = true, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int, int row, V::U* x) {
    unpack_nibbles<First, Count>(b.q + 4 * row, x);
    add_bits<4, First, Count>(b.h + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
  static V::F minimum(const Packed& b, int, int row) { return V::load_half(b.m + row); }
};
struct FormatQ8_0 {
  using Packed = pilotfish::PackedQ8_0;
  static constexpr int kSubs = 1, kMax = 255, kOffset = 128;
  static constexpr bool kMinimum = false, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int, int row, V::U* x) {
    for (int j = 0; j < Count; j++) x[j] = V::bytes(b.q + 64 * (First + j) + 4 * row);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
};
struct FormatQ2_K {
  using Packed = pilotfish::PackedQ2_K;
  static constexpr int kSubs = 8, kMax = 3, kOffset = 0;
  static constexpr bool kMinimum = true, kScaled = true;
  template <int First, int Count>
  static void unpack(const Packed& b, int sub, int row, V::U* x) {
    unpack_pairs<First, Count>(b.q[sub] + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
  static V::F minimum(const Packed& b, int, int row) { return V::sub(V::zero(), V::load_half(b.dmin + row)); }
  static V::Scales scales(const Packed& b, int sub, int row) { return nibbles<0>(b, sub, row); }
  static V::Scales minimums(const Packed& b, int sub, int row) { return nibbles<4>(b, sub, row); }

 private:
  template <int Shift>
  static V::Scales nibbles(const Packed& b, int sub, int row) {
    int8_t both[2][V::W];
    for (int half = 0; half < 2; half++)
      for (int i = 0; i < V::W; i++)
        both[half][i] = static_cast<int8_t>(b.scmn[2 * sub + half][row + i] >> Shift & 15);
    return V::scales(both[0], both[1]);
  }
};
struct FormatQ3_K {
  using Packed = pilotfish::PackedQ3_K;
  static constexpr int kSubs = 8, kMax = 7, kOffset = 4;
  static constexpr bool kMinimum = false, kScaled = true;
  template <int First, int Count>
  static void unpack(const Packed& b, int sub, int row, V::U* x) {
    unpack_pairs<First, Count>(b.q[sub] + 4 * row, x);
    add_bits<2, First, Count>(b.h[sub] + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
  static V::Scales scales(const Packed& b, int sub, int row) {
    return V::scales(b.sc[2 * sub] + row, b.sc[2 * sub + 1] + row);
  }
};
template <class P, bool kFifth>
struct FormatK {  // Q4_K and Q5_K
  using Packed = P;
  static constexpr int kSubs = 8, kMax = kFifth ? 31 : 15, kOffset = 0;
  static constexpr bool kMinimum = true, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int sub, int row, V::U* x) {
    unpack_nibbles<First, Count>(b.q[sub] + 4 * row, x);
    if constexpr (kFifth) add_bits<4, First, Count>(b.h[sub] + 4 * row, x);
  }
  static V::F scale(const Packed& b, int sub, int row) {  // 11 + 6 bits: exact
    return V::mul(V::load_half(b.d + row), V::load_u8(b.sc[sub] + row));
  }
  static V::F minimum(const Packed& b, int sub, int row) {
    return V::sub(V::zero(), V::mul(V::load_half(b.dmin + row), V::load_u8(b.mn[sub] + row)));
  }
};
using FormatQ4_K = FormatK<pilotfish::PackedQ4_K, false>;
using FormatQ5_K = FormatK<pilotfish::PackedQ5_K, true>;
struct FormatQ6_K {
  using Packed = pilotfish::PackedQ6_K;
  static constexpr int kSubs = 8, kMax = 63, kOffset = 32;
  static constexpr bool kMinimum = false, kScaled = true;
  template <int First, int Count>
  static void unpack(const Packed& b, int sub, int row, V::U* x) {
    unpack_nibbles<First, Count>(b.q[sub] + 4 * row, x);
    add_top_bits<First, Count>(b.h[sub] + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
  static V::Scales scales(const Packed& b, int sub, int row) {
    return V::scales(b.sc[2 * sub] + row, b.sc[2 * sub + 1] + row);
  }
};

// Nibbles that stand for the bytes of a table.
template <int First, int Count>
inline void unpack_table(const uint8_t table[16], const uint8_t* q, V::U* x) {
  unpack_nibbles<First, Count>(q, x);
#pragma GCC unroll 8
  for (int j = 0; j < Count; j++) x[j] = V::lookup(table, x[j]);
}
struct FormatIQ4_NL {
  using Packed = pilotfish::PackedIQ4_NL;
  static constexpr int kSubs = 1, kMax = 255, kOffset = 128;
  static constexpr bool kMinimum = false, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int, int row, V::U* x) {
    unpack_table<First, Count>(pilotfish::kTableIQ4, b.q + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_half(b.d + row); }
};
struct FormatIQ4_XS {
  using Packed = pilotfish::PackedIQ4_XS;
  static constexpr int kSubs = 8, kMax = 255, kOffset = 128;
  static constexpr bool kMinimum = false, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int sub, int row, V::U* x) {
    unpack_table<First, Count>(pilotfish::kTableIQ4, b.q[sub] + 4 * row, x);
  }
  static V::F scale(const Packed& b, int sub, int row) {  // 11 + 6 bits: exact
    return V::mul(V::load_half(b.d + row), V::load_i8(b.sc[sub] + row));
  }
};
struct FormatMXFP4 {
  using Packed = pilotfish::PackedMXFP4;
  static constexpr int kSubs = 1, kMax = 24, kOffset = 12;
  static constexpr bool kMinimum = false, kScaled = false;
  template <int First, int Count>
  static void unpack(const Packed& b, int, int row, V::U* x) {
    unpack_table<First, Count>(pilotfish::kTableMXFP4, b.q + 4 * row, x);
  }
  static V::F scale(const Packed& b, int, int row) { return V::load_bf16(b.d + row); }
};

// Weights are used once a pass and come from memory: they are asked for some kilobytes ahead, since the
// hardware alone follows a stream only up to the next page. What lies behind a matrix is asked for in vain,
// not read.
constexpr size_t kAhead = 3072;  // measured: 2 to 4 KB are best, less comes too late
template <size_t kBytes>
inline void prefetch(const uint8_t* p) {
#pragma GCC unroll 16
  for (size_t at = 0; at < kBytes; at += 64) __builtin_prefetch(p + at);
}

}  // namespace
