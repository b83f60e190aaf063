#include "program.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <stdexcept>

#include "ops.h"
#include "pool.h"
#include "rope_table.h"

namespace pilotfish {
namespace {

constexpr float kAbsentLogit = -std::numeric_limits<float>::infinity();

}  // namespace

int Pages::allocate() {
  if (count_ == reserved()) take();
  return count_++;
}
void Pages::take() {
  // Zeroed: masked keys are computed, then dropped.
  if (reserved() % kSlab == 0) slabs_.push_back(std::make_unique<Arena>(kSlab * page_bytes()));
  pages_.push_back(reinterpret_cast<uint16_t*>(slabs_.back()->take(page_bytes())));
}
void Pages::reserve(int count) {
  while (reserved() < count) {
    take();
    std::memset(pages_.back(), 0, page_bytes());
  }
}
void Pages::copy(int from, int to) { std::memcpy(pages_[to], pages_[from], page_bytes()); }

void Program::Activations::reserve(size_t rows, int most) {
  tile = static_cast<int>(std::min(rows, static_cast<size_t>(most)));
  const size_t whole = (rows + tile - 1) / tile * tile;
  if (quantized && blocks.size() < whole * (width / kBlock)) blocks.resize(whole * (width / kBlock));
  if (floats && values.size() < rows * width) values.resize(rows * width);
}

const uint8_t* Program::Activations::row(Type type, int r, bool as_float, size_t* stride) const {
  if (as_float || is_float(type)) {
    *stride = static_cast<size_t>(width) * sizeof(float);
    return reinterpret_cast<const uint8_t*>(values.data() + static_cast<size_t>(r) * width);
  }
  *stride = static_cast<size_t>(tile) * sizeof(ActBlock);
  return reinterpret_cast<const uint8_t*>(blocks.data() +
                                          static_cast<size_t>(r / tile) * tile * (width / kBlock) + r % tile);
}

void Program::Activations::store(const Kernels& k, int r, int offset, const float* x, int n) {
  const size_t first = static_cast<size_t>(r / tile) * tile * (width / kBlock) + r % tile;
  if (quantized) k.quantize(x, n, blocks.data() + first + static_cast<size_t>(offset / kBlock) * tile, tile);
  if (floats)
    std::memcpy(values.data() + static_cast<size_t>(r) * width + offset, x,
                static_cast<size_t>(n) * sizeof(float));
}

Program::Program(const Kernels* k, std::shared_ptr<Pages> p, bool floats)
    : kernels(*k), float_activations(floats), pages(std::move(p)) {}
Program::~Program() {
  for (auto& rope : ropes) delete rope.table;
}

int Program::buffer(int width) {
  buffers.push_back({width, {}});
  return static_cast<int>(buffers.size()) - 1;
}
int Program::activations(int width) {
  if (width % kBlock != 0) throw std::invalid_argument("width is not a multiple of 32");
  acts.emplace_back();
  acts.back().width = width;
  return static_cast<int>(acts.size()) - 1;
}
int Program::rope_table(double base, int dimensions, const std::vector<float>& factors, double magnitude) {
  if (static_cast<int>(factors.size()) != dimensions / 2)
    throw std::invalid_argument("one factor for each pair, please");
  ropes.push_back({new RopeTable(base, dimensions, factors, magnitude), dimensions / 2, {}, {}});
  ops_.push_back(std::make_unique<RopeOp>(static_cast<int>(ropes.size()) - 1));
  return static_cast<int>(ropes.size()) - 1;
}
void Program::embed(std::shared_ptr<Weight> table, float scale, int out) {
  if (table->columns != buffers.at(out).width)
    throw std::invalid_argument("embedding width differs from the buffer's");
  ops_.push_back(std::make_unique<EmbedOp>(std::move(table), scale, out));
}
void Program::norm(int in, std::vector<float> weight, float eps, int out, bool wanted_only) {
  if (static_cast<int>(weight.size()) != buffers.at(in).width || acts.at(out).width != buffers.at(in).width)
    throw std::invalid_argument("norm weight differs from the buffer's width");
  widest_norm_ = std::max(widest_norm_, buffers[in].width);
  ops_.push_back(std::make_unique<NormOp>(in, std::move(weight), eps, out, wanted_only));
}
void Program::add_norm(int in, std::vector<float> weight, float eps, int out) {
  if (static_cast<int>(weight.size()) != buffers.at(in).width ||
      buffers.at(out).width != buffers.at(in).width)
    throw std::invalid_argument("norm weight differs from the buffers' width");
  widest_norm_ = std::max(widest_norm_, buffers[in].width);
  ops_.push_back(std::make_unique<AddNormOp>(in, std::move(weight), eps, out));
}
void Program::linear(int in, std::vector<Part> parts, int out, bool add, bool wanted_only, std::string name) {
  for (auto& part : parts) {
    if (part.weight->columns != acts.at(in).width || part.offset + part.weight->rows > buffers.at(out).width)
      throw std::invalid_argument("matrix shape differs from its buffers");
    if (!part.bias.empty() && static_cast<int64_t>(part.bias.size()) != part.weight->rows)
      throw std::invalid_argument("bias length differs from the matrix's rows");
    (float_activations || is_float(part.weight->type) ? acts[in].floats : acts[in].quantized) = true;
  }
  ops_.push_back(std::make_unique<LinearOp>(in, std::move(parts), out, add, wanted_only, std::move(name)));
}
void Program::restricted_head(int in, std::shared_ptr<Weight> weight, int out) {
  if (weight->columns != acts.at(in).width || weight->rows != buffers.at(out).width)
    throw std::invalid_argument("matrix shape differs from its buffers");
  (float_activations || is_float(weight->type) ? acts[in].floats : acts[in].quantized) = true;
  auto op = std::make_unique<RestrictedHeadOp>(in, std::move(weight), out);
  head_ = op.get();
  ops_.push_back(std::move(op));
  set_logits(out);
}
void Program::set_head_groups(std::vector<int32_t> groups) {
  auto& buffer = buffers[head_->out];
  std::vector<int32_t> gone;
  std::set_difference(head_->groups.begin(), head_->groups.end(), groups.begin(), groups.end(),
                      std::back_inserter(gone));
  for (size_t row = 0; row < buffer.data.size(); row += buffer.width)
    for (const int32_t group : gone) {
      const int first = group * kRows;
      std::fill_n(&buffer.data[row + first], std::min(kRows, buffer.width - first), kAbsentLogit);
    }
  head_->groups = std::move(groups);
  restricted_ = static_cast<int64_t>(head_->groups.size()) < head_groups();
}
int64_t Program::head_groups() const { return head_ == nullptr ? 0 : head_->weight->groups(); }
void Program::rope_and_cache(int qkv, int heads, int layer, int table, float query_scale, HeadNorms norms) {
  const auto head = static_cast<size_t>(pages->head());
  for (const auto* weight : {&norms.query, &norms.key})
    if (!weight->empty() && weight->size() != head)
      throw std::invalid_argument("a head's norm differs from its size");
  if (buffers.at(qkv).width != (heads + 2 * pages->kv_heads()) * pages->head() || layer >= pages->layers() ||
      ropes.at(table).half * 2 > pages->head() || ropes[table].half % 16 != 0 ||
      heads % pages->kv_heads() != 0)
    throw std::invalid_argument("attention shapes don't fit the cache");
  ops_.push_back(std::make_unique<CacheOp>(qkv, heads, layer, table, query_scale, std::move(norms)));
}
void Program::attention(int qkv, int heads, int layer, int window, int out) {
  if (acts.at(out).width != heads * pages->head() || window < 0)
    throw std::invalid_argument("attention width differs");
  heads_ = std::max(heads_, heads);
  ops_.push_back(std::make_unique<AttendOp>(qkv, heads, layer, window));
  ops_.push_back(std::make_unique<MergeOp>(heads, out));
}
void Program::gated(int in, std::shared_ptr<Weight> gate, std::shared_ptr<Weight> up, bool gelu, int out) {
  const int both = gate == up ? 2 : 1;
  for (const auto& w : {gate, up}) {
    if (w->columns != acts.at(in).width || w->rows != both * acts.at(out).width)
      throw std::invalid_argument("gate or up matrix shape differs from its buffers");
    (float_activations || is_float(w->type) ? acts[in].floats : acts[in].quantized) = true;
  }
  ops_.push_back(std::make_unique<GatedOp>(in, std::move(gate), std::move(up), gelu, out));
}

void Program::hold(size_t rows, size_t wanted) {
  for (size_t i = 0; i < buffers.size(); i++) {
    const size_t n = static_cast<int>(i) == logits_buffer_ ? wanted : rows;
    const float fill = static_cast<int>(i) == logits_buffer_ && restricted_ ? kAbsentLogit : 0.0f;
    if (buffers[i].data.size() < n * buffers[i].width) buffers[i].data.resize(n * buffers[i].width, fill);
  }
  for (auto& a : acts) a.reserve(rows, kernels.max_tokens);
  for (auto& r : ropes)
    if (r.cosine.size() < rows * r.half) r.cosine.resize(rows * r.half), r.sine.resize(rows * r.half);
}

int Program::rows_per_tile() const {
  return std::max(1, kQueriesPerTile / std::max(1, heads_ / std::max(1, pages->kv_heads())));
}

bool Program::few_tiles(size_t tiles, int threads) const {
  return tiles * pages->kv_heads() < static_cast<size_t>(4) * threads;
}

void Program::plan_attention(const Pass& pass) {
  const int rows = rows_per_tile();
  plan.tiles.clear();
  plan.blocks = 0;
  for (size_t i = 0; i < pass.segments.size(); i++) {
    const Segment& s = pass.segments[i];
    plan.blocks = std::max(plan.blocks, (s.base + s.rows + kBlockKeys - 1) / kBlockKeys);
    for (int r = 0; r < s.rows; r += rows)
      plan.tiles.push_back({static_cast<int>(i), s.first_row + r, std::min(rows, s.rows - r)});
  }
  plan.stride = kPartialHeader + pages->head();
  const size_t each = static_cast<size_t>(pass.rows) * heads_ * plan.stride;
  plan.by_block =
      each * plan.blocks * sizeof(float) <= kMostByBlock && few_tiles(plan.tiles.size(), pass.threads);
  hold_partials(each * plan.kept());
}

void Program::hold_partials(size_t floats) {
  if (partials.size() < floats) partials.resize(floats);
}

void Program::hold_scratch(int threads) {
  if (scratch.size() < static_cast<size_t>(threads)) scratch.resize(threads);
  const size_t head = pages->head();
  const size_t queries = std::max(kQueriesPerTile, heads_ / std::max(1, pages->kv_heads()));
  const size_t floats = std::max(static_cast<size_t>(widest_norm_), queries * plan.stride);
  for (auto& s : scratch) {
    if (s.floats.size() < floats) s.floats.resize(floats);
    if (s.scores.size() < queries * kBlockKeys) s.scores.resize(queries * kBlockKeys);
    if (s.halves.size() < head) s.halves.resize(head);
    if (s.queries.size() < queries) s.queries.resize(queries), s.masks.resize(queries * kBlockPages);
  }
}

void Program::reserve(int rows, int wanted, int context, int threads) {
  hold(rows, wanted);
  plan.stride = kPartialHeader + pages->head();
  const size_t of_row = static_cast<size_t>(heads_) * plan.stride;
  size_t tiles = 0;  // most whose blocks are shared out
  while (tiles < static_cast<size_t>(rows) && few_tiles(tiles + 1, threads)) tiles++;
  const size_t shared = std::min<size_t>(rows, tiles * rows_per_tile());
  const size_t blocks = (static_cast<size_t>(context) + kBlockKeys - 1) / kBlockKeys;
  hold_partials(std::max(rows * of_row, std::min(shared * of_row * blocks, kMostByBlock / sizeof(float))));
  hold_scratch(threads);
}

size_t Program::work_bytes() const {
  const auto bytes = [](const auto& data) { return data.capacity() * sizeof(data[0]); };
  size_t sum = bytes(partials);
  for (const auto& b : buffers) sum += bytes(b.data);
  for (const auto& a : acts) sum += bytes(a.blocks) + bytes(a.values);
  for (const auto& r : ropes) sum += bytes(r.cosine) + bytes(r.sine);
  for (const auto& s : scratch) sum += bytes(s.floats) + bytes(s.scores);
  return sum;
}

bool Program::run(Pass& pass, const std::function<bool()>& interrupted) {
  wanted_rows_ = 0;
  if (uncancel()) return false;
  hold(pass.rows, pass.wanted.size());
  plan_attention(pass);
  hold_scratch(pass.threads);
  while (counters_.size() < ops_.size()) counters_.push_back(std::make_unique<std::atomic<int64_t>>(0));
  for (auto& c : counters_) c->store(0, std::memory_order_relaxed);
  Barrier barrier(pass.threads);
  std::atomic<size_t> last{ops_.size()};  // the op to stop behind
  using Clock = std::chrono::steady_clock;
  auto before = Clock::now();
  seconds_.assign(ops_.size(), 0.0);
  auto body = [&](int thread) {
    for (size_t i = 0; i < ops_.size(); i++) {
      ops_[i]->run(*this, pass, thread, *counters_[i]);
      if (thread == 0 && (cancelled_.load(std::memory_order_relaxed) || (interrupted && interrupted())))
        last.store(i, std::memory_order_relaxed);
      barrier.wait();
      if (thread == 0) {
        const auto now = Clock::now();
        seconds_[i] = std::chrono::duration<double>(now - before).count();
        before = now;
      }
      // All threads see what thread 0 wrote before the barrier. A late one may see what thread 0 has written
      // behind the next op already, and must meet the others there once more.
      if (last.load(std::memory_order_relaxed) <= i) return;
    }
  };
  run_on_threads(pass.threads, body);
  // The flag is taken here only: a cancel behind the last op still counts for this pass.
  if (uncancel() || last.load() < ops_.size()) return false;
  wanted_rows_ = static_cast<int>(pass.wanted.size());
  return true;
}

std::vector<std::string> Program::op_parts() const {
  std::vector<std::string> parts;
  for (const auto& op : ops_) parts.emplace_back(op->part());
  return parts;
}

const float* Program::logits(int wanted) const {
  return buffers[logits_buffer_].data.data() + static_cast<size_t>(wanted) * vocabulary();
}
const float* Program::row_or_null(int b, int r) const {
  if (b < 0 || b >= static_cast<int>(buffers.size()) || r < 0) return nullptr;
  const size_t begin = static_cast<size_t>(r) * buffers[b].width;
  return begin + buffers[b].width <= buffers[b].data.size() ? buffers[b].data.data() + begin : nullptr;
}

}  // namespace pilotfish
