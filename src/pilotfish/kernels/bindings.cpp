// The module pilotfish.kernels._kernels: arrays in, arrays out; shapes are checked here, ids and lengths by
// the callers in engines/native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>

#include "bandwidth.h"
#include "bind_sampling.h"
#include "dispatch.h"
#include "program.h"
#include "requantize.h"
#include "sampling.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace pilotfish;

namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

const Kernels* kernels_or_raise(const std::string& isa) {
  const Kernels* k = kernels_for(isa);
  if (k == nullptr) throw nb::value_error(("this machine or build has no " + isa + " kernels").c_str());
  return k;
}

Type type_or_raise(int number) {
  const auto type = static_cast<Type>(number);
  if (type_info(type).columns == 0) throw nb::value_error("no kernels for this tensor type");
  return type;
}

nb::ndarray<nb::numpy, float> new_array(std::vector<float> values, std::vector<size_t> shape) {
  auto* held = new std::vector<float>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return nb::ndarray<nb::numpy, float>(held->data(), shape.size(), shape.data(), owner);
}

void pack(Weight& w, const Array<uint8_t>& file, const std::optional<Array<int32_t>>& map, int threads,
          int64_t first, std::optional<int64_t> count) {
  const TypeInfo info = type_info(w.type);
  if (file.size() != static_cast<size_t>(w.rows * (w.columns / info.columns) * info.file_bytes))
    throw nb::value_error("the tensor's bytes don't fit its shape");
  if (map && map->size() != static_cast<size_t>(w.rows))
    throw nb::value_error("one source row for each row, please");
  if (map)
    for (size_t i = 0; i < map->size(); i++)
      if (map->data()[i] < 0 || map->data()[i] >= w.rows) throw nb::value_error("source row out of range");
  const int64_t left = w.rows - first, rows = count.value_or(left);
  if (first < 0 || first % kRows != 0 || rows < 1 || rows > left || (rows % kRows != 0 && rows != left))
    throw nb::value_error("a part of a matrix is whole groups of rows");
  if (threads < 1) throw nb::value_error("at least one thread");
  const nb::gil_scoped_release release;
  w.pack(file.data(), map ? map->data() : nullptr, first, rows, threads);
}

nb::ndarray<nb::numpy, float> gather(const Weight& w, int64_t row) {
  if (row < 0 || row >= w.rows) throw nb::index_error("row out of range");
  std::vector<float> out(w.columns);
  w.gather(row, out.data());
  return new_array(std::move(out), {static_cast<size_t>(w.columns)});
}

// y[t] = W x[t] through one instruction set's kernel, as a program would compute it.
nb::ndarray<nb::numpy, float> multiply(const Weight& w, const Matrix<float>& x, const std::string& isa,
                                       int tile, bool float_activations) {
  const Kernels& k = *kernels_or_raise(isa);
  const auto tokens = static_cast<int>(x.shape(0));
  if (x.shape(1) != static_cast<size_t>(w.columns))
    throw nb::value_error("x has another width than the matrix");
  if (tile < 1 || tile > k.max_tokens) throw nb::value_error("no tile of this size");
  Program::Activations act;
  act.width = static_cast<int>(w.columns);
  act.quantized = w.columns % kBlock == 0;
  act.floats = true;
  act.reserve(tokens, tile);
  for (int t = 0; t < tokens; t++) act.store(k, t, 0, x.data() + t * w.columns, static_cast<int>(w.columns));
  std::vector<float> y(static_cast<size_t>(tokens) * w.rows), out(16 * static_cast<size_t>(k.max_tokens));
  for (int64_t g = 0; g < w.groups(); g++)
    for (int first = 0; first < tokens; first += tile) {
      const int n = std::min(tile, tokens - first);
      size_t stride;
      const uint8_t* a = act.row(w.type, first, float_activations, &stride);
      const auto columns = static_cast<int>(w.columns);
      if (float_activations && !is_float(w.type))
        for (int t = 0; t < n; t++)
          k.tile_float(w.type, w.group(g), columns, reinterpret_cast<const float*>(a + t * stride),
                       &out[16 * t]);
      else
        k.tile[static_cast<int>(w.type)][n](w.group(g), columns, a, stride, out.data());
      for (int t = 0; t < n; t++)
        for (int r = 0; r < kRows && g * kRows + r < w.rows; r++)
          y[static_cast<size_t>(first + t) * w.rows + g * kRows + r] = out[16 * t + r];
    }
  return new_array(std::move(y), {static_cast<size_t>(tokens), static_cast<size_t>(w.rows)});
}

