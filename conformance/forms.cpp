// Checks of the out= and in-place forms, and of shapes and strides.
#include <algorithm>
#include <optional>

#include "conformance/check.h"
#include "conformance/compare.h"
#include "conformance/elements.h"
#include "conformance/guarded.h"
#include "mytorch/error.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::conformance {
namespace {

// Whether the last bits of an element may depend on its neighbours: sums may be ordered
// differently, and vector code may evaluate a function differently than scalar code.
bool may_round_apart(const OpRecord& op) {
  if (op.meaning == "view") return false;
  if (op.meaning != "pointwise") return true;
  return op.approximate;
}

}  // namespace

void check_out_form(const Case& c, const Arguments& arguments, const std::vector<Value>& expected,
                    const Fail& fail) {
  if (!c.op->out || c.op->unspecified()) return;
  for (const bool strided : {false, true}) {
    const std::string check = strided ? "out= (strided)" : "out=";
    std::vector<Guarded> outs;
    for (const Value& value : expected) {
      if (!value.tensor().defined()) return;
      outs.emplace_back(value.tensor(), strided);
    }
    const Arguments own = copy_of(arguments);
    std::vector<Tensor> tensors;
    for (const Guarded& out : outs) tensors.push_back(out.tensor);
    try {
      const std::vector<Value> returned = call_named(c.op->name, own, tensors);
      for (size_t i = 0; i < returned.size(); ++i) {
        if (!returned[i].tensor().is_same(tensors[i]))
          fail(check, "the call did not return its output");
      }
    } catch (const Error& error) {
      fail(check, std::string("failed: ") + error.what());
      return;
    }
    const Tolerance tolerance{!may_round_apart(*c.op), 1};
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!(tensors[i].sizes() == expected[i].tensor().sizes())) {
        fail(check, "the call resized an output of the correct shape to " + shape_text(tensors[i]));
        continue;
      }
      const std::string what =
          difference(*c.op, arguments, tensors[i], expected[i], tolerance, true);
      if (!what.empty()) fail(check, "result " + std::to_string(i) + " " + what);
      if (!outs[i].intact()) fail(check, "the call wrote outside of its output");
    }
  }
}

void check_inplace_form(const Case& c, const Arguments& arguments,
                        const std::vector<Value>& expected, const Fail& fail) {
  if (!c.op->inplace) return;
  const Arguments own = copy_of(arguments);
  const Tensor self = own.values.front().second.tensor();
  const Tensor& result = expected.front().tensor();
  const bool becomes_real = self.is_complex() && is_floating_point(result.dtype());
  const bool fits = self.sizes() == result.sizes() && can_cast(result.dtype(), self.dtype()) &&
                    !becomes_real && !has_internal_overlap(*self.impl());
  const std::string before = storage_bytes(self);
  std::vector<Value> returned;
  try {
    returned = call_named(c.op->inplace_name(), own);
  } catch (const Error& error) {
    if (fits)
      fail("in-place", std::string("failed: ") + error.what());
    else if (storage_bytes(self) != before)
      fail("in-place", "the call was refused, but had written to self");
    return;
  }
  if (!fits) {
    fail("in-place", "the call was not refused: result " + shape_text(result) +
                         " does not fit into " + shape_text(self));
    return;
  }
  if (!returned.empty() && !returned[0].tensor().is_same(self))
    fail("in-place", "the call did not return self");
  const Tensor as_self = call("to.dtype", {result, self.dtype()})[0].tensor();
  const Tolerance tolerance{!may_round_apart(*c.op) && result.dtype() == self.dtype(), 1};
  const std::string what = difference(*c.op, arguments, self, as_self, tolerance, true);
  if (!what.empty()) fail("in-place", "self " + what);
}

void check_geometry(const Case& c, const Arguments& arguments, const std::vector<Value>& results,
                    const Fail& fail) {
  if (c.op->meaning != "pointwise") return;
  std::vector<int64_t> shape;
  bool first = true;
  std::optional<std::vector<int64_t>> order;  // the strides of the first tensor operand
  bool agree = true;
  for (const auto& [name, value] : arguments.values) {
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    if (tensor == nullptr) continue;
    const std::vector<int64_t> own = tensor->sizes().vec();
    const size_t rank = std::max(shape.size(), own.size());
    shape.insert(shape.begin(), rank - shape.size(), 1);
    for (size_t d = 0; d < own.size(); ++d) {
      int64_t& size = shape[rank - own.size() + d];
      if (size == 1) size = own[d];
    }
    if (first)
      order = tensor->strides().vec();
    else
      agree = agree && order == tensor->strides().vec();
    first = false;
  }
  for (const Value& value : results) {
    const Tensor& result = value.tensor();
    if (!result.defined()) continue;
    if (result.sizes().vec() != shape) {
      fail("geometry",
           "the result is " + shape_text(result) + ", which is not the broadcast shape");
    } else if (has_internal_overlap(*result.impl())) {
      fail("geometry", "the result overlaps itself: " + shape_text(result));
    } else if (agree && order.has_value() && !has_internal_overlap(*result.impl()) &&
               std::get<Tensor>(arguments.values[0].second.variant()).numel() > 1) {
      // If all operands are dense with the same strides, so is the result.
      int64_t reach = 1;
      for (size_t d = 0; d < shape.size(); ++d) reach += (shape[d] - 1) * (*order)[d];
      if (reach == result.numel() && order->size() == shape.size() &&
          result.strides().vec() != *order) {
        fail("geometry", "the result is " + shape_text(result) +
                             ", but all operands are dense in another order");
      }
    }
  }
}

}  // namespace mytorch::conformance
