// A program is the list of ops that a model family builds once; a pass runs it in one call.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "weights.h"

namespace pilotfish {

// Pages of 64 positions, all layers in one. Layer l holds, for each KV head, keys [head][64], then for each
// KV head values [64][head], as IEEE halves.
class Pages {
 public:
  static constexpr int kSlab = 32;
  Pages(int layers, int kv_heads, int head) : layers_(layers), kv_heads_(kv_heads), head_(head) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  int allocate();           // a new page's number
  void reserve(int count);  // takes the memory of so many pages in all, and uses it, so that it is there
  bool full() const { return count_ == reserved() && reserved() % kSlab == 0; }  // the next takes a new slab
  void copy(int from, int to);
  size_t page_bytes() const { return static_cast<size_t>(layers_) * 2 * kv_heads_ * head_ * kPage * 2; }
  uint16_t* keys(int page, int layer, int kv_head) const { return at(page, layer, kv_head); }
  uint16_t* values(int page, int layer, int kv_head) const { return at(page, layer, kv_heads_ + kv_head); }
  int layers() const { return layers_; }
  int kv_heads() const { return kv_heads_; }
  int head() const { return head_; }
  int count() const { return count_; }
  int reserved() const { return static_cast<int>(pages_.size()); }  // with those not allocated yet

 private:
  void take();
  uint16_t* at(int page, int layer, int part) const {
    return pages_[page] + (static_cast<size_t>(layer) * 2 * kv_heads_ + part) * head_ * kPage;
  }
  int layers_, kv_heads_, head_, count_ = 0;
  std::vector<uint16_t*> pages_;
  std::vector<std::unique_ptr<Arena>> slabs_;  // memory of kSlab pages each, used from its start
};

// Consecutive rows of one sequence.
struct Segment {
  int first_row, rows;
  const int32_t* table;  // the sequence's pages
  int base;              // slots that were there before the pass
};

// What one pass works on. Row i of a segment goes to slot base + i of its sequence. It sees all slots before
// `base`, and those rows of its own segment whose bit is set in `ancestors` (bit i: the segment's row i;
// itself included).
struct Pass {
  int rows = 0;
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  const uint64_t* ancestors = nullptr;  // by row; null: every earlier row, as in plain text
  std::vector<Segment> segments;
  std::vector<int> segment_of;  // by row
  std::vector<int32_t> wanted;  // rows that logits are wanted for, ascending
  int threads = 1;
};

constexpr int kQueriesPerTile = 64;
constexpr size_t kMostByBlock = size_t{32} << 20;  // bytes of attention's results by block

// How a pass's attention is cut into work: tiles of queries that share each read of the cache.
struct AttentionPlan {
  struct Tile {
    int segment, first_row, rows;
  };
  std::vector<Tile> tiles;
  int blocks = 0;         // most blocks of keys that any segment sees
  bool by_block = false;  // blocks of a tile are shared among threads, their results kept apart until merged
  int stride = 0;         // floats of a partial result
  int kept() const { return by_block ? blocks : 1; }
};

class Program {
 public:
  Program(const Kernels* kernels, std::shared_ptr<Pages> pages, bool float_activations);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Building. Buffers hold a row of `width` floats for each row of a pass; activations hold what matrices
  // read: quantized rows, or floats where a reader's weights (or the debug path) want them.
  int buffer(int width);
  int activations(int width);
  void embed(std::shared_ptr<Weight> table, float scale, int out);
  // Angles are divided by a pair's factor, of which there are dimensions / 2.
  int rope_table(double base, int dimensions, const std::vector<float>& factors, double magnitude);
  void norm(int in, std::vector<float> weight, float eps, int out, bool wanted_only);
  void add_norm(int in, std::vector<float> weight, float eps, int out);  // out += norm(in)
  struct Part {
    std::shared_ptr<Weight> weight;
    std::vector<float> bias;
    int offset;
  };
  // `name` is what its time is counted as.
  void linear(int in, std::vector<Part> parts, int out, bool add, bool wanted_only, std::string name);
  // Norms of each head's query and key, before they are rotated; without weights there are none.
  struct HeadNorms {
    std::vector<float> query, key;
    float eps = 0.0f;
  };
  // `qkv` holds heads * head queries, then keys, then values; rotates, and writes keys and values to the
  // cache.
  void rope_and_cache(int qkv, int heads, int layer, int table, float query_scale, HeadNorms norms);
  // A row sees its own position and the window - 1 before it; all, if `window` is 0.
  void attention(int qkv, int heads, int layer, int window, int out);
  // act(gate) * up, where act is silu or gelu by tanh. One matrix may be both: gate's rows, then up's.
  void gated(int in, std::shared_ptr<Weight> gate, std::shared_ptr<Weight> up, bool gelu, int out);
  void set_logits(int out) { logits_buffer_ = out; }
  // In place of a linear op: logits by a matrix of which only some groups of 16 rows are computed.
  void restricted_head(int in, std::shared_ptr<Weight> weight, int out);
  // The groups computed from the next pass on, ascending; logits of all other ids are -inf at once, also in
  // rows of the last pass.
  void set_head_groups(std::vector<int32_t> groups);
  // Takes memory for passes over `rows` rows, `wanted` of them with logits, in sequences of up to `context`
  // tokens: passes within these take no more.
  void reserve(int rows, int wanted, int context, int threads);
  size_t work_bytes() const;                       // of all that passes work on
  int64_t head_groups() const;                     // of the whole head; 0 if it is not a restricted one
  bool restricted() const { return restricted_; }  // some ids can't be said

