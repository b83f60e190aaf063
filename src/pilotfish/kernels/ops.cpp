#include "ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "rope_table.h"

namespace pilotfish {
namespace {

// Calls work(i) for units 0..count-1 that this thread gets.
template <class Work>
void each(std::atomic<int64_t>& next, int64_t count, const Work& work) {
  for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
}

// One group of 16 rows times `tokens` tokens (at most a tile) from activation row `first` on: out[t * 16 +
// r].
void multiply(const Program& p, const Weight& w, int64_t group, const Program::Activations& act, int first,
              int tokens, float* out) {
  size_t stride;
  const uint8_t* a = act.row(w.type, first, p.float_activations, &stride);
  const int columns = static_cast<int>(w.columns);
  if (!p.float_activations || is_float(w.type)) {
    p.kernels.tile[static_cast<int>(w.type)][tokens](w.group(group), columns, a, stride, out);
    return;
  }
  for (int t = 0; t < tokens; t++)
    p.kernels.tile_float(w.type, w.group(group), columns, reinterpret_cast<const float*>(a + t * stride),
                         out + 16 * t);
}

int rows_of(const Pass& pass, bool wanted) {
  return wanted ? static_cast<int>(pass.wanted.size()) : pass.rows;
}

// The first position that a row sees.
int oldest(const Pass& pass, int row, int window) {
  return window == 0 ? 0 : std::max(0, pass.positions[row] - window + 1);
}

// The keys of `page` that a row sees, as bits. What was there before the pass lies in the slot of its
// position.
uint64_t visible(const Pass& pass, const Segment& s, int row, int page, int window) {
  const auto below = [&](int slot) {  // bits of slots before `slot`
    const int n = slot - page * kPage;
    return n <= 0 ? uint64_t{0} : n >= kPage ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  };
  const int first = oldest(pass, row, window);
  if (pass.ancestors == nullptr) return below(s.base + (row - s.first_row) + 1) & ~below(first);
  const int shift = s.base - page * kPage;
  uint64_t own = pass.ancestors[row];
  for (int i = 0; i < s.rows; i++)
    if (pass.positions[s.first_row + i] < first) own &= ~(uint64_t{1} << i);
  const uint64_t shifted = shift >= kPage || shift <= -kPage ? 0 : shift >= 0 ? own << shift : own >> -shift;
  return (below(s.base) & ~below(first)) | shifted;
}

}  // namespace

void RopeOp::run(Program& p, const Pass& pass, int, std::atomic<int64_t>& next) {
  auto& rope = p.ropes[table];
  each(next, pass.rows, [&](int64_t r) {
    rope.table->fill(pass.positions[r], rope.cosine.data() + r * rope.half, rope.sine.data() + r * rope.half);
  });
}

void EmbedOp::run(Program& p, const Pass& pass, int, std::atomic<int64_t>& next) {
  const int width = p.buffers[out].width;
  each(next, pass.rows, [&](int64_t r) {
    float* x = p.buffers[out].row(static_cast<int>(r));
    table->gather(pass.tokens[r], x);
    if (scale != 1.0f) p.kernels.scale(x, scale, width);
  });
}

void NormOp::run(Program& p, const Pass& pass, int thread, std::atomic<int64_t>& next) {
  const int width = p.buffers[in].width;
  float* y = p.scratch[thread].floats.data();
  each(next, rows_of(pass, wanted), [&](int64_t i) {
    const int row = wanted ? pass.wanted[i] : static_cast<int>(i);
    p.kernels.rms_norm(p.buffers[in].row(row), weight.data(), eps, width, y);
    p.acts[out].store(p.kernels, static_cast<int>(i), 0, y, width);
  });
}

void AddNormOp::run(Program& p, const Pass& pass, int thread, std::atomic<int64_t>& next) {
  const int width = p.buffers[in].width;
  float* y = p.scratch[thread].floats.data();
  each(next, pass.rows, [&](int64_t i) {
    const int row = static_cast<int>(i);
    p.kernels.rms_norm(p.buffers[in].row(row), weight.data(), eps, width, y);
    float* x = p.buffers[out].row(row);
    for (int j = 0; j < width; j++) x[j] += y[j];
  });
}

void LinearOp::run(Program& p, const Pass& pass, int, std::atomic<int64_t>& next) {
  constexpr size_t kept = size_t{128}
                          << 10;  // bytes of weights that stay in a core's cache beside activations
  const int rows = rows_of(pass, wanted), most = p.kernels.max_tokens;
  int64_t groups = 0;
  size_t widest = 1;
  for (const auto& part : parts) {
    groups += part.weight->groups();
    widest = std::max(widest, part.weight->group_bytes);
  }
  int64_t chunk = std::clamp<int64_t>(groups / (8 * pass.threads), 1, 16);
  if (rows > most) chunk = std::clamp<int64_t>(static_cast<int64_t>(kept / widest), 1, chunk);
  alignas(64) float tile[16 * kRows];
  const auto one_group = [&](const Program::Part& part, int64_t g, int first) {
    const Weight& w = *part.weight;
    const int live = static_cast<int>(std::min<int64_t>(kRows, w.rows - g * kRows));
    const int tokens = std::min(most, rows - first);
    multiply(p, w, g, p.acts[in], first, tokens, tile);
    for (int t = 0; t < tokens; t++) {
      float* y = p.buffers[out].row(first + t) + part.offset + g * kRows;
      const float* x = tile + t * kRows;
      for (int r = 0; r < live; r++) {
        float value = x[r];
        if (!part.bias.empty()) value += part.bias[g * kRows + r];
        y[r] = add ? y[r] + value : value;
      }
    }
  };
  each(next, (groups + chunk - 1) / chunk, [&](int64_t unit) {
    for (int first = 0; first < rows; first += most) {  // weights of a unit are read again from the cache
      int64_t begin = unit * chunk;
      int64_t left = std::min(chunk, groups - begin);
      for (const auto& part : parts) {
        for (; left > 0 && begin < part.weight->groups(); begin++, left--) one_group(part, begin, first);
        begin -= part.weight->groups();
        if (left == 0) break;
      }
    }
  });
}

RestrictedHeadOp::RestrictedHeadOp(int in, std::shared_ptr<Weight> w, int out)
    : in(in), out(out), weight(std::move(w)), groups(static_cast<size_t>(weight->groups())) {
  std::iota(groups.begin(), groups.end(), 0);
}

void RestrictedHeadOp::run(Program& p, const Pass& pass, int, std::atomic<int64_t>& next) {
  const int rows = rows_of(pass, true), most = p.kernels.max_tokens;
  const auto count = static_cast<int64_t>(groups.size());
  const int64_t chunk = std::clamp<int64_t>(count / (8 * pass.threads), 1, 16);
  alignas(64) float tile[16 * kRows];
  each(next, (count + chunk - 1) / chunk, [&](int64_t unit) {
    for (int first = 0; first < rows; first += most) {
      const int tokens = std::min(most, rows - first);
      for (int64_t i = unit * chunk; i < std::min(count, (unit + 1) * chunk); i++) {
        const int64_t row = int64_t{groups[i]} * kRows;
        multiply(p, *weight, groups[i], p.acts[in], first, tokens, tile);
        const auto live = static_cast<size_t>(std::min<int64_t>(kRows, weight->rows - row));
        for (int t = 0; t < tokens; t++)
          std::memcpy(p.buffers[out].row(first + t) + row, tile + t * kRows, live * sizeof(float));
      }
    }
  });
}

void GatedOp::run(Program& p, const Pass& pass, int, std::atomic<int64_t>& next) {
  const int most = p.kernels.max_tokens;
  const auto& act = gelu ? p.kernels.gelu_mul : p.kernels.silu_mul;
  const int64_t up_from = gate == up ? p.acts[out].width / kRows : 0;  // its first group
  alignas(64) float g[2][16 * kRows], u[2][16 * kRows];
  each(next, p.acts[out].width / kBlock, [&](int64_t unit) {  // 32 outputs: one block of the next activations
    for (int first = 0; first < pass.rows; first += most) {
      const int tokens = std::min(most, pass.rows - first);
      for (int half = 0; half < 2; half++)
        multiply(p, *gate, 2 * unit + half, p.acts[in], first, tokens, g[half]);
      for (int half = 0; half < 2; half++)
        multiply(p, *up, up_from + 2 * unit + half, p.acts[in], first, tokens, u[half]);
      for (int t = 0; t < tokens; t++) {
        float y[kBlock];
        for (int half = 0; half < 2; half++)
          act(g[half] + t * kRows, u[half] + t * kRows, y + half * kRows, kRows);
        p.acts[out].store(p.kernels, first + t, static_cast<int>(unit) * kBlock, y, kBlock);
      }
    }
  });
}

void CacheOp::run(Program& p, const Pass& pass, int thread, std::atomic<int64_t>& next) {
  const Pages& pages = *p.pages;
  const int head = pages.head(), kv_heads = pages.kv_heads(), half = p.ropes[table].half;
  uint16_t* halves = p.scratch[thread].halves.data();
  each(next, pass.rows, [&](int64_t row) {
    const Segment& s = pass.segments[pass.segment_of[row]];
    const int slot = s.base + static_cast<int>(row) - s.first_row;
    const int page = s.table[slot / kPage], at = slot % kPage;
    const float* cosine = p.ropes[table].cosine.data() + row * half;
    const float* sine = p.ropes[table].sine.data() + row * half;
    float* x = p.buffers[qkv].row(static_cast<int>(row));
    for (int h = 0; h < heads + kv_heads; h++) {
      const auto& weight = h < heads ? norms.query : norms.key;
      if (!weight.empty()) p.kernels.rms_norm(x + h * head, weight.data(), norms.eps, head, x + h * head);
      p.kernels.rope(x + h * head, cosine, sine, half);
    }
    p.kernels.scale(x, scale, heads * head);
    for (int h = 0; h < kv_heads; h++) {
      p.kernels.to_half(x + (heads + h) * head, halves, head);
      uint16_t* keys = pages.keys(page, layer, h) + at;
      for (int d = 0; d < head; d++) keys[d * kPage] = halves[d];
      p.kernels.to_half(x + (heads + kv_heads + h) * head, pages.values(page, layer, h) + at * head, head);
    }
  });
}

void AttendOp::run(Program& p, const Pass& pass, int thread, std::atomic<int64_t>& next) {
  const Pages& pages = *p.pages;
  const AttentionPlan& plan = p.plan;
  const int head = pages.head(), kv_heads = pages.kv_heads(), group = heads / kv_heads;
  const size_t between =
      static_cast<size_t>(plan.kept()) * plan.stride;  // floats between two queries' results
  auto& scratch = p.scratch[thread];
  float* fresh = scratch.floats.data();

  // `ahead`: the block that this thread is likely to be at next
  const auto one_block = [&](const AttentionPlan::Tile& tile, int kv_head, int block, int ahead,
                             int pages_seen) {
    const Segment& s = pass.segments[tile.segment];
    const int first = block * kBlockPages;
    KeyBlock now;
    now.pages = std::min(kBlockPages, pages_seen - first);
    const auto set = [&](int i, int page) {
      now.keys[i] = pages.keys(s.table[page], layer, kv_head);
      now.values[i] = pages.values(s.table[page], layer, kv_head);
    };
    for (int i = 0; i < now.pages; i++) set(i, first + i);
    set(now.pages, std::min(ahead * kBlockPages, pages_seen - 1));
    int n = 0;
    for (int row = tile.first_row; row < tile.first_row + tile.rows; row++) {
      uint64_t masks[kBlockPages];
      for (int i = 0; i < now.pages; i++) masks[i] = visible(pass, s, row, first + i, window);
      for (int h = 0; h < group; h++, n++) {
        scratch.queries[n] = p.buffers[qkv].row(row) + (kv_head * group + h) * head;
        std::copy(masks, masks + now.pages, &scratch.masks[static_cast<size_t>(n) * kBlockPages]);
      }
    }
    p.kernels.attend(scratch.queries.data(), scratch.masks.data(), n, head, now, scratch.scores.data(), fresh,
                     plan.stride);
    return n;
  };
  const auto result = [&](const AttentionPlan::Tile& tile, int kv_head, int i) {  // of the tile's i-th query
    const int row = tile.first_row + i / group, h = kv_head * group + i % group;
    return p.partials.data() + (static_cast<size_t>(row) * heads + h) * between;
  };

  const int64_t per_tile = static_cast<int64_t>(kv_heads) * plan.kept();
  each(next, static_cast<int64_t>(plan.tiles.size()) * per_tile, [&](int64_t unit) {
    const auto& tile = plan.tiles[unit / per_tile];
    const Segment& s = pass.segments[tile.segment];
    const int kv_head = static_cast<int>(unit % per_tile) / plan.kept();
    const int pages_seen = (s.base + tile.first_row - s.first_row + tile.rows + kPage - 1) / kPage;
    const int blocks_seen = (pages_seen + kBlockPages - 1) / kBlockPages;
    int first_block = blocks_seen;
    for (int row = tile.first_row; row < tile.first_row + tile.rows; row++)
      first_block = std::min(first_block, oldest(pass, row, window) / kBlockKeys);
    if (plan.by_block) {
      const int block = static_cast<int>(unit % plan.kept());
      const int ahead = std::min(block + pass.threads, blocks_seen - 1);
      const bool seen = first_block <= block && block < blocks_seen;
      const int n = seen ? one_block(tile, kv_head, block, ahead, pages_seen) : tile.rows * group;
      for (int i = 0; i < n; i++) {
        float* to = result(tile, kv_head, i) + static_cast<size_t>(block) * plan.stride;
        if (seen)
          std::memcpy(to, fresh + i * plan.stride, sizeof(float) * plan.stride);
        else
          to[1] = 0.0f;  // saw nothing
      }
      return;
    }
    for (int i = 0; i < tile.rows * group; i++) result(tile, kv_head, i)[1] = 0.0f;
    for (int block = first_block; block < blocks_seen; block++) {
      const int n = one_block(tile, kv_head, block, block + 1, pages_seen);
      for (int i = 0; i < n; i++) p.kernels.merge(result(tile, kv_head, i), fresh + i * plan.stride, head);
    }
  });
}

void MergeOp::run(Program& p, const Pass& pass, int thread, std::atomic<int64_t>& next) {
  const int head = p.pages->head(), kept = p.plan.kept();
  float* y = p.scratch[thread].floats.data();
  each(next, static_cast<int64_t>(pass.rows) * heads, [&](int64_t i) {
    float* total = p.partials.data() + static_cast<size_t>(i) * kept * p.plan.stride;
    for (int block = 1; block < kept; block++)
      p.kernels.merge(total, total + static_cast<size_t>(block) * p.plan.stride, head);
    p.kernels.finish(total, head, y);
    p.acts[out].store(p.kernels, static_cast<int>(i / heads), static_cast<int>(i % heads) * head, y, head);
  });
}

}  // namespace pilotfish
