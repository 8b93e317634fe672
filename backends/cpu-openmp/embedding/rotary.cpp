// Rotary position embedding. Each row is read and written once; rows that are not contiguous, or of
// 16 bits, are rotated in a buffer that stays in the L1 cache.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/move.h"
#include "backends/cpu-openmp/common/stage.h"
#include "backends/cpu-openmp/embedding/rotate.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/rotary_embedding.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Rows of an operand as contiguous arrays of W: in place, or in a buffer.
template <class W>
class Rows {
 public:
  Rows(const TensorView& tensor, bool output)
      : operand_(output ? make_output(tensor.get(), sdk::dtype_of<W>, sdk::dtype_of<W>)
                        : make_input(tensor.get(), sdk::dtype_of<W>, sdk::dtype_of<W>)),
        step_(tensor.stride(-1) * tensor.itemsize()),
        direct_(tensor.is<W>() && (tensor.stride(-1) == 1 || tensor.size(-1) == 1)) {}

  // `at` is the offset of the row's first element.
  const W* read(int64_t at, int64_t n, W* buffer) const {
    const char* from = address(at);
    if (direct_) return reinterpret_cast<const W*>(from);
    for (int64_t i = 0; i < n; i += kTile) {
      load_run(operand_, from + i * step_, step_, std::min(kTile, n - i), buffer + i);
    }
    return buffer;
  }
  // Returns the array to write results to; finish() completes the write.
  W* write(int64_t at, W* buffer) const {
    return direct_ ? reinterpret_cast<W*>(address(at)) : buffer;
  }
  void finish(int64_t at, int64_t n, const W* buffer) const {
    if (direct_) return;
    for (int64_t i = 0; i < n; i += kTile) {
      store_run(operand_, buffer + i, address(at) + i * step_, step_, std::min(kTile, n - i));
    }
  }

 private:
  char* address(int64_t at) const { return operand_.data + at * operand_.itemsize; }

  StagedOperand operand_;
  int64_t step_;  // in bytes
  bool direct_;
};

// Returns a loop over the rows of the input. Its operands are the input, the output, and the row of
// the tables or, with positions, the element of `positions` that has it.
sdk::StridedLoop<3> rows_loop(const TensorView& self, const TensorView& out,
                              const TensorView& positions) {
  const size_t lead = static_cast<size_t>(self.ndim()) - 1;
  std::vector<int64_t> rows(lead, 0);
  if (!positions) {
    rows[lead - 1] = 1;
  } else {
    rows[lead - 1] = positions.stride(-1);
    if (positions.ndim() == 2) rows[0] = positions.stride(0);
  }
  return sdk::StridedLoop<3>(self.shape().first(lead),
                             {self.get()->dl.strides, out.get()->dl.strides, rows.data()});
}

template <class W>
void rotate(mt_ctx& ctx, const mt_args_rotary_embedding& args, const TensorView& positions) {
  const TensorView self = args.self, out = args.out, cos = args.cos, sin = args.sin;
  const int64_t width = self.size(-1), n = cos.size(1), table = cos.size(0);
  const Rows<W> from(self, false), to(out, true), cosines(cos, false), sines(sin, false);
  const auto loop = rows_loop(self, out, positions);
  const Rotations<W>& functions = rotations<W>();
  const auto function = args.interleaved != 0 ? functions.neighbors : functions.halves;
  const W sign = args.inverse != 0 ? W(-1) : W(1);
  const auto body = [&](W* memory, int64_t begin, int64_t end) {
    W* const buffer = memory + 2 * n;
    int64_t last = -1;  // the row of the tables that `c` and `s` hold
    const W *c = nullptr, *s = nullptr;
    loop.for_each_run(begin, end, [&](const std::array<int64_t, 3>& start, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t x = start[0] + i * loop.inner_stride(0);
        const int64_t y = start[1] + i * loop.inner_stride(1);
        int64_t row = start[2] + i * loop.inner_stride(2);
        if (positions) {
          row = positions.data<const int64_t>()[row];
          if (!in_range(row, table)) fail_index("rotary_embedding", row, 0, table);
        }
        if (row != last) {
          last = row;
          c = cosines.read(row * cos.stride(0), n, memory);
          s = sines.read(row * sin.stride(0), n, memory + n);
        }
        const W* line = from.read(x, width, buffer);
        W* result = to.write(y, buffer);
        function(line, c, s, n, sign, result);
        if (2 * n < width && result != line) {
          std::memcpy(result + 2 * n, line + 2 * n, static_cast<size_t>(width - 2 * n) * sizeof(W));
        }
        to.finish(y, width, buffer);
      }
    });
  };
  parallel_with_scratch<W>(ctx, loop.numel(), 1 + 8192 / width, 2 * n + width, body);
}

void rotary_embedding(mt_ctx& ctx, const mt_args_rotary_embedding& args) {
  const TensorView self = args.self;
  if (self.numel() == 0) return;
  std::optional<IndexOperand> positions;
  if (args.positions != nullptr) positions.emplace(ctx, args.positions);
  sdk::visit_floating(self.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    rotate<W>(ctx, args, positions ? positions->view() : TensorView());
  });
}

}  // namespace

void register_rotary(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&rotary_embedding>("rows", MT_TAKES_STRIDED | MT_TAKES_ALIAS));
}

}  // namespace mytorch::cpu