// Codes (n,) as float and scales (n / 32,) of quantized activations.
std::pair<nb::ndarray<nb::numpy, float>, nb::ndarray<nb::numpy, float>> quantize(const Array<float>& x,
                                                                                 const std::string& isa) {
  if (x.size() % kBlock != 0) throw nb::value_error("the length is no multiple of 32");
  std::vector<ActBlock> blocks(x.size() / kBlock);
  kernels_or_raise(isa)->quantize(x.data(), static_cast<int>(x.size()), blocks.data(), 1);
  std::vector<float> codes, scales;
  for (const auto& b : blocks) {
    codes.insert(codes.end(), b.q, b.q + kBlock);
    scales.push_back(b.d);
  }
  return {new_array(std::move(codes), {x.size()}), new_array(std::move(scales), {blocks.size()})};
}

nb::ndarray<nb::numpy, float> rms_norm(const Array<float>& x, const Array<float>& w, float eps,
                                       const std::string& isa) {
  if (x.size() != w.size() || x.size() % 16 != 0)
    throw nb::value_error("lengths differ or are no multiple of 16");
  std::vector<float> y(x.size());
  kernels_or_raise(isa)->rms_norm(x.data(), w.data(), eps, static_cast<int>(x.size()), y.data());
  return new_array(std::move(y), {x.size()});
}

nb::ndarray<nb::numpy, float> gate(decltype(Kernels::silu_mul) Kernels::* act, const Array<float>& gate,
                                   const Array<float>& up, const std::string& isa) {
  if (gate.size() != up.size() || gate.size() % 16 != 0)
    throw nb::value_error("lengths differ or are no multiple of 16");
  std::vector<float> y(gate.size());
  (kernels_or_raise(isa)->*act)(gate.data(), up.data(), y.data(), static_cast<int>(gate.size()));
  return new_array(std::move(y), {gate.size()});
}
auto silu_mul(const Array<float>& g, const Array<float>& up, const std::string& isa) {
  return gate(&Kernels::silu_mul, g, up, isa);
}
auto gelu_mul(const Array<float>& g, const Array<float>& up, const std::string& isa) {
  return gate(&Kernels::gelu_mul, g, up, isa);
}

void round_from(Weight& w, const Weight& source, int64_t first, int threads) {
  if (w.type != Type::Q4_0) throw nb::value_error("rows are rounded to Q4_0 only");
  if (source.columns != w.columns || w.columns % kBlock != 0)
    throw nb::value_error("the source has rows of another length");
  if (first < 0 || first % kRows != 0 || first > w.rows - source.rows ||
      (source.rows % kRows != 0 && first + source.rows != w.rows))
    throw nb::value_error("a part of a matrix is whole groups of rows");
  if (threads < 1) throw nb::value_error("at least one thread");
  const nb::gil_scoped_release release;
  requantize(*kernels_for(available_isas().front()), source, w, first, threads);
}

