#include "mytorch/nn/module.h"

#include <atomic>
#include <cstdint>
#include <memory>
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

// The mode of a module, for the recordings that have read it. They hold as long as it is what they
// read, also if it was another one meanwhile.
struct Module::RecordedMode {
  enum Mode : int8_t { kEvaluation, kTraining, kNone };
  struct Expected final : RecordedState {
    const RecordedMode* mode;
    Mode expected;
    const char* refresh() override {
      return mode->now == expected ? nullptr : "the training mode of a module has changed";
    }
  };

  explicit RecordedMode(bool training) : now(Mode(training)) {
    for (const Mode each : {kEvaluation, kTraining}) {
      states[each].mode = this;
      states[each].expected = each;
    }
  }
  std::atomic<Mode> now;  // kNone: the module is gone
  uint64_t set_by = 0;    // the recording that has set the mode
  Expected states[2];
};

Module::Module() = default;
Module::Module(std::nullptr_t) : empty_(true) {}
Module::Module(const Module& other)
    : Forwards(),
      own_name_(other.own_name_),
      tensors_(other.tensors_),
      children_(other.children_),
      copies_(other.copies_),
      hooks_(other.hooks_),
      training_(other.training_),
      lazy_(other.lazy_),
      empty_(other.empty_),
      parametrized_(other.parametrized_) {
  if (copies_ != nullptr) copies_->add(this);
  CloneMemo::note(this);
}

// A copy: the members of `other` stay registered, because they may be assigned again.
// NOLINTNEXTLINE(performance-move-constructor-init)
Module::Module(Module&& other) noexcept : Module(std::as_const(other)) {}

Module::~Module() {
  note_change();
  if (recorded_mode_ != nullptr) recorded_mode_->now = RecordedMode::kNone;
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
  set_mode(other.training_);
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

void Module::note_mode() const {
  if (!recording_graph()) return;
  if (recorded_mode_ == nullptr) recorded_mode_ = std::make_shared<RecordedMode>(training_);
  if (recorded_mode_->set_by == capture_table->recording()) return;
  capture_table->depends({recorded_mode_, &recorded_mode_->states[training_ ? 1 : 0]});
}

void Module::set_mode(bool training) {
  training_ = training;
  if (recording_graph()) {
    if (recorded_mode_ == nullptr) recorded_mode_ = std::make_shared<RecordedMode>(training);
    recorded_mode_->set_by = capture_table->recording();
  }
  if (recorded_mode_ != nullptr) recorded_mode_->now = RecordedMode::Mode(training);
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
