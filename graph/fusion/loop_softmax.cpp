// Loops of softmax along the last dimension, and of its gradient, by the operators that they are
// made of. 16-bit floats are computed in float32.
#include "graph/fusion/loop_builder.h"

namespace mytorch::graph {
namespace {

class SoftmaxLoop {
 public:
  SoftmaxLoop(LoopBuilder& b, mt_dtype dtype) : b_(b), compute_(wide(dtype)) {}

  int of_elements() { return b_.temporary(compute_, b_.elements()); }
  int of_rows() { return b_.temporary(compute_, b_.rows()); }
  // Returns the result of a call, or -1 after a failure.
  int call(const char* record, std::vector<int> inputs, int result) {
    return b_.call_record(record, compute_, std::move(inputs), result) ? result : -1;
  }

 private:
  static mt_dtype wide(mt_dtype dtype) {
    return dtype.bits < 32 ? mt_dtype{MT_FLOAT, 32, 1} : dtype;
  }

  LoopBuilder& b_;
  const mt_dtype compute_;
};

// Begins a loop whose rows are the last dimension, if the operator's argument names it.
bool begin_rows(const OpInfo& op, const void* args, LoopBuilder& b) {
  const mt_tensor* out = output_of(op, args);
  const int64_t dim = int_of(op, args, "dim");
  const int last = out->dl.ndim - 1;
  return last >= 0 && (dim == -1 || dim == last) && is_float_type(out->dl.dtype) && b.begin(out, 1);
}

bool body_of_softmax(const OpInfo& op, const void* args, bool logarithm, LoopBuilder& b) {
  const mt_tensor* self = tensor_of(op, args, "self");
  if (!is_float_type(self->dl.dtype) || !begin_rows(op, args, b)) return false;
  const mt_tensor* out = output_of(op, args);
  SoftmaxLoop softmax(b, out->dl.dtype);
  const int x = b.tensor(self, b.elements()), to = b.tensor(out, b.elements());
  if (x < 0 || to < 0) return false;
  const int most = softmax.call("amax", {x}, softmax.of_rows());
  const int less = softmax.call("sub.Tensor", {x, most}, softmax.of_elements());
  const int e = softmax.call("exp", {less}, softmax.of_elements());
  const int sum = softmax.call("sum.dim_IntList", {e}, softmax.of_rows());
  if (!logarithm) return softmax.call("div.Tensor", {e, sum}, to) >= 0;
  const int log = softmax.call("log", {sum}, softmax.of_rows());
  return softmax.call("sub.Tensor", {less, log}, to) >= 0;
}

// softmax: output * (grad - sum(grad * output)); its logarithm: grad - exp(output) * sum(grad).
bool body_of_backward(const OpInfo& op, const void* args, bool logarithm, LoopBuilder& b) {
  const mt_tensor* grad_output = tensor_of(op, args, "grad_output");
  const mt_tensor* output = tensor_of(op, args, "output");
  if (!is_float_type(grad_output->dl.dtype) || !is_float_type(output->dl.dtype) ||
      !begin_rows(op, args, b)) {
    return false;
  }
  const mt_tensor* out = output_of(op, args);
  SoftmaxLoop softmax(b, out->dl.dtype);
  const int grad = b.tensor(grad_output, b.elements()), y = b.tensor(output, b.elements());
  const int to = b.tensor(out, b.elements());
  if (grad < 0 || y < 0 || to < 0) return false;
  if (logarithm) {
    const int p = softmax.call("exp", {y}, softmax.of_elements());
    const int sum = softmax.call("sum.dim_IntList", {grad}, softmax.of_rows());
    const int all = softmax.call("mul.Tensor", {p, sum}, softmax.of_elements());
    return softmax.call("sub.Tensor", {grad, all}, to) >= 0;
  }
  const int product = softmax.call("mul.Tensor", {grad, y}, softmax.of_elements());
  const int sum = softmax.call("sum.dim_IntList", {product}, softmax.of_rows());
  const int less = softmax.call("sub.Tensor", {grad, sum}, softmax.of_elements());
  return softmax.call("mul.Tensor", {y, less}, to) >= 0;
}

}  // namespace

bool softmax_body(const OpInfo& op, const void* args, LoopBuilder& b) {
  if (is_named(op.name, "softmax.int")) return body_of_softmax(op, args, false, b);
  if (is_named(op.name, "log_softmax.int")) return body_of_softmax(op, args, true, b);
  if (is_named(op.name, "softmax_backward")) return body_of_backward(op, args, false, b);
  if (is_named(op.name, "log_softmax_backward")) return body_of_backward(op, args, true, b);
  return false;
}

}  // namespace mytorch::graph
