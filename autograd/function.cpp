#include "mytorch/autograd/function.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/autocast/state.h"
#include "autograd/engine/task.h"
#include "autograd/meta.h"
#include "autograd/view.h"
#include "autograd/vmap/batched.h"
#include "core/types/errors.h"
#include "mytorch/autograd/record.h"

namespace mytorch::autograd {

class FunctionNode final : public Node {
 public:
  FunctionNode(const char* name, FunctionBackward backward,
               std::unique_ptr<FunctionContext> context)
      : name_(name), backward_(backward), context_(std::move(context)) {
    context_->node_ = this;
  }
  const char* name() const override { return name_; }
  void apply(Tensor* grads, Tensor* out) override;
  void release_saved() override {
    for (SavedTensor& saved : context_->saved_) saved.release();
  }
  FunctionContext& context() { return *context_; }

 private:
  const char* name_;
  FunctionBackward backward_;
  std::unique_ptr<FunctionContext> context_;
  autocast::AutocastState autocast_ =
      autocast::state;  // of the forward, in which backward runs, too
};

namespace {

// The history of the results of a once-differentiable backward.
class NotDifferentiable final : public Node {
 public:
  NotDifferentiable(const char* function, const char* why) : function_(function), why_(why) {}
  const char* name() const override { return function_; }
  void apply(Tensor*, Tensor*) override {
    fail(ErrorCode::kUnsupported, "[", function_, "] ", why_);
  }

