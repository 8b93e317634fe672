// Saving and resuming a whole training run.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

// Something whose state a checkpoint holds: optimizers, schedules and data loaders are such parts.
// load_state_dict throws, and changes nothing, if the state does not fit.
template <class T>
concept StatefulPart =
    !std::is_base_of_v<Module, T> && requires(T & part, const T& same, const TensorMap& state) {
  { same.state_dict() } -> std::same_as<TensorMap>;
  part.load_state_dict(state);
};

struct CheckpointOptions {
  int64_t keep = 3;                   // number of files to keep; save() deletes older ones
  std::string prefix = "checkpoint";  // of the files' names: PREFIX-STEP.safetensors
};

// What a checkpoint file says about itself.
struct CheckpointInfo {
  std::string path;
  int64_t step = 0;
  Metadata metadata;  // as given to save()
};

// Keeps the state of a training run in one safetensors file per step:
//
//   nn::Checkpoint checkpoint("runs/resnet");
//   checkpoint.add("model", model).add("optimizer", adam).add("schedule", schedule)
//       .add("loader", loader).add("generator", default_generator());
//   int64_t step = 0;
//   if (const auto found = checkpoint.load_latest()) step = found->step;
//   ...
//   checkpoint.save(step, {{"accuracy", "0.93"}});
//
// A run that is resumed from a file computes the same bits as one that was never interrupted, given
// the same program and backends. The parts must outlive this object.
class Checkpoint {
 public:
  // Throws Error(kValue) for invalid options.
  explicit Checkpoint(std::string directory, CheckpointOptions options = {});

  // Add a part under a unique name without '.'. Throws Error(kValue) for other names.
  Checkpoint& add(std::string name, Module& module);
  Checkpoint& add(std::string name, Generator generator);
  template <StatefulPart Part>
  Checkpoint& add(std::string name, Part& part) {
    return add_part({std::move(name), [&part] { return std::as_const(part).state_dict(); },
                     [&part](const TensorMap& state) { part.load_state_dict(state); }, false});
  }

  // Writes the parts to a file, which appears completely or not at all, then deletes old files.
  // Returns its path. Makes the directory if it is missing. Throws Error(kIo).
  std::string save(int64_t step, const Metadata& metadata = {}) const;

  // Reads a file and sets all parts. Throws, and changes no part, if the file is damaged (kIo) or
  // does not fit the parts (kValue, naming the differing keys).
  CheckpointInfo load(const std::string& path) const;
  // Loads the file of the highest step; returns nothing if there is none.
  std::optional<CheckpointInfo> load_latest() const;

  // Returns the paths of the files, by increasing step.
  std::vector<std::string> paths() const;

 private:
  struct Part {
    std::string name;
    std::function<TensorMap()> state;
    std::function<void(const TensorMap&)> load;
    bool is_module;
  };
  Checkpoint& add_part(Part part);

  std::string directory_;
  CheckpointOptions options_;
  std::vector<Part> parts_;
};

}  // namespace mytorch::nn
