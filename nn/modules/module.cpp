#include "mytorch/nn/module.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/options_epoch.h"
#include "nn/modules/module_copies.h"
#include "nn/modules/names.h"

namespace mytorch::nn {

// The mode of a module, which compiled functions read and set.
class Module::RecordedMode final : public StateCell {
 public:
  explicit RecordedMode(Module* module)
      : StateCell(module->training_ ? 1 : 0, "the training mode of a module has changed"),
        module_(module) {}
  void set(int8_t number) override {
    module_->training_ = number != 0;
    value = number;
  }

 private:
  Module* module_;
};

const std::shared_ptr<StateCell>& Module::recorded_mode() const {
  // Several threads may record functions that use one module.
  static auto* const creation = new std::mutex;
  const std::lock_guard<std::mutex> lock(*creation);
  if (recorded_mode_ == nullptr)
    recorded_mode_ = std::make_shared<RecordedMode>(const_cast<Module*>(this));
  return recorded_mode_;
}

void Module::note_mode_read() const { capture_table->reads(recorded_mode()); }

void Module::note_made() { capture_table->makes(recorded_mode()); }

void Module::set_mode(bool training) {
  training_ = training;
  if (recording_graph()) recorded_mode();
  if (recorded_mode_ == nullptr) return;
  recorded_mode_->value = training ? 1 : 0;
  if (recording_graph()) capture_table->sets(recorded_mode_);
}

Module::Module() {
  if (recording_graph()) note_made();
}
Module::Module(std::nullptr_t) : Module() { empty_ = true; }
Module::Module(const Module& other)
    : Forwards(),
      own_name_(other.own_name_),
      tensors_(other.tensors_),
      children_(other.children_),
      copies_(other.copies_),
      hooks_(other.hooks_),
      training_(other.training()),
      lazy_(other.lazy_),
      empty_(other.empty_),
      parametrized_(other.parametrized_) {
  if (copies_ != nullptr) copies_->add(this);
  CloneMemo::note(this);
  if (recording_graph()) note_made();
}

// A copy: the members of `other` stay registered, because they may be assigned again.
// NOLINTNEXTLINE(performance-move-constructor-init)
Module::Module(Module&& other) noexcept : Module(std::as_const(other)) {}

Module::~Module() {
  note_change();
  if (recorded_mode_ != nullptr) recorded_mode_->value = StateCell::kGone;
  CloneMemo::forget(this);
  if (copies_ != nullptr) copies_->remove(this);
}

// The members of this object stay its own members, also in an assignment to itself.
// NOLINTNEXTLINE(bugprone-unhandled-self-assignment)
Module& Module::operator=(const Module& other) {
  note_change();
  std::vector<ChildEntry> children = other.children_;
  for (ChildEntry& entry : children) {
    for (const ChildEntry& own : children_) {
      const bool same = entry.shared == nullptr ? own.place == entry.place : own.name == entry.name;
      if (own.copies == nullptr || entry.copies == nullptr || !same) continue;
      entry.assigned = record(entry);
      entry.copies = own.copies;
    }
  }
  own_name_ = other.own_name_;
  tensors_ = other.tensors_;
  children_ = std::move(children);
  hooks_ = other.hooks_;
  set_mode(other.training());
  lazy_ = other.lazy_;
  empty_ = other.empty_;
  parametrized_ = other.parametrized_;
  if (copies_ == nullptr && other.copies_ != nullptr) {  // as a copy; see Copies::nearest
    copies_ = other.copies_;
    copies_->add(this);
  }
  return *this;
}

Module& Module::operator=(Module&& other) noexcept { return *this = other; }

void Module::forget_recordings() {
  if ((thread_state.wanted & kLayerCapture) != 0) return;
  recorded_ = false;
  options_changed();
}

void Module::train(bool on) {
  apply([on](Module& module) { module.set_mode(on); });
}

void Module::requires_grad(bool on) {
  for (const Tensor& parameter : parameters()) parameter.requires_grad_(on);
}

void Module::zero_grad(bool set_to_none) {
  NoGradGuard no_grad;
  for (const Tensor& parameter : parameters()) {
    if (set_to_none) {
      parameter.set_grad({});
    } else if (const Tensor grad = parameter.grad(); grad.defined()) {
      grad.detach().zero_();
    }
  }
}

int64_t Module::lazy_size(const Tensor& input, int64_t dim) const {
  if (dim < -input.dim() || dim >= input.dim()) {
    fail(ErrorCode::kShape, "[", class_name(*this), "] input ", shape_str(input.sizes()),
         " has no dimension ", dim, ", the number of input features");
  }
  return input.size(dim);
}

void Module::finish_lazy(const Tensor& input) {
  lazy_ = false;
  for (const TensorEntry& entry : tensors_) {
    Tensor& tensor = resolve(entry);
    if (entry.role == Role::kParameter && tensor.defined()) tensor.requires_grad_();
  }
  to(input.device());
  if (input.is_floating_point()) to(input.dtype());
}

void Module::fail_empty() const {
  fail(ErrorCode::kValue, "[", class_name(*this),
       "] the module is empty, because it was made from nullptr: assign a layer before its use");
}

void detail::fail_empty_holder(const std::type_info& type) {
  fail(ErrorCode::kValue, "[", class_name(type),
       "] the holder is empty, because it was made from nullptr: assign a module before its use");
}

double Module::flops(const Tensor& /*input*/, const Tensor& /*output*/) const { return 0; }

}  // namespace mytorch::nn