 private:
  const char* function_;
  const char* why_;
};

bool contains(const std::vector<Tensor>& list, const Tensor& tensor) {
  return std::any_of(list.begin(), list.end(), [&](const Tensor& t) { return t.is_same(tensor); });
}

}  // namespace

namespace {

// Returns the number that `value` holds as a T, or nullopt if it holds none.
template <class T>
std::optional<T> number_in(const std::any& value) {
  std::optional<T> found;
  const auto try_type = [&]<class Held>(Held) {
    if (const Held* held = std::any_cast<Held>(&value)) found = static_cast<T>(*held);
  };
  try_type(bool());
  try_type(int());
  try_type(unsigned());
  try_type(int64_t());
  try_type(static_cast<long long>(0));
  try_type(size_t());
  try_type(float());
  try_type(double());
  return found;
}

template <class T>
T number_or_fail(const SavedValue& value, const char* wanted) {
  if (const std::optional<T> found = number_in<T>(value)) return *found;
  fail(ErrorCode::kType, "[saved_data] the value is ", value.has_value() ? "not " : "missing, not ",
       wanted);
}

template <class T>
T held_or_fail(const SavedValue& value, const char* wanted) {
  if (const T* held = std::any_cast<T>(&value)) return *held;
  fail(ErrorCode::kType, "[saved_data] the value is ", value.has_value() ? "not " : "missing, not ",
       wanted);
}

}  // namespace

bool SavedValue::toBool() const { return number_or_fail<bool>(*this, "a number"); }
int64_t SavedValue::toInt() const { return number_or_fail<int64_t>(*this, "a number"); }
double SavedValue::toDouble() const { return number_or_fail<double>(*this, "a number"); }
std::string SavedValue::toString() const {
  if (const auto* text = std::any_cast<const char*>(this)) return *text;
  return held_or_fail<std::string>(*this, "text");
}
std::vector<int64_t> SavedValue::toIntVector() const {
  return held_or_fail<std::vector<int64_t>>(*this, "a std::vector<int64_t>");
}
Tensor SavedValue::toTensor() const { return held_or_fail<Tensor>(*this, "a Tensor"); }

std::vector<Tensor> FunctionContext::saved_tensors() const {
  if (node_ == nullptr) return to_save_;
  std::vector<Tensor> tensors;
  tensors.reserve(saved_.size());
  for (const SavedTensor& saved : saved_) tensors.push_back(saved.unpack(node_));
  return tensors;
}

bool FunctionContext::needs_input_grad(size_t i) const {
  if (node_ != nullptr) return i < node_->num_edges() && node_->wants(static_cast<uint32_t>(i));
  return i < needs_.size() && needs_[i];
}

FunctionCall::FunctionCall(const char* name, FunctionBackward backward)
    : name_(name), backward_(backward), context_(std::make_unique<FunctionContext>()) {}

FunctionContext* FunctionCall::begin() {
  for (const Tensor& argument : arguments_) {
    context_->needs_.push_back(any_requires_grad(argument));
    if (batch::inside() && thread_state.grad_mode && batch::has_outer_history(argument)) {
      fail(ErrorCode::kUnsupported, "[", name_,
           "] a Function inside vmap computes gradients inside it only, and an argument requires "
           "gradients outside: call it outside of vmap, or build it from operators");
    }
  }
  return context_.get();
}

void FunctionCall::finish(std::vector<Tensor>* results) {
  const bool records =
      std::find(context_->needs_.begin(), context_->needs_.end(), true) != context_->needs_.end();
  const auto argument_of = [&](const Tensor& result) {
    const auto it = std::find_if(arguments_.begin(), arguments_.end(), [&](const Tensor& argument) {
      return argument.defined() && argument.is_same(result);
    });
    return it == arguments_.end() ? -1 : static_cast<int>(it - arguments_.begin());
  };
  for (const Tensor& dirty : context_->dirty_) {
    if (!contains(*results, dirty)) {
      fail(ErrorCode::kValue, "[", name_, "] an argument was marked dirty but is no result");
    }
    if (records) check_inplace(dirty, name_);
    dirty.impl()->bump_version();
  }
  if (!records) return;

  FunctionContext& context = *context_;
  auto node = make_node<FunctionNode>(static_cast<uint32_t>(arguments_.size()),
                                      static_cast<uint32_t>(results->size()), name_, backward_,
                                      std::move(context_));
  for (uint32_t i = 0; i < arguments_.size(); ++i) node->edge(i, arguments_[i]);
  for (uint32_t i = 0; i < results->size(); ++i) {
    Tensor& result = (*results)[i];
    if (!result.defined() || !is_differentiable(result.dtype())) continue;
    const int argument = argument_of(result);
    const bool dirty = contains(context.dirty_, result);
    if (contains(context.non_differentiable_, result)) {
      if (argument >= 0 && !dirty) result = result.detach();
      continue;
    }
    if (dirty) {
      if (argument < 0) {
        fail(ErrorCode::kValue, "[", name_, "] a result was marked dirty but is no argument");
      }
      rebase_history(result, node, i, static_cast<uint32_t>(argument));
      continue;
    }
    if (argument >= 0) {
      // Returned unchanged: becomes an alias, so that the argument keeps its history.
      const Tensor alias = result.detach();
      for (Tensor& saved : context.to_save_) {
        if (saved.is_same(result)) saved = Tensor(arguments_[argument]);
      }
      result = alias;
    }
    set_history(result, node, i);
  }
  for (const Tensor& tensor : context.to_save_) {
    const auto it = std::find_if(results->begin(), results->end(), [&](const Tensor& result) {
      return result.defined() && tensor.defined() && result.is_same(tensor);
    });
    if (it == results->end()) {
      context.saved_.emplace_back(tensor);
    } else {
      context.saved_.push_back(
          SavedTensor::output(*it, node.get(), static_cast<uint32_t>(it - results->begin())));
    }
  }
  context.to_save_.clear();
  context.dirty_.clear();
  context.non_differentiable_.clear();
}

void FunctionNode::apply(Tensor* grads, Tensor* out) {
  FunctionContext& context = *context_;
  std::vector<Tensor> gradients(num_inputs());
  for (uint32_t i = 0; i < num_inputs(); ++i) {
    gradients[i] = std::move(grads[i]);
    if (!gradients[i].defined() && context.materialize_ && infos()[i].ndim >= 0) {
      gradients[i] = zeros_for(i);
    }
  }
  const bool differentiated = grad_enabled();
  std::optional<AutocastScope> autocast;
  if (autocast_.enabled()) autocast.emplace(autocast_);
  std::vector<Tensor> results;
  if (context.once_differentiable_ != nullptr) {
    NoGradGuard no_grad;
    results = backward_(&context, gradients);
  } else {
    results = backward_(&context, gradients);
  }
  // Trailing undefined gradients may be missing or in excess.
  for (size_t i = num_edges(); i < results.size(); ++i) {
    if (results[i].defined()) {
      fail(ErrorCode::kValue, "[", name_, "] backward gave ", results.size(), " gradients for ",
           num_edges(), " arguments");
    }
  }
  if (results.size() < num_edges()) {
    fail(ErrorCode::kValue, "[", name_, "] backward gave ", results.size(), " gradients for ",
         num_edges(), " arguments");
  }
  for (uint32_t i = 0; i < num_edges(); ++i) {
    // All of them for a split backward, which would call this again for the others.
    if (has_edge(i) && results[i].defined() && (wants(i) || thread_data.task->parks())) {
      out[i] = std::move(results[i]);
    }
  }
  if (context.once_differentiable_ == nullptr || !differentiated) return;
  // A node that refuses, with edges to all that the gradients depend on, so that a search for a
  // path finds it.
  auto refusal = make_node<NotDifferentiable>(num_edges() + num_inputs(), num_edges(), name_,
                                              context.once_differentiable_);
  for (uint32_t k = 0; k < num_edges(); ++k) NodeAccess::set_edge(refusal.get(), k, edges()[k]);
  for (uint32_t k = 0; k < num_inputs(); ++k) {
    if (!gradients[k].defined() || !requires_grad(gradients[k])) continue;
    NodeAccess::set_edge(refusal.get(), num_edges() + k, edge_of(gradients[k].impl()));
  }
  for (uint32_t i = 0; i < num_edges(); ++i) {
    if (!wants(i) || !out[i].defined()) continue;
    out[i] = out[i].detach();
    set_history(out[i], refusal, i);
  }
}

}  // namespace mytorch::autograd
