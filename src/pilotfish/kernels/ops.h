// The ops of a program. Threads take work units from `next` until none are left; which thread takes one never
// matters.
#pragma once
#include "program.h"

namespace pilotfish {

struct RopeOp : Program::Op {  // angles of the pass's positions
  explicit RopeOp(int table) : table(table) {}
  const char* part() const override { return "rope"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int table;
};

struct EmbedOp : Program::Op {
  EmbedOp(std::shared_ptr<Weight> t, float scale, int out) : table(std::move(t)), scale(scale), out(out) {}
  const char* part() const override { return "embed"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  std::shared_ptr<Weight> table;
  float scale;
  int out;
};

struct NormOp : Program::Op {
  NormOp(int in, std::vector<float> w, float eps, int out, bool wanted)
      : in(in), out(out), weight(std::move(w)), eps(eps), wanted(wanted) {}
  const char* part() const override { return "norm"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int in, out;
  std::vector<float> weight;
  float eps;
  bool wanted;
};

struct AddNormOp : Program::Op {  // adds a norm of one buffer to another
  AddNormOp(int in, std::vector<float> w, float eps, int out)
      : in(in), out(out), weight(std::move(w)), eps(eps) {}
  const char* part() const override { return "norm"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int in, out;
  std::vector<float> weight;
  float eps;
};

struct LinearOp : Program::Op {
  LinearOp(int in, std::vector<Program::Part> parts, int out, bool add, bool wanted, std::string name)
      : in(in), out(out), parts(std::move(parts)), add(add), wanted(wanted), name(std::move(name)) {}
  const char* part() const override { return name.c_str(); }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int in, out;
  std::vector<Program::Part> parts;
  bool add, wanted;
  std::string name;
};

// A head of which some groups of 16 rows are computed: those of the ids that can be said.
struct RestrictedHeadOp : Program::Op {
  RestrictedHeadOp(int in, std::shared_ptr<Weight> w, int out);
  const char* part() const override { return "head"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int in, out;
  std::shared_ptr<Weight> weight;
  std::vector<int32_t> groups;  // ascending; at first all
};

struct CacheOp : Program::Op {
  CacheOp(int qkv, int heads, int layer, int table, float scale, Program::HeadNorms norms)
      : qkv(qkv), heads(heads), layer(layer), table(table), scale(scale), norms(std::move(norms)) {}
  const char* part() const override { return "rope"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int qkv, heads, layer, table;
  float scale;
  Program::HeadNorms norms;
};

// Blocks of attention for tiles of queries, as planned: results by block for MergeOp, or merged at once. Both
// ways blocks are merged in ascending order, so the bits are the same.
struct AttendOp : Program::Op {
  AttendOp(int qkv, int heads, int layer, int window)
      : qkv(qkv), heads(heads), layer(layer), window(window) {}
  const char* part() const override { return "attention"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int qkv, heads, layer, window;
};

struct MergeOp : Program::Op {
  MergeOp(int heads, int out) : heads(heads), out(out) {}
  const char* part() const override { return "attention"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int heads, out;
};

struct GatedOp : Program::Op {
  GatedOp(int in, std::shared_ptr<Weight> gate, std::shared_ptr<Weight> up, bool gelu, int out)
      : in(in), out(out), gate(std::move(gate)), up(std::move(up)), gelu(gelu) {}
  const char* part() const override { return "mlp"; }
  void run(Program&, const Pass&, int, std::atomic<int64_t>&) override;
  int in, out;
  std::shared_ptr<Weight> gate, up;
  bool gelu;
};

}  // namespace pilotfish
