// libtorch's functions and classes for saving and loading. Files are safetensors; see serialize.h
// for the errors.
//
//   mytorch::save(model, "model.safetensors");  // a tensor, a list of tensors, a module, an
//   optimizer mytorch::load(model, "model.safetensors");
#pragma once

#include <concepts>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mytorch/nn/serialize.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace serialize {

// Tensors by name, to be written to a file or a stream. An archive within an archive prefixes its
// names: "optimizer.lr".
class OutputArchive {
 public:
  // Throw Error(kValue) if the name was written before.
  void write(const std::string& key, const Tensor& value, bool is_buffer = false);
  void write(const std::string& key, const OutputArchive& value);
  void save_to(const std::string& path) const;
  void save_to(std::ostream& stream) const;
  const nn::TensorMap& tensors() const { return tensors_; }

 private:
  nn::TensorMap tensors_;
};

// Tensors by name, read from a file or a stream.
class InputArchive {
 public:
  void load_from(const std::string& path, std::optional<Device> device = {});
  void load_from(std::istream& stream, std::optional<Device> device = {});
  // Throw Error(kValue), listing the names, if there is no such tensor or archive.
  void read(const std::string& key, Tensor& value, bool is_buffer = false) const;
  void read(const std::string& key, InputArchive& value) const;
  // Return false instead.
  bool try_read(const std::string& key, Tensor& value, bool is_buffer = false) const;
  bool try_read(const std::string& key, InputArchive& value) const;
  std::vector<std::string> keys() const;  // names up to the first '.', without repetitions
  const nn::TensorMap& tensors() const { return tensors_; }

 private:
  nn::TensorMap tensors_;
};

// The destination of save(): a path or a stream.
class Target {
 public:
  Target(const char* path) : path_(path) {}             // NOLINT(google-explicit-constructor)
  Target(std::string path) : path_(std::move(path)) {}  // NOLINT(google-explicit-constructor)
  Target(std::ostream& stream) : stream_(&stream) {}    // NOLINT(google-explicit-constructor)
  void write(const nn::TensorMap& tensors) const;

 private:
  std::string path_;
  std::ostream* stream_ = nullptr;
};

// The source of load().
class Source {
 public:
  Source(const char* path) : path_(path) {}             // NOLINT(google-explicit-constructor)
  Source(std::string path) : path_(std::move(path)) {}  // NOLINT(google-explicit-constructor)
  Source(std::istream& stream) : stream_(&stream) {}    // NOLINT(google-explicit-constructor)
  nn::TensorMap read(std::optional<Device> device) const;

 private:
  std::string path_;
  std::istream* stream_ = nullptr;
};

template <class T>
concept Stateful = requires(T& value, const T& constant, const nn::TensorMap& state) {
  { constant.state_dict() } -> std::convertible_to<nn::TensorMap>;
  value.load_state_dict(state);
};

}  // namespace serialize

// Saves a tensor, or a list of them.
void save(const Tensor& tensor, const serialize::Target& target);
void save(const std::vector<Tensor>& tensors, const serialize::Target& target);
// Saves the state of a module, an optimizer, a schedule or a loader.
template <serialize::Stateful T>
void save(const T& value, const serialize::Target& target) {
  target.write(value.state_dict());
}
template <serialize::Stateful T>
void save(const std::shared_ptr<T>& value, const serialize::Target& target) {
  save(*value, target);
}

// Reads the only tensor of a file. Throws Error(kValue) if there are others.
void load(Tensor& tensor, const serialize::Source& source, std::optional<Device> device = {});
// Reads a list that save() wrote. Throws Error(kValue) for other names.
void load(std::vector<Tensor>& tensors, const serialize::Source& source,
          std::optional<Device> device = {});
// Loads a state. Values are copied to the device of `value`.
template <serialize::Stateful T>
void load(T& value, const serialize::Source& source, std::optional<Device> device = {}) {
  value.load_state_dict(source.read(device));
}
template <serialize::Stateful T>
void load(const std::shared_ptr<T>& value, const serialize::Source& source,
          std::optional<Device> device = {}) {
  load(*value, source, device);
}

}  // namespace mytorch
