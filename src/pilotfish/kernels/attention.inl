// One block of 64 keys for several queries that share each read of it.
//
// Scores: lanes are keys, each score a chain of fused multiply-adds over ascending head dimensions. Values:
// lanes are head dimensions, a chain over ascending visible keys. So a query's result depends on what it sees
// and on nothing else.

namespace {

using pilotfish::kPage;
using pilotfish::kPartialHeader;

template <int N>
inline void scores(const float* const* q, int head, const uint16_t* keys, int chunks, float (*out)[kPage]) {
  for (int chunk = 0; chunk < chunks; chunk++) {
    Lanes acc[N];
    for (auto& a : acc) a = Lanes::set(0.0f);
    const uint16_t* k = keys + 16 * chunk;
    for (int d = 0; d < head; d++, k += kPage) {
      const Lanes column = Lanes::load_half(k);
#pragma GCC unroll 8
      for (int i = 0; i < N; i++) acc[i] = fma(column, q[i][d], acc[i]);
    }
    for (int i = 0; i < N; i++) acc[i].store(out[i] + 16 * chunk);
  }
}

// Turns scores into exp(score - largest) for visible keys, 0 for others; returns the sum.
inline float weights(float* s, uint64_t mask, int chunks, float* top) {
  const float none = -__builtin_inff();
  Lanes best = Lanes::set(none);
  for (int j = 0; j < 16 * chunks; j++)
    if (!(mask >> j & 1)) s[j] = none;
  for (int c = 0; c < chunks; c++) best = max(best, Lanes::load(s + 16 * c));
  *top = largest(best);
  Lanes total = Lanes::set(0.0f);
  for (int c = 0; c < chunks; c++) exp(sub(Lanes::load(s + 16 * c), Lanes::set(*top))).store(s + 16 * c);
  for (int j = 0; j < 16 * chunks; j++)
    if (!(mask >> j & 1)) s[j] = 0.0f;
  for (int c = 0; c < chunks; c++) total = add(total, Lanes::load(s + 16 * c));
  return sum(total);
}

template <int N>
inline void values_of(const float (*p)[kPage], const uint64_t* masks, int head, const uint16_t* values,
                      float* out, size_t stride) {
  uint64_t all = ~uint64_t{0};
  for (int i = 0; i < N; i++) all &= masks[i];
  const int common =
      ~all == 0 ? kPage : __builtin_ctzll(~all);  // keys that every query sees, from the first on
  for (int chunk = 0; chunk < head / 16; chunk++) {
    Lanes acc[N];
    for (auto& a : acc) a = Lanes::set(0.0f);
    const uint16_t* v = values + 16 * chunk;
    for (int j = 0; j < common; j++) {
      const Lanes row = Lanes::load_half(v + j * head);
#pragma GCC unroll 8
      for (int i = 0; i < N; i++) acc[i] = fma(row, p[i][j], acc[i]);
    }
    for (int i = 0; i < N; i++) {
      if (common < kPage)
        for (uint64_t rest = masks[i] >> common << common; rest != 0; rest &= rest - 1) {
          const int j = __builtin_ctzll(rest);
          acc[i] = fma(Lanes::load_half(v + j * head), p[i][j], acc[i]);
        }
      acc[i].store(out + i * stride + 16 * chunk);
    }
  }
}

template <int N>
void attend_some(const float* const* q, const uint64_t* masks, int head, const uint16_t* keys,
                 const uint16_t* values, float* partial, size_t stride) {
  alignas(64) float s[N][kPage];
  uint64_t any = 0;
  for (int i = 0; i < N; i++) any |= masks[i];
  const int chunks = any == 0 ? 0 : (64 - __builtin_clzll(any) + 15) / 16;
  scores<N>(q, head, keys, chunks, s);
  for (int i = 0; i < N; i++) partial[i * stride + 1] = weights(s[i], masks[i], chunks, &partial[i * stride]);
  values_of<N>(s, masks, head, values, partial + kPartialHeader, stride);
}

template <int N = V::kQueries>
void attend(const float* const* q, const uint64_t* masks, int queries, int head, const uint16_t* keys,
            const uint16_t* values, float* partial, size_t stride) {
  for (; queries >= N; queries -= N, q += N, masks += N, partial += N * stride)
    attend_some<N>(q, masks, head, keys, values, partial, stride);
  if constexpr (N > 1) attend<N / 2>(q, masks, queries, head, keys, values, partial, stride);
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
