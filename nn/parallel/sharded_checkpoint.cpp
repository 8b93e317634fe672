#include "mytorch/nn/parallel/sharded_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "nn/parallel/checkpoint_files.h"
#include "nn/parallel/checkpoint_parts.h"
#include "nn/parallel/tensor_place.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {
namespace {

using checkpoint::CheckpointFiles;
using checkpoint::Place;

// Reads the elements of a place of a tensor into `target`. Runs that lie close to each other are
// read together.
class PlaceReader {
 public:
  PlaceReader(const SafetensorsFiles& files, std::string name, int64_t width, char* target)
      : files_(files), name_(std::move(name)), width_(width), target_(target) {}

  void read(const Place& place) {
    const int64_t most = std::max<int64_t>(1, kBytes / width_);
    checkpoint::for_runs(place, [&](int64_t position, int64_t in_whole, int64_t n) {
      for (int64_t done = 0; done < n; done += most) {
        add({position - place.begin() + done, in_whole + done, std::min(most, n - done)});
      }
    });
    flush();
  }

 private:
  // Of one call, and between two runs of one.
  static constexpr int64_t kBytes = int64_t{8} << 20, kGap = int64_t{16} << 10;
  struct Run {
    int64_t position, in_whole, n;
  };

  void add(const Run& run) {
    if (!runs_.empty()) {
      const Run& last = runs_.back();
      const int64_t gap = run.in_whole - (last.in_whole + last.n);
      const int64_t all = run.in_whole + run.n - runs_.front().in_whole;
      if (gap * width_ > kGap || all * width_ > kBytes) flush();
    }
    runs_.push_back(run);
  }

  void flush() {
    if (runs_.empty()) return;
    const int64_t first = runs_.front().in_whole;
    const Tensor elements =
        files_.read(name_, first, runs_.back().in_whole + runs_.back().n - first);
    const auto* source = static_cast<const char*>(elements.raw_data());
    for (const Run& run : runs_) {
      std::memcpy(target_ + run.position * width_, source + (run.in_whole - first) * width_,
                  static_cast<size_t>(run.n * width_));
    }
    runs_.clear();
  }

  const SafetensorsFiles& files_;
  const std::string name_;
  const int64_t width_;
  char* const target_;
  std::vector<Run> runs_;
};

// Returns the elements of a part, in the part's shape and the file's type.
Tensor read_part(const CheckpointFiles& checkpoint, const TensorPart& part) {
  checkpoint::check_part(part);
  const auto [files, name] = checkpoint.find(part.name);
  const SafetensorsFile::Entry& entry = files->entry(name);
  if (entry.shape != checkpoint::whole_sizes(part)) {
    fail(ErrorCode::kShape, "[checkpoint] '", part.name, "' has shape ", shape_str(entry.shape),
         " in ", checkpoint.path(), " and ", shape_str(checkpoint::whole_sizes(part)), " here");
  }
  Tensor value = mytorch::empty(part.tensor.sizes(), entry.dtype);
  PlaceReader(*files, name, value.itemsize(), static_cast<char*>(value.data_ptr()))
      .read(Place(part));
  return value;
}

void load(const CheckpointFiles& checkpoint, const std::vector<TensorPart>& parts) {
  const NoGradGuard no_grad;
  std::vector<Tensor> values;
  for (const TensorPart& part : parts) {
    values.push_back(read_part(checkpoint, part).to(part.tensor.dtype()));
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].tensor.detach().copy_(values[i]);
}

// Leaves out the names that the checkpoint does not have of parameters that modules share, if it
// has another one.
void leave_out_names(std::vector<TensorPart>* parts, const CheckpointFiles& checkpoint,
                     const std::vector<std::string>& names) {
  const auto has = [&](const std::string& name) {
    return checkpoint.contains(checkpoint::kModelPrefix + name);
  };
  if (std::none_of(names.begin(), names.end(), has)) return;
  std::erase_if(*parts, [&](const TensorPart& part) {
    return !checkpoint.contains(part.name) &&
           std::any_of(names.begin(), names.end(), [&](const std::string& name) {
             return part.name == checkpoint::kModelPrefix + name;
           });
  });
}

constexpr std::string_view kOptimizer = "optimizer.";

// Calls `use` with the name of each tensor of an optimizer, without "optimizer.", the files that
// have it and its name there.
template <class F>
void for_state(const CheckpointFiles& checkpoint, F&& use) {
  for (const std::string& name : checkpoint.names()) {
    if (!name.starts_with(kOptimizer)) continue;
    const auto [files, key] = checkpoint.find(name);
    use(name.substr(kOptimizer.size()), *files, key);
  }
}

}  // namespace

bool has_checkpoint(const std::string& folder) { return checkpoint::has_checkpoint(folder); }

void load_parts(const std::string& folder, const std::vector<TensorPart>& parts) {
  load(CheckpointFiles(folder), parts);
}

