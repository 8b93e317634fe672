#include "mytorch/nn/parallel/sharded_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"

namespace mytorch::nn {
namespace {

namespace files = std::filesystem;

int64_t product(const std::vector<int64_t>& sizes, size_t from = 0) {
  int64_t n = 1;
  for (size_t i = from; i < sizes.size(); ++i) n *= sizes[i];
  return n;
}

// Where a part's elements lie among those of the whole tensor, in row-major order: `count` runs of
// `length` elements, the first at `first`, each `stride` after the one before.
struct Runs {
  int64_t count, length, first, stride;
  int64_t numel() const { return count * length; }
};
Runs runs_of(const TensorPart& part) {
  const int64_t all = product(part.sizes);
  if (part.dim == TensorPart::kWhole) return {1, all, 0, all};
  if (part.dim == TensorPart::kFlat) return {1, part.end - part.begin, part.begin, all};
  const auto dim = static_cast<size_t>(part.dim);
  const int64_t inner = product(part.sizes, dim + 1), row = part.sizes[dim] * inner;
  return {row == 0 ? 0 : all / row, (part.end - part.begin) * inner, part.begin * inner, row};
}

// Copies the elements that two parts of a tensor have in common. Returns their number.
int64_t copy_common(const Runs& from, const char* source, const Runs& to, char* target,
                    int64_t width) {
  int64_t copied = 0;
  for (int64_t i = 0, j = 0; i < from.count && j < to.count;) {
    const int64_t a = from.first + i * from.stride, b = to.first + j * to.stride;
    const int64_t begin = std::max(a, b), end = std::min(a + from.length, b + to.length);
    if (begin < end) {
      std::memcpy(target + (j * to.length + begin - b) * width,
                  source + (i * from.length + begin - a) * width,
                  static_cast<size_t>((end - begin) * width));
      copied += end - begin;
    }
    if (a + from.length <= b + to.length) {
      ++i;
    } else {
      ++j;
    }
  }
  return copied;
}

bool overlap(const Runs& from, const Runs& to) {
  for (int64_t i = 0, j = 0; i < from.count && j < to.count;) {
    const int64_t a = from.first + i * from.stride, b = to.first + j * to.stride;
    if (std::max(a, b) < std::min(a + from.length, b + to.length)) return true;
    if (a + from.length <= b + to.length) {
      ++i;
    } else {
      ++j;
    }
  }
  return false;
}

void check_part(const TensorPart& part) {
  const auto dims = static_cast<int64_t>(part.sizes.size());
  const int64_t most = part.dim == TensorPart::kFlat ? product(part.sizes)
                       : part.dim >= 0 && part.dim < dims
                           ? part.sizes[static_cast<size_t>(part.dim)]
                           : 0;
  const bool whole = part.dim == TensorPart::kWhole;
  if (part.dim < TensorPart::kWhole || part.dim >= dims ||
      (!whole && (part.begin < 0 || part.begin > part.end || part.end > most))) {
    fail(ErrorCode::kValue, "[checkpoint] '", part.name, "' of shape ", shape_str(part.sizes),
         " has no part [", part.begin, ", ", part.end, ") of dimension ", part.dim);
  }
  if (!part.tensor.defined() || part.tensor.numel() != runs_of(part).numel()) {
    fail(ErrorCode::kShape, "[checkpoint] the part of '", part.name, "' has ",
         part.tensor.defined() ? part.tensor.numel() : 0, " elements, and its place ",
         runs_of(part).numel());
  }
}

std::string place_text(const TensorPart& part) {
  std::string text = absl::StrCat(part.dim, " ", part.begin, " ", part.end);
  for (const int64_t size : part.sizes) absl::StrAppend(&text, " ", size);
  return text;
}

// What a file has, without its elements.
struct Piece {
  TensorPart part;
  std::shared_ptr<const SafetensorsFile> file;
};

std::string existing(const std::string& folder) {
  // Where a replacement was cut off, the earlier one still exists.
  if (!files::is_directory(folder) && files::is_directory(folder + ".old")) return folder + ".old";
  return folder;
}

std::map<std::string, std::vector<Piece>> pieces_of(const std::string& given) {
  const std::string folder = existing(given);
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : files::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().string());
  }
  if (error || names.empty()) {
    fail(ErrorCode::kIo, "[checkpoint] ", folder, " is no checkpoint",
         error ? absl::StrCat(": ", error.message()) : ": it has no .safetensors files");
  }
  std::sort(names.begin(), names.end());
  std::map<std::string, std::vector<Piece>> pieces;
  for (const std::string& name : names) {
    const auto file = std::make_shared<const SafetensorsFile>(name);
    for (const auto& [tensor, text] : file->metadata()) {
      TensorPart part;
      part.name = tensor;
      std::istringstream in(text);
      in >> part.dim >> part.begin >> part.end;
      if (!in || !file->contains(tensor)) {
        fail(ErrorCode::kIo, "[checkpoint] ", name, " says '", text, "' about '", tensor,
             "', and not where it belongs");
      }
      for (int64_t size; in >> size;) part.sizes.push_back(size);
      pieces[tensor].push_back({std::move(part), file});
    }
  }
  return pieces;
}

