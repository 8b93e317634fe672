#include "autograd/vmap/batched.h"

#include <memory>

#include "autograd/meta.h"
#include "core/runtime/grad_layer.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/unsqueeze.h"

namespace mytorch::autograd::batch {

thread_local constinit BatchState state = {};

BatchScope::BatchScope(const BatchState& to, bool record)
    : saved_(state),
      layers_(thread_state.layers),
      wanted_(thread_state.wanted),
      grad_mode_(thread_state.grad_mode),
      masked_(grad_layer_masked) {
  state = to;
  // The autocast layer stays as it is: masked below an operator that it has seen.
  uint32_t layers = layers_ | ~uint32_t{kLayerAutocast};
  if (!grad_mode_ || (to.level != nullptr && !record)) layers &= ~uint32_t{kLayerAutograd};
  thread_state.layers = layers;
  grad_layer_masked = to.level != nullptr && !record;
  thread_state.wanted =
      to.level != nullptr ? wanted_ | kLayerBatch : wanted_ & ~uint32_t{kLayerBatch};
}

BatchScope::~BatchScope() {
  state = saved_;
  thread_state.layers = layers_;
  thread_state.wanted = wanted_;
  grad_layer_masked = masked_;
  if (thread_state.grad_mode != grad_mode_) set_grad_enabled(thread_state.grad_mode);
}

namespace {

const Batched& record_of(const TensorImpl* impl) { return *impl->autograd->extras->batched; }

Tensor attach(TensorImpl* impl, std::shared_ptr<const Batched> batched) {
  AutogradMeta& meta = make_meta(impl);
  if (meta.extras == nullptr) meta.extras = new MetaExtras;
  meta.extras->batched = std::move(batched);
  meta.version = impl->storage->abi.version;
  impl->layer_flags |= kLayerBatch;
  return Tensor::adopt(impl);
}

IntList without_first(IntList list, bool drop) {
  return drop ? IntList(list.data() + 1, list.size() - 1) : list;
}

std::shared_ptr<const Batched> record(const Tensor& value, bool has_dim) {
  return std::make_shared<const Batched>(Batched{value, state.level->id, has_dim});
}

TensorImpl* new_header(TensorImpl* value, bool has_dim) {
  detail::retain(value->storage);
  TensorImpl* impl =
      new_tensor_over(value->storage, without_first(value->sizes(), has_dim),
                      without_first(value->strides(), has_dim), value->dtype, value->offset());
  impl->read_only = value->read_only;
  return impl;
}

}  // namespace

const Batched* find(const TensorImpl* impl, const char* op) {
  if (impl == nullptr || !is_batched(impl)) return nullptr;
  const Batched& batched = record_of(impl);
  if (state.level != nullptr && batched.level == state.level->id) return &batched;
  for (const Level* level = state.level; level != nullptr; level = level->outer) {
    if (batched.level == level->id) return nullptr;
  }
  fail(ErrorCode::kUnsupported, "[", op, "] a tensor of shape ", shape_str(impl->sizes()),
       " is used outside of the vmap that made it: return it from the function instead of storing "
       "it");
}

Tensor wrap(const Tensor& value, bool has_dim) {
  return attach(new_header(value.impl(), has_dim), record(value, has_dim));
}

Tensor wrap_view(const Tensor& of, const Tensor& value, bool has_dim) {
  const TensorImpl& to = *value.impl();
  TensorImpl* from = of.impl();
  // The types differ for a view of the parts of complex numbers.
  const int64_t size = element_size(from->dtype);
  const int64_t offset = to.offset() * element_size(to.dtype) / size - from->offset();
  return attach(new_view(from, without_first(to.sizes(), has_dim),
                         without_first(to.strides(), has_dim), offset, to.dtype),
                record(value, has_dim));
}

Tensor own_memory(const Tensor& tensor) {
  if (!inside() || find(tensor.impl(), "vmap") != nullptr) return tensor;
  Tensor value;
  {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes.insert(sizes.begin(), state.level->size);
    const BatchScope scope(outside());
    value = mytorch::clone(mytorch::expand(mytorch::unsqueeze(tensor, 0), sizes));
  }
  return wrap(value, true);
}

TensorImpl* new_alias(TensorImpl* of) {
  TensorImpl* impl = mytorch::new_alias(of);
  Tensor alias = attach(impl, of->autograd->extras->batched);
  detail::retain(impl);
  return impl;
}

bool has_outer_history(const Tensor& tensor) {
  if (!tensor.defined()) return false;
  const Batched* batched = find(tensor.impl(), "vmap");
  if (batched == nullptr) return tensor.requires_grad();
  const BatchScope scope(outside());
  return batched->value.requires_grad() || (inside() && has_outer_history(batched->value));
}

Tensor lift(const Tensor& tensor) {
  if (state.level == nullptr) return tensor;
  if (const Batched* batched = find(tensor.impl(), "vmap"); batched != nullptr) {
    return wrap(batched->value, batched->has_dim);
  }
  return wrap(tensor, false);
}

void refuse(const std::string& message) {
  if (state.bodies > 0) throw NeedsLoop();
  throw Error(ErrorCode::kUnsupported, message);
}

namespace {

Tensor detach(const Tensor& batched) {
  const Batched* found = find(batched.impl(), "detach");
  if (found == nullptr) return Tensor::adopt(batch::new_alias(batched.impl()));
  return wrap(found->value.detach(), found->has_dim);
}

void refuse_read(const char* op) {
  refuse(absl::StrCat("[", op,
                      "] vmap computes all examples at once, so a batched tensor has no single "
                      "value: replace `if` by where(condition, a, b), a loop that ends by a value "
                      "by one of a fixed length with where, and return the tensor to read it"));
}

Tensor value_of(const Tensor& batched) { return all_examples(record_of(batched.impl()).value); }

constexpr BatchTable kTable = {.detach = detach, .value = value_of, .refuse_read = refuse_read};
[[maybe_unused]] const bool installed = (batch_table = &kTable, install_wrappers(), true);

}  // namespace
}  // namespace mytorch::autograd::batch
