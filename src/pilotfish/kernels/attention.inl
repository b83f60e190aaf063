// One block of up to four pages of 64 keys, for several queries that share each read of it.
//
// Scores: lanes are keys, each score a chain of fused multiply-adds over ascending head dimensions. Values:
// lanes are head dimensions, a chain over ascending visible keys. So a query's result depends on what it sees
// and on nothing else.

#include <utility>

namespace {

using pilotfish::kBlockKeys;
using pilotfish::kBlockPages;
using pilotfish::KeyBlock;
using pilotfish::kPage;
using pilotfish::kPartialHeader;

// What is wanted next is asked for evenly on the way: `step` halves ahead for 16 lanes of work.
struct Ahead {
  const uint16_t* at;
  int step;
  template <int C>
  void fetch() {
    __builtin_prefetch(at, 0, 2);
    at += step * C;
  }
};

// How many chunks of 16 lanes N queries take at a time: enough chains of additions to keep the units busy,
// few enough for the registers.
template <int N>
constexpr int chunks_at_once() {
  constexpr int most = V::kChains / (N * kParts);
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// Scores of 16 * C keys from `keys` on.
template <int N, int C>
inline void scores_of(const float* const* q, int head, const uint16_t* keys, Ahead& next, float* out) {
  Lanes acc[C][N];
#pragma GCC unroll 4
  for (int c = 0; c < C; c++)
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) acc[c][i] = Lanes::set(0.0f);
  Ahead ahead = next;  // in a register
  for (int d = 0; d < head; d++, keys += kPage) {
    ahead.fetch<C>();
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      const Lanes column = Lanes::load_half(keys + 16 * c);
#pragma GCC unroll 8
      for (int i = 0; i < N; i++) acc[c][i] = fma(column, q[i][d], acc[c][i]);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < C; c++)
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) acc[c][i].store(out + i * kBlockKeys + 16 * c);
  next = ahead;
}

// Scores of the first 16 * chunks keys of a page.
template <int N>
inline void scores(const float* const* q, int head, const uint16_t* keys, Ahead& next, int chunks,
                   float* out) {
  constexpr int C = chunks_at_once<N>();
  int at = 0;
  for (; at + 16 * C <= 16 * chunks; at += 16 * C) scores_of<N, C>(q, head, keys + at, next, out + at);
  for (; at < 16 * chunks; at += 16) scores_of<N, 1>(q, head, keys + at, next, out + at);
}

// Turns scores into exp(score - largest) for visible keys, 0 for others up to the last visible one of a page;
// returns the sum.
inline float weights(float* scores, const uint64_t* masks, int pages, float* top) {
  const float none = -__builtin_inff();
  const auto chunks = [&](int page) {
    return masks[page] == 0 ? 0 : (64 - __builtin_clzll(masks[page]) + 15) / 16;
  };
  const auto hide = [&](float value) {
    for (int page = 0; page < pages; page++)
      if (~masks[page] != 0)
        for (int j = 0; j < 16 * chunks(page); j++)
          if (!(masks[page] >> j & 1)) scores[kPage * page + j] = value;
  };
  const auto each = [&](auto work) {
    for (int page = 0; page < pages; page++)
      for (int c = 0; c < chunks(page); c++) work(scores + kPage * page + 16 * c);
  };
  hide(none);
  Lanes best = Lanes::set(none);
  each([&](float* s) { best = max(best, Lanes::load(s)); });
  *top = largest(best);
  const Lanes most = Lanes::set(*top);
  each([&](float* s) { exp(sub(Lanes::load(s), most)).store(s); });
  hide(0.0f);
  Lanes total = Lanes::set(0.0f);
  each([&](float* s) { total = add(total, Lanes::load(s)); });
  return sum(total);
}

// Adds the weighted values of 16 * C head dimensions, from `values` on, of one page's keys; the first
// `common` keys are seen by all queries.
template <int N, int C>
inline void values_of(const float* p, const uint64_t* masks, int common, int head, const uint16_t* values,
                      Ahead& next, float* out, size_t stride) {
  Ahead ahead = next;
  Lanes acc[C][N];
  for (int c = 0; c < C; c++)
    for (int i = 0; i < N; i++) acc[c][i] = Lanes::load(out + i * stride + 16 * c);
  const uint16_t* v = values;
  for (int j = 0; j < common; j++, v += head) {
    ahead.fetch<C>();
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      const Lanes row = Lanes::load_half(v + 16 * c);
#pragma GCC unroll 8
      for (int i = 0; i < N; i++) acc[c][i] = fma(row, p[i * kBlockKeys + j], acc[c][i]);
    }
  }
  for (int i = 0; i < N; i++) {
    if (common < kPage)
      for (uint64_t rest = masks[i * kBlockPages] >> common << common; rest != 0; rest &= rest - 1) {
        const int j = __builtin_ctzll(rest);
        for (int c = 0; c < C; c++)
          acc[c][i] = fma(Lanes::load_half(values + j * head + 16 * c), p[i * kBlockKeys + j], acc[c][i]);
      }
    for (int c = 0; c < C; c++) acc[c][i].store(out + i * stride + 16 * c);
  }
}

