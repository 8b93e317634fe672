#include "graph/capture/deferral.h"

#include <bit>
#include <variant>

#include "core/runtime/cpu_block.h"
#include "core/runtime/device_registry.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {

// Memory of a result, which tells the deferral when nothing refers to it any more.
struct Deferral::Placeholder : Storage {
  Deferral* owner;  // null when the calls have run
  int32_t buffer;
  Storage* memory;

  static Placeholder* make(Deferral* owner, int32_t id, const GraphBuffer& buffer) {
    const int slot = checked_device_slot(buffer.device);
    Storage* const memory = allocate_storage(buffer.device, slot, buffer.bytes);
    auto* const made = new Placeholder;
    made->abi = memory->abi;
    made->device_slot = memory->device_slot;
    made->device = memory->device;
    made->data = memory->data;
    made->bytes = memory->bytes;
    made->owner = owner;
    made->buffer = id;
    made->memory = memory;
    made->destroy = [](Storage* storage) {
      auto* const self = static_cast<Placeholder*>(storage);
      if (self->owner != nullptr) {
        self->owner->bound_[static_cast<size_t>(self->buffer)].storage = nullptr;
      }
      if (detail::release_last(self->memory)) self->memory->destroy(self->memory);
      delete self;
    };
    return made;
  }
};

Deferral::Deferral(const Trace* trace) : trace_(trace), bound_(trace->graph.buffers.size()) {}

Deferral::~Deferral() {
  for (BoundMemory& bound : bound_) {
    if (bound.storage == nullptr) continue;
    if (bound.produced) {
      static_cast<Placeholder*>(bound.storage)->owner = nullptr;
    } else if (detail::release_last(bound.storage)) {
      bound.storage->destroy(bound.storage);
    }
  }
}

void Deferral::undo() {
  for (const int32_t buffer : tentative_) {
    BoundMemory& bound = bound_[static_cast<size_t>(buffer)];
    buffer_of_.erase(bound.storage->abi.id);
    if (detail::release_last(bound.storage)) bound.storage->destroy(bound.storage);
    bound = {};
  }
  tentative_.clear();
}

bool Deferral::begin(const OpEntry& entry, Form form) {
  undo();
  if (complete()) return false;
  candidate_ = &trace_->graph.nodes[at_];
  argument_ = 0;
  arguments_.clear();
  return candidate_->entry == &entry && candidate_->form == form &&
         candidate_->grad_mode == thread_state.grad_mode;
}

bool Deferral::operand(ValueId id, const TensorImpl& impl, bool written) {
  const ValueInfo& info = trace_->graph.values[id];
  if (impl.dtype != info.dtype || !(impl.sizes() == as_list(info.sizes)) ||
      !(impl.strides() == as_list(info.strides)) || (written && impl.read_only)) {
    return false;
  }
  const auto b = static_cast<size_t>(info.buffer);
  BoundMemory& bound = bound_[b];
  const int64_t begin = static_cast<const char*>(impl.abi.dl.data) -
                        static_cast<const char*>(impl.storage->data) -
                        info.offset * element_size(info.dtype);
  if (bound.storage != nullptr) return bound.storage == impl.storage && bound.begin == begin;
  const GraphBuffer& buffer = trace_->graph.buffers[b];
  if (buffer.origin != BufferOrigin::kArgument || !(buffer.device == impl.device())) return false;
  const auto lies = reinterpret_cast<uintptr_t>(impl.storage->data) + static_cast<uintptr_t>(begin);
  if (lies % kTraceAlignment != trace_->alignment[b]) return false;
  if (!buffer_of_.try_emplace(impl.storage->abi.id, info.buffer).second) return false;
  detail::retain(impl.storage);
  bound = {impl.storage, begin, false};
  tentative_.push_back(info.buffer);
  return true;
}

bool Deferral::tensor(const TensorImpl* impl) {
  if (argument_ == candidate_->args.size()) return false;
  const size_t i = argument_++;
  const Arg& arg = candidate_->args[i];
  arguments_.push_back(const_cast<TensorImpl*>(impl));
  if (impl == nullptr) return arg.kind == Arg::kConstant && arg.constant.is_none();
  return arg.kind == Arg::kTensor && operand(arg.values[0], *impl, candidate_->writes(i));
}

bool Deferral::tensors(const Tensor* begin, size_t size) {
  if (argument_ == candidate_->args.size()) return false;
  const size_t i = argument_++;
  const Arg& arg = candidate_->args[i];
  arguments_.push_back(nullptr);
  if (arg.kind != Arg::kTensors || arg.values.size() != size) return false;
  for (size_t k = 0; k < size; ++k) {
    const ValueId id = arg.values[k];
    if ((id == kNoValue) == begin[k].defined()) return false;
    if (id != kNoValue && !operand(id, *begin[k].impl(), candidate_->writes(i))) return false;
  }
  return true;
}

