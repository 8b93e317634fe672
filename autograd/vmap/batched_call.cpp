#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>

#include "autograd/vmap/rules.h"
#include "core/types/errors.h"
#include "dispatcher/frame/kernel_call.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/unsqueeze.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::autograd::batch {
namespace {

bool is_tensor_arg(const ArgInfo& arg) {
  return arg.type == ArgType::kTensor || arg.type == ArgType::kOperand ||
         arg.type == ArgType::kTensorList;
}

void warn_loop(const OpInfo& op) {
  static std::mutex mutex;
  static std::set<std::string>* const warned = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  if (!warned->insert(op.name).second) return;
  std::fprintf(
      stderr,
      "mytorch: warning: [vmap] %s has no batching rule, so it runs once for each example, "
      "which is slow\n",
      op.name);
}

const Tensor* tensor_in(const Value& value) {
  const auto* tensor = std::get_if<Tensor>(&value.variant());
  return tensor != nullptr && tensor->defined() ? tensor : nullptr;
}

// Returns no examples of the shape of `example`, as a function of the parts: their gradients are
// zeros, whatever their values.
Tensor no_examples(const Tensor& example, const std::vector<std::vector<BatchedArg>>& parts) {
  std::vector<int64_t> sizes = example.sizes().vec();
  sizes.insert(sizes.begin(), 0);
  Tensor none = mytorch::zeros(sizes, example.dtype(), example.device());
  if (!is_differentiable(example.dtype())) return none;
  for (const std::vector<BatchedArg>& list : parts) {
    for (const BatchedArg& part : list) {
      if (!part.tensor.defined() || !is_differentiable(part.tensor.dtype())) continue;
      Tensor zero = mytorch::sum(mytorch::narrow(mytorch::flatten(part.tensor), 0, 0, 0));
      if (!example.is_complex()) zero = mytorch::real(zero);
      none = mytorch::add(none, mytorch::to(zero, example.device(), example.dtype()));
    }
  }
  return none;
}

}  // namespace

BatchedCall::BatchedCall(const OpInfo& op_, std::vector<Value> given)
    : op(op_), args(std::move(given)), level_(state.level), bodies_(state.bodies) {
  parts.resize(args.size());
  const auto add = [&](std::vector<BatchedArg>& to, const Tensor& tensor) {
    BatchedArg part{tensor, false, 0};
    if (!tensor.defined()) {
      to.push_back(part);
      return;
    }
    if (const Batched* batched = batch::find(tensor.impl(), op.base); batched != nullptr) {
      part = {batched->value, batched->has_dim, tensor.dim()};
      originals_.push_back(tensor);
      any_dim_ = any_dim_ || batched->has_dim;
    } else {
      part.rank = tensor.dim();
    }
    to.push_back(part);
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (!is_tensor_arg(op.args[i])) continue;
    if (const auto* list = std::get_if<std::vector<Tensor>>(&args[i].variant())) {
      for (const Tensor& tensor : *list) add(parts[i], tensor);
    } else if (const Tensor* tensor = tensor_in(args[i]); tensor != nullptr) {
      add(parts[i], *tensor);
    }
  }
  invoke = [this](const Value* values, std::vector<Value>* found) { op.boxed(values, found); };
}

int BatchedCall::find(std::string_view arg) const {
  for (int i = 0; i < op.num_args; ++i) {
    if (arg == op.args[i].name) return i;
  }
  return -1;
}

std::vector<BatchedArg*> BatchedCall::all() {
  std::vector<BatchedArg*> found;
  for (auto& list : parts) {
    for (BatchedArg& part : list) {
      if (part.tensor.defined()) found.push_back(&part);
    }
  }
  return found;
}

void BatchedCall::make_batched(BatchedArg& part) const {
  if (part.batched) return;
  std::vector<int64_t> sizes = part.tensor.sizes().vec();
  sizes.insert(sizes.begin(), size());
  part.tensor = mytorch::expand(mytorch::unsqueeze(part.tensor, 0), sizes);
  part.batched = true;
}

void BatchedCall::raise(BatchedArg& part, int64_t rank) const {
  for (; part.rank < rank; ++part.rank) {
    part.tensor = mytorch::unsqueeze(part.tensor, part.batched ? 1 : 0);
  }
}

std::vector<Value> BatchedCall::values() const {
  std::vector<Value> found = args;
  for (size_t i = 0; i < args.size(); ++i) {
    if (parts[i].empty()) continue;
    if (op.args[i].type == ArgType::kTensorList) {
      std::vector<Tensor> list;
      for (const BatchedArg& part : parts[i]) list.push_back(part.tensor);
      found[i] = std::move(list);
    } else {
      found[i] = parts[i][0].tensor;
    }
  }
  return found;
}