// Whether this rank is the first that has a part.
std::vector<bool> mine_to_write(const std::vector<TensorPart>& parts,
                                const distributed::Group& group) {
  const Tensor hashes = mytorch::empty({static_cast<int64_t>(parts.size())}, kInt64);
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t hash =
        std::hash<std::string>()(absl::StrCat(parts[i].name, "\n", place_text(parts[i])));
    hashes.data<int64_t>()[i] = static_cast<int64_t>(hash);
  }
  const Tensor mine = mytorch::empty({1}, kInt64);
  mine.data<int64_t>()[0] = static_cast<int64_t>(parts.size());
  const Tensor counts = mytorch::empty({group.size()}, kInt64, group.device());
  group.all_gather(counts, mine.to(group.device()));
  const std::vector<int64_t> rows = counts.to_vector<int64_t>();
  int64_t total = 0;
  for (const int64_t n : rows) total += n;
  const Tensor all = mytorch::empty({total}, kInt64, group.device());
  group.all_gather_v(all, hashes.to(group.device()), rows);
  const std::vector<int64_t> found = all.to_vector<int64_t>();
  std::set<int64_t> before;
  int64_t at = 0;
  for (int rank = 0; rank < group.rank(); ++rank) {
    before.insert(found.begin() + at, found.begin() + at + rows[static_cast<size_t>(rank)]);
    at += rows[static_cast<size_t>(rank)];
  }
  std::vector<bool> result;
  for (size_t i = 0; i < parts.size(); ++i) {
    result.push_back(before.count(hashes.data<int64_t>()[i]) == 0);
  }
  return result;
}

// Throws on all ranks if one has an error: its own, or that another one failed.
void agree(const distributed::Group& group, const std::string& error, const std::string& folder) {
  const Tensor failed = mytorch::empty({1}, kInt32);
  failed.data<int32_t>()[0] = error.empty() ? group.size() : group.rank();
  const Tensor first = failed.to(group.device());
  group.all_reduce(first, {distributed::ReduceOp::kMin});
  const int32_t rank = first.item<int32_t>();
  if (!error.empty()) throw Error(ErrorCode::kIo, error);
  if (rank == group.size()) return;
  fail(ErrorCode::kIo, "[checkpoint] rank ", rank, " could not write its part of ", folder,
       ": nothing was saved; its message says why");
}

// Returns the shard that an optimizer's state, such as "parameter3.exp_avg", belongs to; null for
// numbers.
const FullyShardedDataParallel::Shard* shard_of(
    const std::string& name, const std::vector<Tensor>& parameters,
    const std::vector<FullyShardedDataParallel::Shard>& shards) {
  size_t number = 0;
  if (std::sscanf(name.c_str(), "parameter%zu.", &number) != 1 || number >= parameters.size() ||
      name.ends_with(".step")) {
    return nullptr;
  }
  for (const auto& shard : shards) {
    if (shard.tensor.is_same(parameters[number])) return &shard;
  }
  return nullptr;
}

template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

std::vector<TensorPart> parts_of(const Module& module) {
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : module.state_dict()) {
    parts.push_back(
        {absl::StrCat("model.", name), tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor});
  }
  return parts;
}

std::vector<TensorPart> parts_of(const FullyShardedDataParallel& model) {
  std::vector<TensorPart> parts;
  std::set<std::string> split;
  for (const auto& shard : model.shards()) {
    for (const std::string& name : shard.names) {
      split.insert(name);
      parts.push_back({absl::StrCat("model.", name), shard.sizes, TensorPart::kFlat, shard.begin,
                       shard.end, shard.tensor.detach()});
    }
  }
  for (const auto& [name, tensor] : model.module().state_dict()) {
    if (split.count(name) != 0) continue;
    parts.push_back(
        {absl::StrCat("model.", name), tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor});
  }
  return parts;
}