// What N queries see of a page: chunks that any sees, and the first keys that all see.
template <int N>
struct Seen {
  int chunks, common;
  explicit Seen(const uint64_t* masks) {
    uint64_t any = 0, every = ~uint64_t{0};
    for (int i = 0; i < N; i++) any |= masks[i * kBlockPages], every &= masks[i * kBlockPages];
    chunks = any == 0 ? 0 : (64 - __builtin_clzll(any) + 15) / 16;
    common = ~every == 0 ? kPage : __builtin_ctzll(~every);
  }
};

template <int N>
void scores_of_some(const float* const* q, const uint64_t* masks, int head, const uint16_t* keys, Ahead& next,
                    float* out) {
  scores<N>(q, head, keys, next, Seen<N>(masks).chunks, out);
}

template <int N>
void values_of_some(const float* p, const uint64_t* masks, int head, const uint16_t* values, Ahead& next,
                    float* out, size_t stride) {
  constexpr int C = chunks_at_once<N>();
  const Seen<N> seen(masks);
  if (seen.chunks == 0) return;
  int d = 0;
  for (; d + 16 * C <= head; d += 16 * C)
    values_of<N, C>(p, masks, seen.common, head, values + d, next, out + d, stride);
  for (; d < head; d += 16) values_of<N, 1>(p, masks, seen.common, head, values + d, next, out + d, stride);
}

template <class Sizes>
struct BySize;
template <int... N>
struct BySize<std::integer_sequence<int, N...>> {  // [n - 1] for n queries
  static constexpr decltype(&scores_of_some<1>) scores[] = {scores_of_some<N + 1>...};
  static constexpr decltype(&values_of_some<1>) values[] = {values_of_some<N + 1>...};
};
using Some = BySize<std::make_integer_sequence<int, V::kQueries>>;

// Calls work(first, n) for groups of queries of like size.
template <class Work>
inline void in_groups(int queries, const Work& work) {
  int first = 0;
  for (int times = (queries + V::kQueries - 1) / V::kQueries; times > 0; times--) {
    const int n = (queries - first + times - 1) / times;
    work(first, n);
    first += n;
  }
}

// A page is used for all queries while it is in the cache.
void attend(const float* const* q, const uint64_t* masks, int queries, int head, const KeyBlock& block,
            float* scores, float* partial, size_t stride) {
  const int step = 1 + 15 / ((queries + V::kQueries - 1) / V::kQueries);
  for (int page = 0; page < block.pages; page++) {
    Ahead next{block.keys[page + 1], step};
    in_groups(queries, [&](int first, int n) {
      Some::scores[n - 1](q + first, masks + first * kBlockPages + page, head, block.keys[page], next,
                          scores + first * kBlockKeys + page * kPage);
    });
  }
  for (int i = 0; i < queries; i++) {
    float* header = partial + i * stride;
    header[1] = weights(scores + i * kBlockKeys, masks + i * kBlockPages, block.pages, header);
    for (int d = 0; d < head; d += 16) Lanes::set(0.0f).store(header + kPartialHeader + d);
  }
  for (int page = 0; page < block.pages; page++) {
    Ahead next{block.values[page + 1], step};
    in_groups(queries, [&](int first, int n) {
      Some::values[n - 1](scores + first * kBlockKeys + page * kPage, masks + first * kBlockPages + page,
                          head, block.values[page], next, partial + first * stride + kPartialHeader, stride);
    });
  }
}

void merge(float* total, const float* part, int head) {
  if (part[1] == 0.0f) return;  // saw no key
  if (total[1] == 0.0f) {
    for (int i = 0; i < head + kPartialHeader; i++) total[i] = part[i];
    return;
  }
  const float top = total[0] > part[0] ? total[0] : part[0];
  float both[16] = {total[0] - top, part[0] - top};
  exp(Lanes::load(both)).store(both);
  total[0] = top;
  total[1] = total[1] * both[0] + part[1] * both[1];
  const Lanes a = Lanes::set(both[0]);
  for (int d = kPartialHeader; d < head + kPartialHeader; d += 16)
    fma(Lanes::load(part + d), both[1], mul(Lanes::load(total + d), a)).store(total + d);
}

void finish(const float* total, int head, float* y) {
  const Lanes sum = Lanes::set(total[1]);
  for (int d = 0; d < head; d += 16) div(Lanes::load(total + kPartialHeader + d), sum).store(y + d);
}

}  // namespace