void BatchedCall::invoke_parts() {
  const std::vector<Value> below = values();
  results.clear();
  invoke(below.data(), &results);
}

// Returns whether the call takes random numbers.
bool BatchedCall::draws() const {
  const int generator = find("generator");
  if (generator < 0 || op.args[generator].type != ArgType::kGenerator) return false;
  if (const int p = find("dropout_p"); p >= 0) return args[p].scalar().to_double() > 0;
  if (const int train = find("train"); train >= 0 && !args[train].is_none()) {
    return args[train].scalar().to_bool();
  }
  return true;
}

void BatchedCall::refuse(const char* message) const {
  if (bodies_ > 0) throw NeedsLoop();
  fail(ErrorCode::kUnsupported, "[", op.base, "] ", message);
}

void BatchedCall::check_randomness() const {
  if (level_->randomness != Randomness::kError) return;
  fail(ErrorCode::kUnsupported, "[", op.base,
       "] random numbers inside vmap: pass {.randomness = \"different\"} to draw other numbers for "
       "each example, or \"same\" for the same numbers for all");
}

std::vector<Value> BatchedCall::run(BatchRule rule) {
  if (recorded_by_body && body != nullptr) rule = nullptr;
  const bool draws = rule != nullptr && this->draws();
  if (draws) check_randomness();
  if (!any_dim_ && !draws && !recorded_by_body &&
      (body == nullptr || originals_.empty() || rule != nullptr)) {
    {
      const BatchScope scope(outside());
      invoke_parts();
    }
    shared = true;
    return originals_.empty() ? results : wrapped();
  }
  if (rule != nullptr && (size() > 0 || !needs_examples(rule))) {
    bool covered;
    {
      const BatchScope scope(outside());
      covered = rule(*this);
    }
    if (covered) return wrapped();
  }
  if (body != nullptr) {
    try {
      const BatchScope scope({state.level, state.recorded, state.bodies + 1});
      std::vector<Value> found;
      body(&found);
      return found;
    } catch (const NeedsLoop&) {
    } catch (const Error& error) {
      rethrow_from(op, error);
    }
  }
  if (recorded_by_body) {
    refuse("has no batching rule that is differentiable inside vmap: compute its gradient outside");
  }
  return loop();
}

Value BatchedCall::wrapped(const Value& result, bool is_shared) const {
  const auto one = [&](const Tensor& value) {
    if (!value.defined()) return value;
    for (const Tensor& original : originals_) {
      const Batched& batched = *batch::find(original.impl(), op.base);
      if (value.is_same(batched.value) && batched.has_dim == !is_shared) return original;
    }
    if (op.meaning == Meaning::kView && !originals_.empty()) {
      return wrap_view(originals_[0], value, !is_shared);
    }
    return wrap(value, !is_shared);
  };
  if (const auto* tensor = std::get_if<Tensor>(&result.variant())) return one(*tensor);
  if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) {
    std::vector<Tensor> found;
    for (const Tensor& each : *list) found.push_back(one(each));
    return found;
  }
  return result;
}

std::vector<Value> BatchedCall::wrapped() {
  std::vector<Value> found;
  for (size_t i = 0; i < results.size(); ++i) {
    found.push_back(wrapped(results[i], shared || static_cast<int>(i) == shared_result));
  }
  return found;
}