std::vector<TensorPart> parts_of(const optim::Optimizer& optimizer,
                                 const FullyShardedDataParallel& model) {
  const auto shards = model.shards();
  const std::vector<Tensor> parameters = optimizer.parameters();
  std::vector<TensorPart> parts;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    TensorPart part{
        absl::StrCat("optimizer.", name), tensor.sizes().vec(), TensorPart::kWhole, 0, 0, tensor};
    if (const auto* shard = shard_of(name, parameters, shards);
        shard != nullptr && tensor.sizes() == shard->tensor.sizes()) {
      part = {part.name, shard->sizes, TensorPart::kFlat, shard->begin, shard->end, tensor};
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void save_parts(const std::string& folder, const std::vector<TensorPart>& parts,
                const distributed::Group& given) {
  const NoGradGuard no_grad;
  const distributed::Group group = given.defined() ? given : distributed::world();
  const std::string fresh = folder + ".new", old = folder + ".old";
  agree(group, error_of([&] {
          for (const TensorPart& part : parts) check_part(part);
          if (group.rank() != 0) return;
          files::remove_all(fresh);
          files::create_directories(fresh);
        }),
        folder);
  const std::vector<bool> mine = mine_to_write(parts, group);
  agree(group, error_of([&] {
          TensorMap tensors;
          Metadata metadata;
          for (size_t i = 0; i < parts.size(); ++i) {
            if (!mine[i]) continue;
            tensors[parts[i].name] = parts[i].tensor.detach();
            metadata[parts[i].name] = place_text(parts[i]);
          }
          char name[64];
          std::snprintf(name, sizeof(name), "/part-%05d-of-%05d.safetensors", group.rank(),
                        group.size());
          save_safetensors(fresh + name, tensors, metadata);
        }),
        folder);
  agree(group, error_of([&] {
          if (group.rank() != 0) return;
          if (files::is_directory(folder)) {
            files::remove_all(old);
            files::rename(folder, old);
          }
          files::rename(fresh, folder);
          files::remove_all(old);
        }),
        folder);
}

void load_parts(const std::string& folder, const std::vector<TensorPart>& parts) {
  const NoGradGuard no_grad;
  const auto pieces = pieces_of(folder);
  std::vector<Tensor> values;
  for (const TensorPart& part : parts) {
    check_part(part);
    const auto found = pieces.find(part.name);
    if (found == pieces.end()) {
      fail(ErrorCode::kValue, "[checkpoint] ", folder, " has no '", part.name, "'");
    }
    const Runs to = runs_of(part);
    const Tensor value = mytorch::empty(part.tensor.sizes(), part.tensor.dtype());
    int64_t copied = 0;
    for (const Piece& piece : found->second) {
      if (piece.part.sizes != part.sizes) {
        fail(ErrorCode::kShape, "[checkpoint] '", part.name, "' has shape ",
             shape_str(piece.part.sizes), " in ", folder, " and ", shape_str(part.sizes), " here");
      }
      const Runs from = runs_of(piece.part);
      if (!overlap(from, to)) continue;
      const Tensor source = piece.file->load(part.name).to(value.dtype());
      if (source.numel() != from.numel()) {
        fail(ErrorCode::kIo, "[checkpoint] a part of '", part.name, "' in ", folder, " has ",
             source.numel(), " elements, and its place ", from.numel());
      }
      copied += copy_common(from, static_cast<const char*>(source.raw_data()), to,
                            static_cast<char*>(value.data_ptr()), value.itemsize());
    }
    if (copied < to.numel()) {
      fail(ErrorCode::kIo, "[checkpoint] ", folder, " has ", copied, " of the ", to.numel(),
           " elements of this rank's part of '", part.name, "': a file is missing");
    }
    values.push_back(value);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].tensor.detach().copy_(values[i].view(parts[i].tensor.sizes()));
  }
}

void save_sharded(const std::string& folder, const FullyShardedDataParallel& model,
                  const optim::Optimizer* optimizer) {
  std::vector<TensorPart> parts = parts_of(model);
  if (optimizer != nullptr) {
    for (TensorPart& part : parts_of(*optimizer, model)) parts.push_back(std::move(part));
  }
  save_parts(folder, parts, model.group());
}

void load_sharded(const std::string& folder, FullyShardedDataParallel& model,
                  optim::Optimizer* optimizer) {
  const NoGradGuard no_grad;
  std::vector<TensorPart> parts = parts_of(model);
  TensorMap state;
  if (optimizer != nullptr) {
    const auto shards = model.shards();
    const std::vector<Tensor> parameters = optimizer->parameters();
    const std::string prefix = "optimizer.";
    // A new optimizer has no state yet: the checkpoint says what it had.
    for (const auto& [name, pieces] : pieces_of(folder)) {
      if (!name.starts_with(prefix)) continue;
      const TensorPart& there = pieces[0].part;
      const auto& entries = pieces[0].file->entries();
      const auto entry = std::find_if(entries.begin(), entries.end(),
                                      [&, key = name](const auto& e) { return e.name == key; });
      TensorPart part{name, there.sizes, TensorPart::kWhole, 0, 0, {}};
      std::vector<int64_t> sizes = there.sizes;
      if (const auto* shard = shard_of(name.substr(prefix.size()), parameters, shards);
          shard != nullptr && there.dim != TensorPart::kWhole) {
        part.dim = TensorPart::kFlat;
        part.begin = shard->begin;
        part.end = shard->end;
        sizes = {shard->end - shard->begin};
      }
      part.tensor = mytorch::empty(sizes, entry->dtype);
      state[name.substr(prefix.size())] = part.tensor;
      parts.push_back(std::move(part));
    }
  }
  load_parts(folder, parts);
  if (optimizer != nullptr) optimizer->load_state_dict(state);
}

}  // namespace mytorch::nn
