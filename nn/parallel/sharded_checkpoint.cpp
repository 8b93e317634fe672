#include "mytorch/nn/parallel/sharded_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "nn/parallel/checkpoint_files.h"
#include "nn/parallel/checkpoint_parts.h"
#include "nn/parallel/tensor_place.h"

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

// The parts of a model to be filled. A parameter that modules share may have any of its names.
std::vector<TensorPart> parts_in(const CheckpointFiles& checkpoint,
                                 const FullyShardedDataParallel& model) {
  std::vector<TensorPart> parts = parts_of(model);
  for (const auto& shard : model.shards()) {
    const auto has = [&](const std::string& name) {
      return checkpoint.contains(checkpoint::kModelPrefix + name);
    };
    if (std::none_of(shard.names.begin(), shard.names.end(), has)) continue;
    const auto other_name = [&](const TensorPart& part) {
      return !checkpoint.contains(part.name) &&
             std::any_of(shard.names.begin(), shard.names.end(), [&](const std::string& name) {
               return part.name == checkpoint::kModelPrefix + name;
             });
    };
    parts.erase(std::remove_if(parts.begin(), parts.end(), other_name), parts.end());
  }
  return parts;
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

void load_sharded(const std::string& folder, FullyShardedDataParallel& model,
                  optim::Optimizer* optimizer) {
  const NoGradGuard no_grad;
  const CheckpointFiles checkpoint(folder);
  std::vector<TensorPart> parts = parts_in(checkpoint, model);
  TensorMap state;
  if (optimizer != nullptr) {
    const auto shards = model.shards();
    const std::vector<Tensor> parameters = optimizer->parameters();
    // A new optimizer has no state yet: the checkpoint says what it had.
    for_state(checkpoint, [&](const std::string& name, const SafetensorsFiles& files,
                              const std::string& key) {
      const SafetensorsFile::Entry& entry = files.entry(key);
      TensorPart part{std::string(kOptimizer) + name, entry.shape, TensorPart::kWhole, 0, 0, {}};
      std::vector<int64_t> sizes = entry.shape;
      if (const auto* shard = checkpoint::shard_of(name, parameters, shards);
          shard != nullptr && shard->sizes == entry.shape) {
        part.dim = TensorPart::kFlat;
        part.begin = shard->begin;
        part.end = shard->end;
        sizes = {shard->end - shard->begin};
      }
      part.tensor = mytorch::empty(sizes, entry.dtype);
      state[name] = part.tensor;
      parts.push_back(std::move(part));
    });
  }
  load(checkpoint, parts);
  if (optimizer != nullptr) optimizer->load_state_dict(state);
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