bool Deferral::wanted(const bool* wanted) const {
  uint32_t bits = 0;
  for (size_t i = 0; i < candidate_->results.size(); ++i) bits |= uint32_t{wanted[i]} << i;
  return bits == candidate_->wanted;
}

const Value* Deferral::constant() {
  if (argument_ == candidate_->args.size()) return nullptr;
  arguments_.push_back(nullptr);
  const Arg& arg = candidate_->args[argument_++];
  return arg.kind == Arg::kConstant ? &arg.constant : nullptr;
}

bool Deferral::accept() {
  if (argument_ != candidate_->args.size()) return false;
  if (const uint32_t count = trace_->notes[at_].draws; count != 0) {
    const Generator* generator = &default_generator();
    for (const Arg& arg : candidate_->args) {
      if (const auto* given = std::get_if<Generator>(&arg.constant.variant())) generator = given;
    }
    Draws* known = nullptr;
    for (Draws& each : draws_) {
      if (each.generator.shares_state(*generator)) known = &each;
    }
    if (known == nullptr) {
      draws_.push_back({*generator, generator->seed(), generator->call(), generator->call()});
      known = &draws_.back();
    }
    if (generator->seed() != known->seed || generator->call() != known->next) return false;
    generator->take(count);
    known->next += count;
  }
  tentative_.clear();
  candidate_->for_each_written([this](ValueId id) {
    const ValueInfo& info = trace_->graph.values[id];
    ++bound_[static_cast<size_t>(info.buffer)].storage->abi.version;
  });
  ++at_;
  return true;
}

Tensor Deferral::placeholder(ValueId id) {
  if (id == kNoValue) return {};
  const ValueInfo& info = trace_->graph.values[id];
  const auto b = static_cast<size_t>(info.buffer);
  BoundMemory& bound = bound_[b];
  if (bound.storage == nullptr) {
    bound = {Placeholder::make(this, info.buffer, trace_->graph.buffers[b]), 0, true};
    buffer_of_.emplace(bound.storage->abi.id, info.buffer);
  } else {
    detail::retain(bound.storage);
  }
  return Tensor::adopt(new_tensor_over(bound.storage, as_list(info.sizes), as_list(info.strides),
                                       info.dtype,
                                       info.offset + bound.begin / element_size(info.dtype)));
}

Tensor Deferral::result(size_t i) {
  const int8_t same = trace_->notes[at_ - 1].same;
  if (same >= 0) return Tensor::share(arguments_[static_cast<size_t>(same)]);
  return placeholder(node().results[i].values[0]);
}

std::vector<Tensor> Deferral::results(size_t i) {
  std::vector<Tensor> list;
  for (const ValueId id : node().results[i].values) list.push_back(placeholder(id));
  return list;
}

bool Deferral::uses(const Tensor& tensor) const {
  return buffer_of_.contains(tensor.impl()->storage->abi.id);
}

bool Deferral::changes(const Tensor& tensor) const {
  const auto found = buffer_of_.find(tensor.impl()->storage->abi.id);
  if (found == buffer_of_.end()) return false;
  if (bound(found->second).produced) return true;
  bool written = false;
  for (size_t i = 0; i < at_; ++i) {
    trace_->graph.nodes[i].for_each_written(
        [&](ValueId id) { written = written || trace_->graph.values[id].buffer == found->second; });
  }
  return written;
}

bool Deferral::holds(const Tensor& tensor) const {
  const auto found = buffer_of_.find(tensor.impl()->storage->abi.id);
  return found != buffer_of_.end() && !bound(found->second).produced;
}

std::vector<int32_t> Deferral::alive() const {
  std::vector<int32_t> found;
  for (size_t b = 0; b < bound_.size(); ++b) {
    if (bound_[b].produced && bound_[b].storage != nullptr)
      found.push_back(static_cast<int32_t>(b));
  }
  return found;
}

namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// 1 is no 1.0, which has another type, and 0 is no -0.
bool same(const Scalar& a, const Scalar& b) {
  if (a.is_bool() != b.is_bool() || a.is_int() != b.is_int() || a.is_float() != b.is_float()) {
    return false;
  }
  if (a.is_bool() || a.is_int()) return a.to_int() == b.to_int();
  return same_bits(a.real(), b.real()) && same_bits(a.imag(), b.imag());
}
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return false;
  }
  return true;
}
bool same(const Generator& a, const Generator& b) { return a.shares_state(b); }
bool same(const Handle& a, const Handle& b) { return a.type == b.type && a.object == b.object; }
bool same(const Tensor& a, const Tensor& b) { return a.is_same(b); }
bool same(const std::vector<Tensor>&, const std::vector<Tensor>&) { return false; }
template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}

}  // namespace

bool same_constant(const Value& a, const Value& b) {
  return a.variant().index() == b.variant().index() &&
         std::visit(
             [&](const auto& x) {
               return same(x, std::get<std::remove_cvref_t<decltype(x)>>(b.variant()));
             },
             a.variant());
}

}  // namespace mytorch::graph
