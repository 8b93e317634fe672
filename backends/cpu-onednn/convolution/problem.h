// The operands of a convolution and of its gradients. A transposed convolution is the gradient of
// the input of a convolution, so `input` and `output` always name the operands of the convolution
// that is not transposed. oneDNN's primitives compute the output (forward), the gradient of the
// input (backward data) and the gradient of the weight (backward weights).
#pragma once

#include <algorithm>

#include "backends/cpu-onednn/engine/key.h"
#include "backends/cpu-onednn/engine/operand.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {

struct Problem {
  sdk::TensorView input, weight, output;
  int64_t groups;
  Windows windows;

  template <class Args>
  explicit Problem(const Args& args) : Problem(sdk::Convolution(args)) {}
  explicit Problem(const sdk::Convolution& call)
      : input(call.input), weight(call.weight), output(call.output), groups(call.geometry.groups) {
    const sdk::ConvolutionGeometry& g = call.geometry;
    for (int d = 3 - g.dims; d < 3; ++d) {
      windows.add(g.window(d), g.input[static_cast<size_t>(d)], g.output[static_cast<size_t>(d)]);
    }
  }

  // Returns the number of multiplications of each of the three computations.
  double work() const {
    return static_cast<double>(output.numel()) * static_cast<double>(weight.numel()) /
           static_cast<double>(weight.size(0));
  }

  // Returns the number of products in the sum of an element of the output, or of the input. It is 0
  // for an input with few channels, for which oneDNN's im2col is slower than cpu-openmp.
  int64_t terms_of_output() const { return weight.numel() / weight.size(0); }
  int64_t terms_of_input() const {
    if (weight.size(1) < 8) return 0;
    return weight.numel() / (weight.size(1) * groups);
  }

  // Returns whether windows are single adjacent elements: a matrix product of the operands.
  bool pointwise() const {
    const auto all = [](const Dims& values, int64_t value) {
      return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
    };
    return all(windows.kernel, 1) && all(windows.stride, 1) && all(windows.before, 0) &&
           all(windows.after, 0);
  }

  // Returns the reason why this convolution is not supported; NULL if it is.
  const char* reason() const {
    for (const sdk::TensorView& operand : {input, weight, output}) {
      if (const char* reason = product_type_reason(operand.dtype())) return reason;
      if (const char* reason = size_reason(operand)) return reason;
      if (!sdk::same_dtype(operand.dtype(), weight.dtype())) {
        return "[dtype] the operands' types differ";
      }
      if (!is_packed(operand)) return "an operand has gaps or overlaps in memory";
    }
    // oneDNN computes addresses from these in 32 bits, also for windows that do not exist.
    for (const Dims& values : {windows.stride, windows.dilation, windows.before, windows.after}) {
      if (exceeds(values, 65535)) return "a stride, dilation or padding exceeds 65535";
    }
    return nullptr;
  }

  // Returns the reason why the gradient of the input is not supported. With AMX, oneDNN 2.6 writes
  // out of bounds in bfloat16 if the stride is about 64 or more.
  const char* backward_data_reason() const {
    return exceeds(windows.stride, 32) && weight.dtype().bits == 16 ? "a stride exceeds 32"
                                                                    : nullptr;
  }

  // The key of the operands and the arguments.
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

 private:
  static bool exceeds(const Dims& values, int64_t most) {
    return std::any_of(values.begin(), values.end(), [&](int64_t v) { return v > most; });
  }
};

// The layouts of the three operands in memory, and the layouts to request from oneDNN. Blocked
// layouts make windows fast, but reorder row-major operands, which is bound by memory: a tenth of
// the time of 3 x 3 windows of 64 channels, and more than the gain if windows are single elements.
// The latter are products of the row-major operands in place. Channels-last operands also stay in
// place, because oneDNN has kernels for that layout. (Measured with AVX2, these take 0.86 to 1.23
// of the time of blocked layouts with reorders; the maximum is for 64 channels of 56 x 56.)
struct Layouts {
  Desc input, weight, output;  // in memory
  Desc wanted_input, wanted_weight, wanted_output;

  explicit Layouts(const Problem& p)
      : input(describe(p.input)), weight(describe_weight(p)), output(describe(p.output)) {
    const bool plain = p.input.is_contiguous() && p.output.is_contiguous() && p.pointwise();
    const bool last = is_channels_last(p.input) && is_channels_last(p.output);
    const mt_dtype dtype = p.weight.dtype();
    wanted_input = plain || last ? input : describe_any(dtype, shape_of(p.input));
    wanted_output = plain || last ? output : describe_any(dtype, shape_of(p.output));
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
