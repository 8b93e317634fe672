// What a convolution is, whichever way it goes. A direct convolution maps `big` to `small`, a
// transposed one `small` to `big`, and so do the gradients with respect to the input; oneDNN's
// three primitives are forward (small of big), backward by data (big of small) and backward by
// weights.
#pragma once

#include <algorithm>

#include "backends/cpu-onednn/engine/key.h"
#include "backends/cpu-onednn/engine/operand.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {

struct Problem {
  sdk::TensorView big, weight, small;
  int64_t groups;
  Windows windows;

  template <class Args>
  Problem(const Args& args, const sdk::TensorView& big, const sdk::TensorView& weight,
          const sdk::TensorView& small)
      : big(big), weight(weight), small(small), groups(args.groups) {
    const auto list = [](const mt_int_list& values, int dim) {
      return values.data[values.size == 1 ? 0 : dim];
    };
    for (int d = 0; d < weight.ndim() - 2; ++d) {
      const int64_t kernel = weight.size(2 + d), stride = list(args.stride, d);
      const int64_t padding = list(args.padding, d), dilation = list(args.dilation, d);
      const int64_t reach = (small.size(2 + d) - 1) * stride + dilation * (kernel - 1) + 1;
      windows.kernel.push_back(kernel);
      windows.stride.push_back(stride);
      windows.dilation.push_back(dilation - 1);
      windows.before.push_back(padding);
      windows.after.push_back(reach - big.size(2 + d) - padding);
    }
  }

  // Multiplications, of any of the three computations.
  double work() const {
    return static_cast<double>(small.numel()) * static_cast<double>(weight.numel()) /
           static_cast<double>(weight.size(0));
  }

  // Products that are added up for an element of `small`; of `big` too, but with images of few
  // channels oneDNN multiplies columns, which takes longer than cpu-openmp: none, then.
  int64_t terms_of_small() const { return weight.numel() / weight.size(0); }
  int64_t terms_of_big() const {
    if (weight.size(1) < 8) return 0;
    return weight.numel() / (weight.size(1) * groups);
  }

  // Windows of one element, side by side: matrix products of the operands as they lie in memory.
  bool pointwise() const {
    const auto all = [](const Dims& values, int64_t value) {
      return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
    };
    return all(windows.kernel, 1) && all(windows.stride, 1) && all(windows.before, 0) &&
           all(windows.after, 0);
  }

  // Why this is not done; NULL for no reason.
  const char* reason() const {
    for (const sdk::TensorView& operand : {big, weight, small}) {
      if (const char* reason = product_type_reason(operand.dtype())) return reason;
      if (const char* reason = size_reason(operand)) return reason;
      if (!sdk::same_dtype(operand.dtype(), weight.dtype())) {
        return "[dtype] the operands' types differ";
      }
      if (!is_packed(operand)) return "an operand has gaps or overlaps in memory";
    }
    return nullptr;
  }

  // The operands, and whatever else matters, in a key.
  template <class Args>
  static Key key(uint64_t kind, const Args& args,
                 std::initializer_list<const mt_tensor*> operands) {
    Key key(kind, operands);
    key.numbers(args.stride);
    key.numbers(args.padding);
    key.numbers(args.dilation);
    key.number(args.transposed << 32 | args.groups);
    return key;
  }
};

// The layouts of the three operands in memory and the ones to ask oneDNN for. Blocks of channels
// make windows fast and cost a reorder of row-major images that come and go, which is bound by
// memory: a tenth of the time of 3 x 3 windows of 64 channels, but more than is gained where there
// is one element to a window. Those are products of row-major images as they are. Channels-last
// images stay as they are too: oneDNN has kernels for that layout. (With AVX2 they take from 0.86
// to 1.23 of the time of blocks with reorders, the most of 64 channels of 56 x 56, measured.)
struct Layouts {
  Desc big, weight, small;  // in memory
  Desc wanted_big, wanted_weight, wanted_small;

  explicit Layouts(const Problem& p)
      : big(describe(p.big)), weight(describe_weight(p)), small(describe(p.small)) {
    const bool plain = p.big.is_contiguous() && p.small.is_contiguous() && p.pointwise();
    const bool last = is_channels_last(p.big) && is_channels_last(p.small);
    const mt_dtype dtype = p.weight.dtype();
    wanted_big = plain || last ? big : describe_any(dtype, shape_of(p.big));
    wanted_small = plain || last ? small : describe_any(dtype, shape_of(p.small));
    wanted_weight = describe_any(dtype, weight_shape(p));
  }

 private:
  static Dims weight_shape(const Problem& p) {
    Dims shape = shape_of(p.weight);
    if (p.groups == 1) return shape;
    shape[0] /= p.groups;
    shape.insert(shape.begin(), p.groups);
    return shape;
  }
  static Desc describe_weight(const Problem& p) {
    if (p.groups == 1) return describe(p.weight);
    const Dims shape = weight_shape(p);
    if (p.weight.is_contiguous()) return describe_contiguous(p.weight.dtype(), shape);
    Dims strides(p.weight.strides().begin(), p.weight.strides().end());
    strides.insert(strides.begin(), shape[1] * strides[0]);
    return describe(p.weight.dtype(), shape, strides);
  }
};

}  // namespace mytorch::onednn