namespace {

using checkpoint::Splits;

// The part of a model's state that belongs to a parameter, and the parameter's name.
struct StatePart {
  TensorPart part;
  std::string parameter;
};

// Loads the parts of a model and, unless it is null, the state of its optimizer. A new optimizer
// has no state yet: the checkpoint says what it had. `place` returns where this rank's part of a
// state of a shape lies, without its tensor.
template <class F>
void load_all(const CheckpointFiles& checkpoint, std::vector<TensorPart> parts,
              const Splits& splits, optim::Optimizer* optimizer, F&& place) {
  TensorMap state;
  if (optimizer != nullptr) {
    for_state(checkpoint, [&](const std::string& name, const SafetensorsFiles& files,
                              const std::string& key) {
      const SafetensorsFile::Entry& entry = files.entry(key);
      StatePart own = place(name, entry.shape);
      own.part.name = std::string(kOptimizer) + name;
      const bool flat = own.part.dim == TensorPart::kFlat;
      // Zeros, because a rank may have rows in place of which the whole tensor has none.
      own.part.tensor = mytorch::zeros(
          flat ? std::vector<int64_t>{own.part.end - own.part.begin} : own.part.sizes, entry.dtype);
      state[name] = own.part.tensor;
      checkpoint::append_part(&parts, splits, own.parameter, own.part);
    });
  }
  load(checkpoint, parts);
  if (optimizer != nullptr) optimizer->load_state_dict(state);
}

// Returns the sizes of a parameter of all ranks, given those of this one's.
std::vector<int64_t> sizes_of_all(const Splits& splits, const std::string& name,
                                  const std::vector<int64_t>& own) {
  const auto split = splits.find(name);
  return split == splits.end() ? own : parallel::whole_sizes(own, split->second.cut);
}

}  // namespace

void load_sharded(const std::string& folder, FullyShardedDataParallel& model,
                  optim::Optimizer* optimizer) {
  const NoGradGuard no_grad;
  const CheckpointFiles checkpoint(folder);
  const auto shards = model.shards();
  const Splits splits = parallel::split_parameters(model.module());
  const std::vector<Tensor> parameters =
      optimizer == nullptr ? std::vector<Tensor>() : optimizer->parameters();
  std::vector<TensorPart> parts = parts_of(model);
  for (const auto& shard : shards) leave_out_names(&parts, checkpoint, shard.names);
  load_all(checkpoint, std::move(parts), splits, optimizer,
           [&](const std::string& name, const std::vector<int64_t>& shape) -> StatePart {
             const auto* shard = checkpoint::shard_of(name, parameters, shards);
             if (shard == nullptr || sizes_of_all(splits, shard->name, shard->sizes) != shape) {
               return {{.name = "", .sizes = shape}, ""};
             }
             return {{.name = "",
                      .sizes = shard->sizes,
                      .dim = TensorPart::kFlat,
                      .begin = shard->begin,
                      .end = shard->end},
                     shard->name};
           });
}

void load_sharded(const std::string& folder, Module& module, optim::Optimizer* optimizer) {
  const NoGradGuard no_grad;
  const CheckpointFiles checkpoint(folder);
  const Splits splits = parallel::split_parameters(module);
  const NamedList<Tensor> named = module.named_parameters();
  const std::vector<Tensor> parameters =
      optimizer == nullptr ? std::vector<Tensor>() : optimizer->parameters();
  std::vector<TensorPart> parts = parts_of(module);
  std::map<const TensorImpl*, std::vector<std::string>> names;
  detail::ParameterAccess::visit(module, [&](const std::string& name, Tensor& member) {
    names[member.impl()].push_back(name);
  });
  for (const auto& [impl, all] : names) leave_out_names(&parts, checkpoint, all);
  load_all(checkpoint, std::move(parts), splits, optimizer,
           [&](const std::string& name, const std::vector<int64_t>& shape) -> StatePart {
             const std::string parameter = checkpoint::parameter_name(name, parameters, named);
             const Tensor* own = named.find(parameter);
             if (own == nullptr || sizes_of_all(splits, parameter, own->sizes().vec()) != shape) {
               return {{.name = "", .sizes = shape}, ""};
             }
             return {{.name = "", .sizes = own->sizes().vec()}, parameter};
           });
}

TensorMap detail::read_state(const std::string& folder, const std::vector<Tensor>& all,
                             const std::vector<Tensor>& own) {
  const CheckpointFiles checkpoint(folder);
  TensorMap state;
  for_state(checkpoint,
            [&](const std::string& name, const SafetensorsFiles& files, const std::string& key) {
              size_t number = 0;
              const bool others =
                  std::sscanf(name.c_str(), "parameter%zu.", &number) == 1 && number < all.size() &&
                  std::none_of(own.begin(), own.end(),
                               [&](const Tensor& tensor) { return tensor.is_same(all[number]); });
              if (!others) state[name] = files.load(key);
            });
  return state;
}

}  // namespace mytorch::nn
