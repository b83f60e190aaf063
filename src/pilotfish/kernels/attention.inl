// One block of 64 keys for several queries that share each read of it.
//
// Scores: lanes are keys, each score a chain of fused multiply-adds over ascending head dimensions. Values:
// lanes are head dimensions, a chain over ascending visible keys. So a query's result depends on what it sees
// and on nothing else.

#include <utility>

namespace {

using pilotfish::kPage;
using pilotfish::kPartialHeader;

// How many chunks of 16 lanes N queries take at a time: enough chains of additions to keep the units busy,
// few enough for the registers.
template <int N>
constexpr int chunks_at_once() {
  constexpr int most = V::kChains / (N * kParts);
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

// Scores of 16 * C keys from `keys` on, and a look ahead at what is wanted next.
template <int N, int C>
inline void scores_of(const float* const* q, int head, const uint16_t* keys, const uint16_t* next,
                      float (*out)[kPage]) {
  Lanes acc[C][N];
  for (auto& chunk : acc)
    for (auto& a : chunk) a = Lanes::set(0.0f);
  for (int d = 0; d < head; d++, keys += kPage, next += kPage) {
    __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      const Lanes column = Lanes::load_half(keys + 16 * c);
#pragma GCC unroll 8
      for (int i = 0; i < N; i++) acc[c][i] = fma(column, q[i][d], acc[c][i]);
    }
  }
  for (int c = 0; c < C; c++)
    for (int i = 0; i < N; i++) acc[c][i].store(out[i] + 16 * c);
}

template <int N>
inline void scores(const float* const* q, int head, const uint16_t* keys, const uint16_t* next, int chunks,
                   float (*out)[kPage]) {
  constexpr int C = chunks_at_once<N>();
  int chunk = 0;
  const auto to = [&] { return reinterpret_cast<float (*)[kPage]>(&out[0][16 * chunk]); };
  for (; chunk + C <= chunks; chunk += C)
    scores_of<N, C>(q, head, keys + 16 * chunk, next + 16 * chunk, to());
  for (; chunk < chunks; chunk++) scores_of<N, 1>(q, head, keys + 16 * chunk, next + 16 * chunk, to());
}

// Turns scores into exp(score - largest) for visible keys, 0 for others; returns the sum.
inline float weights(float* s, uint64_t mask, int chunks, float* top) {
  const float none = -__builtin_inff();
  const bool all = chunks == kPage / 16 && ~mask == 0;
  Lanes best = Lanes::set(none);
  if (!all)
    for (int j = 0; j < 16 * chunks; j++)
      if (!(mask >> j & 1)) s[j] = none;
  for (int c = 0; c < chunks; c++) best = max(best, Lanes::load(s + 16 * c));
  *top = largest(best);
  Lanes total = Lanes::set(0.0f);
  for (int c = 0; c < chunks; c++) exp(sub(Lanes::load(s + 16 * c), Lanes::set(*top))).store(s + 16 * c);
  if (!all)
    for (int j = 0; j < 16 * chunks; j++)
      if (!(mask >> j & 1)) s[j] = 0.0f;
  for (int c = 0; c < chunks; c++) total = add(total, Lanes::load(s + 16 * c));
  return sum(total);
}

// Weighted values of 16 * C head dimensions from `values` on.
template <int N, int C>
inline void values_of(const float (*p)[kPage], const uint64_t* masks, int common, int head,
                      const uint16_t* values, const uint16_t* next, float* out, size_t stride) {
  Lanes acc[C][N];
  for (auto& chunk : acc)
    for (auto& a : chunk) a = Lanes::set(0.0f);
  const uint16_t* v = values;
  for (int j = 0; j < common; j++, v += head, next += head) {
    __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) {
      const Lanes row = Lanes::load_half(v + 16 * c);
#pragma GCC unroll 8
      for (int i = 0; i < N; i++) acc[c][i] = fma(row, p[i][j], acc[c][i]);
    }
  }
  for (int i = 0; i < N; i++) {
    if (common < kPage)
      for (uint64_t rest = masks[i] >> common << common; rest != 0; rest &= rest - 1) {
        const int j = __builtin_ctzll(rest);
        for (int c = 0; c < C; c++)
          acc[c][i] = fma(Lanes::load_half(values + j * head + 16 * c), p[i][j], acc[c][i]);
      }
    for (int c = 0; c < C; c++) acc[c][i].store(out + i * stride + 16 * c);
  }
}

template <int N>
void attend_some(const float* const* q, const uint64_t* masks, int head, const uint16_t* keys,
                 const uint16_t* values, const uint16_t* next_keys, const uint16_t* next_values,
                 float* partial, size_t stride) {
  alignas(64) float s[N][kPage];
  uint64_t any = 0, every = ~uint64_t{0};
  for (int i = 0; i < N; i++) any |= masks[i], every &= masks[i];
  const int chunks = any == 0 ? 0 : (64 - __builtin_clzll(any) + 15) / 16;
  scores<N>(q, head, keys, next_keys, chunks, s);
  for (int i = 0; i < N; i++) partial[i * stride + 1] = weights(s[i], masks[i], chunks, &partial[i * stride]);
  const int common = ~every == 0 ? kPage : __builtin_ctzll(~every);  // keys all see, from the first on
  constexpr int C = chunks_at_once<N>();
  float* out = partial + kPartialHeader;
  int d = 0;
  for (; d + 16 * C <= head; d += 16 * C)
    values_of<N, C>(s, masks, common, head, values + d, next_values + d, out + d, stride);
  for (; d < head; d += 16)
    values_of<N, 1>(s, masks, common, head, values + d, next_values + d, out + d, stride);
}

using Some = void (*)(const float* const*, const uint64_t*, int, const uint16_t*, const uint16_t*,
                      const uint16_t*, const uint16_t*, float*, size_t);
template <class Sizes>
struct AttendSome;
template <int... N>
struct AttendSome<std::integer_sequence<int, N...>> {
  static constexpr Some by_queries[] = {attend_some<N + 1>...};  // [n - 1] for n queries
};

void attend(const float* const* q, const uint64_t* masks, int queries, int head, const uint16_t* keys,
            const uint16_t* values, const uint16_t* next_keys, const uint16_t* next_values, float* partial,
            size_t stride) {
  using Table = AttendSome<std::make_integer_sequence<int, V::kQueries>>;
  for (int times = (queries + V::kQueries - 1) / V::kQueries; times > 0; times--) {
    const int n = (queries + times - 1) / times;  // groups of like size
    Table::by_queries[n - 1](q, masks, head, keys, values, next_keys, next_values, partial, stride);
    queries -= n, q += n, masks += n, partial += n * stride;
    next_keys = keys, next_values = values;  // asked for already
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
