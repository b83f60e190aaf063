// Weight matrices in the packed layout (formats.h), all in one arena.
#pragma once
#include <memory>

#include "formats.h"

namespace pilotfish {

// One huge-page-advised block of zeroed memory.
class Arena {
 public:
  explicit Arena(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  uint8_t* take(size_t bytes);  // 64-byte aligned; throws std::bad_alloc beyond the end

 private:
  uint8_t* start_;
  size_t bytes_, used_ = 0;
};

struct Weight {
  Weight(std::shared_ptr<Arena> arena, Type type, int64_t rows, int64_t columns);

  // Packs rows first .. first + count - 1, where first is a multiple of 16, and count too unless they are the
  // last; row i of the matrix is row map[i] of the file (or i without a map).
  void pack(const uint8_t* file, const int32_t* map, int64_t first, int64_t count, int threads);
  // Row `row` as floats.
  void gather(int64_t row, float* out) const;

  const uint8_t* group(int64_t g) const { return data + g * group_bytes; }
  int64_t groups() const { return (rows + kRows - 1) / kRows; }

  std::shared_ptr<Arena> arena;
  Type type;
  int64_t rows, columns;
  size_t group_bytes;
  uint8_t* data;
};

}  // namespace pilotfish
