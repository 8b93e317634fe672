// A tensor saved for the computation of a gradient.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "mytorch/autograd/node.h"

namespace mytorch::autograd {

// Stores a tensor together with its version, so that modifying the tensor before backward raises an
// error instead of producing a wrong gradient. Movable only. An undefined tensor is saved as such.
class SavedTensor {
 public:
  SavedTensor() = default;
  // Saves an input that the operation does not write.
  explicit SavedTensor(const Tensor& input) : SavedTensor(input.impl()) {}
  explicit SavedTensor(const Operand& input) : SavedTensor(input.impl()) {}
  explicit SavedTensor(TensorImpl* input) {
    if (input == nullptr) return;
    if (thread_data.hooks != nullptr || input->inference) [[unlikely]] {
      save_input_slow(input);
      return;
    }
    detail::retain(input);
    impl_ = input;
    version_ = input->storage->abi.version;
    state_ = kOriginal;
  }
  // Saves an input of an operation that is about to write `written`; copies it if they share
  // memory.
  static SavedTensor before_write(const Tensor& input, const Tensor& written);
  // Saves output number `output` of the operation that `owner` differentiates. Call it after the
  // operation and after set_history, rebase_history or as_view. Holds no reference to the result,
  // because the result holds the node.
  static SavedTensor output(const Tensor& result, const Node* owner, uint32_t output = 0);

  SavedTensor(SavedTensor&& other) noexcept { swap(other); }
  SavedTensor& operator=(SavedTensor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SavedTensor() {
    if (impl_ != nullptr || extra_ != nullptr) reset();
  }

  // Returns the tensor with its place in the graph. `owner` is the node that saved it. Throws
  // Error(kValue) if the values were modified or freed.
  Tensor unpack(const Node* owner) const {
    if (state_ == kOriginal && version_ == impl_->storage->abi.version) [[likely]] {
      return Tensor::share(impl_);
    }
    if (state_ == kUndefined) return Tensor();
    return unpack_slow(owner);
  }
  // Returns whether a tensor was saved. Remains true after release(), when unpack throws.
  bool defined() const { return state_ != kUndefined; }
  void release() {
    if (state_ == kUndefined) return;
    reset();
    state_ = kReleased;
  }

 private:
  enum State : uint8_t {
    kUndefined,
    kOriginal,  // the tensor itself
    kOutput,    // an alias of an output of the owner
    kCopy,      // values without history; the history is in extra_
    kPacked,    // replaced by the result of a pack hook
    kReleased
  };
  struct Extra;

  void swap(SavedTensor& other) noexcept {
    std::swap(impl_, other.impl_);
    std::swap(version_, other.version_);
    std::swap(extra_, other.extra_);
    std::swap(output_, other.output_);
    std::swap(state_, other.state_);
  }
  void reset();
  void save_input_slow(TensorImpl* input);
  void pack(const Tensor& values);
  Tensor unpack_slow(const Node* owner) const;
  [[noreturn]] void fail_version(const Node* owner) const;

  TensorImpl* impl_ = nullptr;  // counted
  uint64_t version_ = 0;
  Extra* extra_ = nullptr;
  uint32_t output_ = 0;
  State state_ = kUndefined;
};

// The same for `Tensor[]` arguments.
class SavedTensorList {
 public:
  SavedTensorList() = default;
  explicit SavedTensorList(TensorList inputs) {
    saved_.reserve(inputs.size());
    for (const Tensor& input : inputs) saved_.emplace_back(input);
  }
  std::vector<Tensor> unpack(const Node* owner) const {
    std::vector<Tensor> tensors;
    tensors.reserve(saved_.size());
    for (const SavedTensor& saved : saved_) tensors.push_back(saved.unpack(owner));
    return tensors;
  }
  size_t size() const { return saved_.size(); }
  void release() {
    for (SavedTensor& saved : saved_) saved.release();
  }

 private:
  std::vector<SavedTensor> saved_;
};

}  // namespace mytorch::autograd