// Without examples, computes one of zeros and one of ones, for the types and shapes of the results.
std::vector<Value> BatchedCall::loop() {
  for (int i = 0; i < op.num_args; ++i) {
    if (op.args[i].written && (parts[i].size() != 1 || !parts[i][0].batched)) {
      refuse("writes a tensor that all examples share: call it outside of vmap");
    }
  }
  const bool same = level_->randomness == Randomness::kSame;
  const int at = find("generator");
  Generator generator = default_generator();
  if (at >= 0 && std::holds_alternative<Generator>(args[at].variant())) {
    generator = std::get<Generator>(args[at].variant());
  }
  const uint64_t call = generator.call();
  std::vector<std::vector<Value>> rows;
  {
    const BatchScope scope(outside());
    const std::vector<std::vector<BatchedArg>> all_parts = parts;
    const auto compute = [&](const auto& example_of) {
      for (size_t i = 0; i < parts.size(); ++i) {
        for (size_t k = 0; k < parts[i].size(); ++k) {
          const BatchedArg& from = all_parts[i][k];
          if (from.batched) parts[i][k].tensor = example_of(from.tensor);
        }
      }
      if (same && at >= 0) generator.set_call(call);
      invoke_parts();
      rows.push_back(std::move(results));
    };
    for (int64_t b = 0; b < size(); ++b) {
      compute([&](const Tensor& batch) { return mytorch::select(batch, 0, b); });
    }
    if (size() == 0) {
      const NoGradGuard no_grad;
      // Zeros are indices of rows, of which there may be one; ones are weights, and pivots. Shapes
      // that depend on the values differ.
      for (const int64_t value : {0, 1}) {
        try {
          compute([&](const Tensor& batch) {
            const std::vector<int64_t> sizes = batch.sizes().vec();
            return mytorch::full(IntList(sizes.data() + 1, sizes.size() - 1), value, batch.dtype(),
                                 batch.device());
          });
        } catch (const Error&) {
          if (value == 1 && rows.empty()) throw;
        }
      }
      if (generator.call() != call) generator.set_call(call);
    } else {
      warn_loop(op);
    }
    results.clear();
    const auto stacked = [&](const auto& tensor_of) {
      std::vector<Tensor> column;
      for (const std::vector<Value>& row : rows) {
        column.push_back(tensor_of(row));
        if (!column[0].defined()) return Tensor();
        if (!(column.back().sizes() == column[0].sizes())) {
          if (bodies_ > 0) throw NeedsLoop();  // the operator as a whole may give one shape
          fail(ErrorCode::kUnsupported, "[", op.base,
               "] the shape of the result depends on the values, and examples of the batch give ",
               shape_str(column[0].sizes()), " and ", shape_str(column.back().sizes()),
               ", which vmap cannot stack: use an operator whose result has a fixed shape, such as "
               "where(mask, x, 0)");
        }
      }
      return size() == 0 ? no_examples(column[0], all_parts) : mytorch::stack(column);
    };
    for (size_t r = 0; r < rows[0].size(); ++r) {
      if (std::holds_alternative<Tensor>(rows[0][r].variant())) {
        results.emplace_back(
            stacked([&](const std::vector<Value>& row) { return row[r].tensor(); }));
      } else if (const auto* list = std::get_if<std::vector<Tensor>>(&rows[0][r].variant())) {
        std::vector<Tensor> found;
        for (size_t k = 0; k < list->size(); ++k) {
          found.push_back(
              stacked([&](const std::vector<Value>& row) { return row[r].tensors().at(k); }));
        }
        results.emplace_back(std::move(found));
      } else {
        if (bodies_ > 0) throw NeedsLoop();  // the operator as a whole gives tensors
        fail(ErrorCode::kUnsupported, "[", op.base, "] gives a ", rows[0][r].type_name(),
             " for each example of a batch, but vmap computes with tensors: use operators whose "
             "result is a tensor, such as eq(a, b).all()");
      }
    }
  }
  return wrapped();
}

void write_form(const OpInfo& op, int outs, bool inplace, const std::vector<Value>& args) {
  std::vector<Value> results, given(args.begin() + (inplace ? 0 : outs), args.end());
  const auto has_history = [](const Value& value) {
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    return tensor != nullptr && tensor->defined() &&
           (tensor->requires_grad() || has_outer_history(*tensor));
  };
  // Backward reads the operand as it was.
  if (inplace && grad_enabled() && std::any_of(given.begin(), given.end(), has_history)) {
    const Tensor before = mytorch::clone(args[0].tensor());
    for (Value& value : given) {
      const auto* tensor = std::get_if<Tensor>(&value.variant());
      if (tensor != nullptr && tensor->defined() && tensor->is_same(args[0].tensor())) {
        value = before;
      }
    }
  }
  op.boxed(given.data(), &results);
  std::vector<Tensor> found;
  for (const Value& result : results) found.push_back(result.tensor());
  for (int i = 0; i < outs; ++i) {
    const Tensor& to = args[i].tensor();
    const Batched* from = batch::find(found[i].impl(), op.base);
    const Batched* into = batch::find(to.impl(), op.base);
    if (from != nullptr && from->has_dim && (into == nullptr || !into->has_dim)) {
      refuse(absl::StrCat("[", op.base, inplace ? "_" : "_out",
                          "] writes batched values into a tensor that all examples share: use the "
                          "form that returns a new tensor, or write into a batched one, such as "
                          "zeros_like(x) of a batched x"));
    }
  }
  for (int i = 0; i < outs; ++i) {
    const Tensor& to = args[i].tensor();
    if (inplace) {
      assign_inplace(op, to, found[i]);
    } else {
      assign_out(op, to, found[i]);
    }
  }
}

}  // namespace mytorch::autograd::batch