// Asked between the ops of a pass: whether a handler of a signal has raised, such as that of Ctrl-C. Python
// runs handlers on its main thread, and only when asked; a pass over a long context may take seconds. Asking
// takes the GIL, so it is done seldom, and never in a short pass.
class Signals {
 public:
  bool raised() {
    const auto now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(200)) return false;
    last_ = now;
    const nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;  // the exception waits in this thread's state
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

// What a pass works on, by segment (consecutive tokens of one sequence); page tables one after another.
bool run(Program& p, const Array<int32_t>& tokens, const Array<int32_t>& positions,
         const Array<int32_t>& lengths, const Array<int32_t>& bases, const Array<int32_t>& tables,
         const Array<int32_t>& wanted, const std::optional<Array<uint64_t>>& ancestors, int threads) {
  Pass pass;
  pass.rows = static_cast<int>(tokens.size());
  pass.tokens = tokens.data();
  pass.positions = positions.data();
  pass.ancestors = ancestors ? ancestors->data() : nullptr;
  pass.threads = threads;
  if (positions.size() != tokens.size() || lengths.size() != bases.size() || threads < 1 ||
      (ancestors && ancestors->size() != tokens.size()))
    throw nb::value_error("arrays of a pass differ in length");
  const int32_t* table = tables.data();
  int row = 0;
  for (size_t s = 0; s < lengths.size(); s++) {
    const int base = bases.data()[s], n = lengths.data()[s];
    if (n < 1 || base < 0 || (ancestors && n > 64)) throw nb::value_error("bad segment");
    const int pages = (base + n + kPage - 1) / kPage;
    if (table + pages > tables.data() + tables.size()) throw nb::value_error("a page table is too short");
    for (int i = 0; i < pages; i++)
      if (table[i] < 0 || table[i] >= p.pages->count()) throw nb::value_error("no such page");
    pass.segments.push_back({row, n, table, base});
    pass.segment_of.insert(pass.segment_of.end(), n, static_cast<int>(s));
    table += pages;
    row += n;
  }
  if (row != pass.rows || pass.rows < 1) throw nb::value_error("segments don't add up to the tokens");
  pass.wanted.assign(wanted.data(), wanted.data() + wanted.size());
  for (size_t i = 0; i < pass.wanted.size(); i++)
    if (pass.wanted[i] < (i == 0 ? 0 : pass.wanted[i - 1] + 1) || pass.wanted[i] >= pass.rows)
      throw nb::value_error("no such row, or rows that don't ascend");
  bool finished;
  {
    const nb::gil_scoped_release release;
    Signals signals;
    finished = p.run(pass, [&signals] { return signals.raised(); });
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return finished;
}

void set_head_groups(Program& p, const Array<int32_t>& groups) {
  const int64_t count = p.head_groups();
  if (count == 0) throw nb::value_error("the program has no restricted head");
  if (groups.size() == 0) throw nb::value_error("at least one group, please");
  for (size_t i = 0; i < groups.size(); i++)
    if (groups.data()[i] < (i == 0 ? 0 : groups.data()[i - 1] + 1) || groups.data()[i] >= count)
      throw nb::value_error("no such group, or groups that don't ascend");
  p.set_head_groups({groups.data(), groups.data() + groups.size()});
}

const float* logits_row(const Program& p, int wanted) {
  if (wanted < 0 || wanted >= p.wanted_rows()) throw nb::index_error("no such row in the last pass");
  return p.logits(wanted);
}

std::vector<float> to_vector(const Array<float>& a) { return {a.data(), a.data() + a.size()}; }

}  // namespace

NB_MODULE(_kernels, m) {
  bind_sampling(m);
  m.def("isas", available_isas, "Instruction sets this machine and build have, best first.");
  m.def(
      "read_bandwidth",
      [](size_t bytes, int threads, int repeats) {
        if (threads < 1 || repeats < 1) throw nb::value_error("at least one thread and one read");
        const nb::gil_scoped_release release;
        return read_bandwidth(bytes, threads, repeats);
      },
      "bytes"_a, "threads"_a, "repeats"_a, "Bytes a second of the best of so many reads of memory.");
  m.def("multiply", multiply, "weight"_a, "x"_a.noconvert(), "isa"_a, "tile"_a, "float_activations"_a = false,
        "x (tokens, columns) times the packed matrix, in tiles of so many tokens: (tokens, rows).");
  m.def("quantize", quantize, "x"_a.noconvert(), "isa"_a, "Activation codes and scales of x.");
  m.def("rms_norm", rms_norm, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "isa"_a,
        "RMS norm of one row.");
  m.def("silu_mul", silu_mul, "gate"_a.noconvert(), "up"_a.noconvert(), "isa"_a, "silu(gate) * up.");
  m.def("gelu_mul", gelu_mul, "gate"_a.noconvert(), "up"_a.noconvert(), "isa"_a,
        "gelu(gate) * up, gelu by tanh.");
  m.def(
      "packed_bytes",
      [](int type, int64_t rows, int64_t columns) {
        return (packed_bytes(type_or_raise(type), rows, columns) + 63) / 64 * 64;
      },
      "type"_a, "rows"_a, "columns"_a, "Bytes that a packed matrix takes in an arena.");

  nb::class_<Arena>(m, "Arena", "One block of memory for packed weights.").def(nb::init<size_t>(), "bytes"_a);

  nb::class_<Weight>(m, "Weight", "A matrix in the packed layout.")
      .def(
          "__init__",
          [](Weight* self, std::shared_ptr<Arena> arena, int type, int64_t rows, int64_t columns) {
            const Type t = type_or_raise(type);
            if (rows < 1 || columns < 1 || columns % type_info(t).columns != 0 || columns > (1 << 24))
              throw nb::value_error("the row length is no multiple of the type's block");
            new (self) Weight(std::move(arena), t, rows, columns);
          },
          "arena"_a, "type"_a, "rows"_a, "columns"_a)
      .def("pack", pack, "file"_a.noconvert(), "row_map"_a.noconvert().none(), "threads"_a, "first"_a = 0,
           "count"_a = nb::none(),
           "Pack rows of the file's bytes, whole groups of 16; row i comes from row row_map[i].")
      .def("round_from", round_from, "source"_a, "first"_a, "threads"_a,
           "Fill rows from `first` on, whole groups of 16, with those of a source of any type, rounded to "
           "Q4_0.")
      .def("gather", gather, "row"_a, "One row as floats.")
      .def_prop_ro("rows", [](const Weight& w) { return w.rows; })
      .def_prop_ro("columns", [](const Weight& w) { return w.columns; });

  nb::class_<Pages>(m, "Pages", "KV pages of 64 positions.")
      .def(nb::init<int, int, int>(), "layers"_a, "kv_heads"_a, "head"_a)
      .def("allocate", &Pages::allocate, "A new page's number.")
      .def(
          "reserve",
          [](Pages& p, int count) {
            const nb::gil_scoped_release release;
            p.reserve(count);
          },
          "count"_a, "Take the memory of so many pages in all, those that are there included.")
      .def_prop_ro("reserved", &Pages::reserved, "Pages whose memory is taken.")
      .def_prop_ro("full", &Pages::full, "Whether the next page takes a new slab of memory.")
      .def_prop_ro(
          "slab_pages", [](const Pages&) { return Pages::kSlab; }, "Pages that a slab holds.")
      .def("copy", &Pages::copy, "source"_a, "target"_a)
      .def_prop_ro("page_bytes", &Pages::page_bytes)
      .def_prop_ro("count", &Pages::count);

  nb::class_<Program>(m, "Program", "The ops of a model; see program.h.")
      .def(
          "__init__",
          [](Program* self, const std::string& isa, std::shared_ptr<Pages> pages, bool floats) {
            new (self) Program(kernels_or_raise(isa), std::move(pages), floats);
          },
          "isa"_a, "pages"_a, "float_activations"_a)
      .def("buffer", &Program::buffer, "width"_a)
      .def("activations", &Program::activations, "width"_a)
      .def("embed", &Program::embed, "table"_a, "scale"_a, "out"_a)
      .def(
          "rope_table",
          [](Program& p, double base, int dimensions, const Array<float>& factors, double magnitude) {
            return p.rope_table(base, dimensions, to_vector(factors), magnitude);
          },
          "base"_a, "dimensions"_a, "factors"_a, "magnitude"_a)
      .def(
          "norm",
          [](Program& p, int in, const Array<float>& w, float eps, int out, bool wanted) {
            p.norm(in, to_vector(w), eps, out, wanted);
          },
          "source"_a, "weight"_a, "eps"_a, "out"_a, "wanted_only"_a)
      .def(
          "add_norm",
          [](Program& p, int in, const Array<float>& w, float eps, int out) {
            p.add_norm(in, to_vector(w), eps, out);
          },
          "source"_a, "weight"_a, "eps"_a, "out"_a)
      .def(
          "linear",
          [](Program& p, int in,
             const std::vector<std::tuple<std::shared_ptr<Weight>, std::optional<Array<float>>, int>>& parts,
             int out, bool add, bool wanted, std::string name) {
            std::vector<Program::Part> list;
            for (const auto& [weight, bias, offset] : parts)
              list.push_back({weight, bias ? to_vector(*bias) : std::vector<float>{}, offset});
            p.linear(in, std::move(list), out, add, wanted, std::move(name));
          },
          "source"_a, "parts"_a, "out"_a, "add"_a, "wanted_only"_a, "name"_a)
      .def(
          "rope_and_cache",
          [](Program& p, int qkv, int heads, int layer, int table, float query_scale,
             const std::optional<std::tuple<Array<float>, Array<float>, float>>& norms) {
            Program::HeadNorms of_heads;
            if (norms)
              of_heads = {to_vector(std::get<0>(*norms)), to_vector(std::get<1>(*norms)),
                          std::get<2>(*norms)};
            p.rope_and_cache(qkv, heads, layer, table, query_scale, std::move(of_heads));
          },
          "qkv"_a, "heads"_a, "layer"_a, "table"_a, "query_scale"_a, "norms"_a.none(),
          "`norms`: weights of the queries' and the keys' norm, and epsilon.")
      .def("attention", &Program::attention, "qkv"_a, "heads"_a, "layer"_a, "window"_a, "out"_a)
      .def("gated", &Program::gated, "source"_a, "gate"_a, "up"_a, "gelu"_a, "out"_a)
      .def("set_logits", &Program::set_logits, "out"_a)
      .def("restricted_head", &Program::restricted_head, "source"_a, "weight"_a, "out"_a,
           "Logits of the wanted rows, by a matrix of which a pass reads some groups of 16 rows only: all, "
           "at first.")
      .def("set_head_groups", set_head_groups, "groups"_a.noconvert(),
           "Which groups of ids, ascending, the restricted head computes from now on; logits of others are "
           "-inf.")
      .def("run", run, "tokens"_a.noconvert(), "positions"_a.noconvert(), "lengths"_a.noconvert(),
           "bases"_a.noconvert(), "tables"_a.noconvert(), "wanted"_a.noconvert(),
           "ancestors"_a.noconvert().none(), "threads"_a, "Run a pass; False if it was cancelled.")
      .def(
          "reserve",
          [](Program& p, int rows, int wanted, int context, int threads) {
            if (rows < 1 || wanted < 0 || context < 1 || threads < 1) throw nb::value_error("no such pass");
            p.reserve(rows, wanted, context, threads);
          },
          "rows"_a, "wanted"_a, "context"_a, "threads"_a, "Take the memory that passes of that size need.")
      .def_prop_ro("work_bytes", &Program::work_bytes, "Memory of what passes work on.")
      .def("seconds", &Program::seconds, "Seconds of the last pass by op.")
      .def("op_parts", &Program::op_parts, "By op, what its time is counted as.")
      .def("cancel", &Program::cancel, "End the pass that runs or, if none does, the next one.")
      .def("uncancel", &Program::uncancel, "Take back what no pass has ended for; whether there was any.")
      .def(
          "argmax",
          [](const Program& p, int i) { return argmax(logits_row(p, i), p.vocabulary(), p.restricted()); },
          "row"_a)
      .def(
          "margin",
          [](const Program& p, int i) { return margin(logits_row(p, i), p.vocabulary(), p.restricted()); },
          "row"_a)
      .def(
          "choose",
          [](const Program& p, int i, double temperature, int32_t top_k, double top_p, double min_p,
             uint64_t seed, uint32_t choice, uint64_t position, const AdjustmentArrays* adjustment) {
            const float* row = logits_row(p, i);
            const nb::gil_scoped_release release;
            return choose_adjusted(row, p.vocabulary(), adjustment, temperature, top_k, top_p, min_p, seed,
                                   choice, position, p.restricted());
          },
          "row"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a, "choice"_a, "position"_a,
          nb::arg("adjustment").none() = nb::none())
      .def(
          "logprobs",
          [](const Program& p, int i, int32_t token, int32_t count) {
            return logprobs_of(logits_row(p, i), p.vocabulary(), token, count, p.restricted());
          },
          "row"_a, "token"_a, "count"_a)
      .def(
          "probability",
          [](const Program& p, int i, int32_t token) {
            const float* row = logits_row(p, i);
            if (token < 0 || token >= p.vocabulary())
              throw nb::index_error("the token is not in the vocabulary");
            return probability(row, p.vocabulary(), token, p.restricted());
          },
          "row"_a, "token"_a)
      .def(
          "digest",
          [](const Program& p, int i) { return digest(logits_row(p, i), p.vocabulary(), p.restricted()); },
          "row"_a)
      .def(
          "logits",
          [](const Program& p, int i) {
            const float* row = logits_row(p, i);
            return new_array({row, row + p.vocabulary()}, {static_cast<size_t>(p.vocabulary())});
          },
          "row"_a)
      .def(
          "read",
          [](const Program& p, int buffer, int row) {
            const float* x = p.row_or_null(buffer, row);
            if (x == nullptr) throw nb::index_error("no such buffer or row");
            return new_array({x, x + p.width(buffer)}, {static_cast<size_t>(p.width(buffer))});
          },
          "buffer"_a, "row"_a, "A row of a buffer after the last pass, for tests and learned drafters.");
}