  // Runs the program; false if it was cancelled, or if `interrupted`, which thread 0 asks after each op, said
  // yes. Otherwise logits of wanted rows are then in logits(i).
  bool run(Pass& pass, const std::function<bool()>& interrupted = nullptr);
  // Seconds of the last pass by op, in order; thread 0 from barrier to barrier.
  const std::vector<double>& seconds() const { return seconds_; }
  std::vector<std::string> op_parts() const;
  // From any thread: ends the pass that runs or, if none does, the next one. Exactly one pass ends for it, so
  // none is lost that comes just before a pass.
  void cancel() { cancelled_.store(true); }
  bool uncancel() { return cancelled_.exchange(false); }  // takes back what no pass has ended for; true if so
  const float* logits(int wanted) const;
  int wanted_rows() const { return wanted_rows_; }  // of the last pass; 0 after a cancelled one
  int vocabulary() const { return width(logits_buffer_); }
  const float* row_or_null(int buffer, int row) const;
  int width(int buffer) const { return buffers[buffer].width; }

  struct Op {
    virtual ~Op() = default;
    virtual const char* part() const = 0;  // what its time is counted as
    // On every thread of the pass; allocates nothing and throws nothing.
    virtual void run(Program& p, const Pass& pass, int thread, std::atomic<int64_t>& next) = 0;
  };
  struct Buffer {
    int width;
    std::vector<float> data;
    float* row(int r) { return data.data() + static_cast<size_t>(r) * width; }
  };
  struct Activations {
    int width;
    bool quantized = false, floats = false;
    int tile = 1;  // rows whose blocks lie side by side
    std::vector<ActBlock> blocks;
    std::vector<float> values;
    // Makes room for `rows` rows, in tiles of at most `most`.
    void reserve(size_t rows, int most);
    // The tile that starts with row r, in the form that a kernel for weights of `type` reads.
    const uint8_t* row(Type type, int r, bool as_float, size_t* stride) const;
    void store(const Kernels& k, int r, int offset, const float* x, int n);  // n floats at column `offset`
  };
  struct Rope {
    struct RopeTable* table;
    int half;
    std::vector<float> cosine, sine;
  };

  // One thread's room for what an op computes on the way. It is taken before the pass: a worker has nobody to
  // throw to.
  struct Scratch {
    std::vector<float> floats, scores;
    std::vector<uint16_t> halves;
    std::vector<const float*> queries;
    std::vector<uint64_t> masks;
  };

  const Kernels& kernels;
  const bool float_activations;
  std::shared_ptr<Pages> pages;
  std::vector<Buffer> buffers;
  std::vector<Activations> acts;
  std::vector<Rope> ropes;
  AttentionPlan plan;
  std::vector<float> partials;   // attention results [row][head][block or 1][stride]
  std::vector<Scratch> scratch;  // by thread

 private:
  void hold(size_t rows, size_t wanted);
  void plan_attention(const Pass& pass);
  void hold_partials(size_t floats);
  void hold_scratch(int threads);
  int rows_per_tile() const;
  // Whether blocks of tiles may be shared out, as far as that depends on how many there are.
  bool few_tiles(size_t tiles, int threads) const;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<double> seconds_;
  std::vector<std::unique_ptr<std::atomic<int64_t>>> counters_;
  std::atomic<bool> cancelled_{false};
  int logits_buffer_ = -1;
  struct RestrictedHeadOp* head_ = nullptr;  // one of ops_
  bool restricted_ = false;
  int heads_ = 0;
  int widest_norm_ = 0;
  int wanted_rows_ = 0;
};

}  // namespace pilotfish
