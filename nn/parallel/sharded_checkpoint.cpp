#include "mytorch/nn/parallel/sharded_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/to.h"

namespace mytorch::nn {
namespace {

namespace files = std::filesystem;

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

// The sizes of a part's whole tensor.
const std::vector<int64_t>& whole_sizes(const TensorPart& part) {
  return part.outer_sizes.empty() ? part.sizes : part.outer_sizes;
}

// Where a part's elements lie among those of the whole tensor: at the positions [begin, end) of a
// block, both in row-major order. The elements of a block are runs of neighbors, in ascending
// order.
class Place {
 public:
  explicit Place(const TensorPart& part)
      : sizes_(whole_sizes(part)), origin_(part.origin), extent_(part.sizes) {
    origin_.resize(sizes_.size());
    if (part.dim >= 0) {
      const auto dim = static_cast<size_t>(part.dim);
      origin_[dim] += part.begin;
      extent_[dim] = part.end - part.begin;
    }
    begin_ = part.dim == TensorPart::kFlat ? part.begin : 0;
    end_ = part.dim == TensorPart::kFlat ? part.end : product(extent_);
    // A run goes over the dimensions from run_dim_ on.
    run_dim_ = sizes_.size();
    while (run_dim_ > 0) {
      run_ *= extent_[--run_dim_];
      if (extent_[run_dim_] != sizes_[run_dim_]) break;
    }
  }

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t numel() const { return end_ - begin_; }
  // The elements from a position on that are neighbors.
  int64_t run_at(int64_t position) const {
    return std::min(run_ - position % run_, end_ - position);
  }
  // Returns the position in the whole tensor.
  int64_t in_whole(int64_t position) const {
    int64_t place = position % run_, row = position / run_, stride = 1;
    for (size_t dim = sizes_.size(); dim-- > 0;) {
      int64_t index = origin_[dim];
      if (dim < run_dim_) {
        index += row % extent_[dim];
        row /= extent_[dim];
      }
      place += index * stride;
      stride *= sizes_[dim];
    }
    return place;
  }

 private:
  std::vector<int64_t> sizes_, origin_, extent_;
  int64_t begin_, end_, run_ = 1;
  size_t run_dim_;
};

// Calls `common` with the positions in both parts of the elements that they have in common, and how
// many follow each other, until it returns false.
template <class F>
void for_common(const Place& from, const Place& to, F&& common) {
  for (int64_t i = from.begin(), j = to.begin(); i < from.end() && j < to.end();) {
    const int64_t n = from.run_at(i), m = to.run_at(j);
    const int64_t a = from.in_whole(i), b = to.in_whole(j);
    const int64_t first = std::max(a, b), last = std::min(a + n, b + m);
    if (first < last && !common(i + first - a, j + first - b, last - first)) return;
    if (a + n <= b + m) {
      i += n;
    } else {
      j += m;
    }
  }
}

// Copies the elements that two parts of a tensor have in common. Returns their number.
int64_t copy_common(const Place& from, const char* source, const Place& to, char* target,
                    int64_t width) {
  int64_t copied = 0;
  for_common(from, to, [&](int64_t i, int64_t j, int64_t n) {
    std::memcpy(target + (j - to.begin()) * width, source + (i - from.begin()) * width,
                static_cast<size_t>(n * width));
    copied += n;
    return true;
  });
  return copied;
}

bool overlap(const Place& from, const Place& to) {
  bool found = false;
  for_common(from, to, [&](int64_t, int64_t, int64_t) {
    found = true;
    return false;
  });
  return found;
}

// Throws for a block that is not within its tensor.
void check_block(const TensorPart& part) {
  if (part.outer_sizes.empty() && part.origin.empty()) return;
  bool within =
      part.outer_sizes.size() == part.sizes.size() && part.origin.size() == part.sizes.size();
  for (size_t dim = 0; within && dim < part.sizes.size(); ++dim) {
    within = part.origin[dim] >= 0 && part.sizes[dim] <= part.outer_sizes[dim] &&
             part.origin[dim] <= part.outer_sizes[dim] - part.sizes[dim];
  }
  if (!within) {
    fail(ErrorCode::kValue, "[checkpoint] '", part.name, "' of shape ", shape_str(part.outer_sizes),
         " has no block of shape ", shape_str(part.sizes), " at ", shape_str(part.origin));
  }
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
  check_block(part);
  const int64_t numel = Place(part).numel();
  if (!part.tensor.defined() || part.tensor.numel() != numel) {
    fail(ErrorCode::kShape, "[checkpoint] the part of '", part.name, "' has ",
         part.tensor.defined() ? part.tensor.numel() : 0, " elements, and its place ", numel);
  }
}

void check_parts(const std::vector<TensorPart>& parts) {
  std::set<std::string> names;
  for (const TensorPart& part : parts) {
    check_part(part);
    if (names.insert(part.name).second) continue;
    fail(ErrorCode::kValue, "[checkpoint] there are two parts named '", part.name,
         "', and a rank's file holds one: join them, or name them differently");
  }
}

std::string place_text(const TensorPart& part) {
  std::string text = absl::StrCat(part.dim, " ", part.begin, " ", part.end);
  for (const int64_t size : part.sizes) absl::StrAppend(&text, " ", size);
  if (part.outer_sizes.empty()) return text;
  text += " of";
  for (const int64_t size : part.outer_sizes) absl::StrAppend(&text, " ", size);
  text += " at";
  for (const int64_t begin : part.origin) absl::StrAppend(&text, " ", begin);
  return text;
}

// Reads what place_text() has written. Returns whether it is whole.
bool read_place(const std::string& text, TensorPart* part) {
  std::istringstream in(text);
  in >> part->dim >> part->begin >> part->end;
  if (!in) return false;
  std::vector<int64_t>* numbers = &part->sizes;
  for (std::string word; in >> word;) {
    if (word == "of") {
      numbers = &part->outer_sizes;
    } else if (word == "at") {
      numbers = &part->origin;
    } else {
      int64_t number = 0;
      if (!absl::SimpleAtoi(word, &number)) return false;
      numbers->push_back(number);
    }
  }
  return true;
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
      if (!read_place(text, &part) || !file->contains(tensor)) {
        fail(ErrorCode::kIo, "[checkpoint] ", name, " says '", text, "' about '", tensor,
             "', and not where it belongs");
      }
      check_block(part);
      pieces[tensor].push_back({std::move(part), file});
    }
  }
  return pieces;
}

int64_t hash_of(std::string_view bytes) {
  return static_cast<int64_t>(std::hash<std::string_view>()(bytes));
}

int64_t hash_of(const Tensor& tensor) {
  const Tensor host = tensor.detach().to(kCPU).contiguous();
  const int64_t type = static_cast<int64_t>(host.dtype());
  const auto* bytes = static_cast<const char*>(host.raw_data());
  return hash_of({bytes, static_cast<size_t>(host.nbytes())}) ^ type;
}

// The numbers that the ranks of a group have, one for each of their parts.
class NumbersOfRanks {
 public:
  NumbersOfRanks(const distributed::Group& group, size_t parts) : group_(group) {
    const Tensor mine = mytorch::full({1}, static_cast<int64_t>(parts), kInt64);
    const Tensor counts = mytorch::empty({group.size()}, kInt64, group.device());
    group.all_gather(counts, mine.to(group.device()));
    rows_ = counts.to_vector<int64_t>();
  }
  // Returns the numbers of each rank, `each` for each part.
  std::vector<std::vector<int64_t>> gather(const std::vector<int64_t>& numbers,
                                           int64_t each = 1) const {
    const Tensor mine = mytorch::empty({static_cast<int64_t>(numbers.size())}, kInt64);
    std::copy(numbers.begin(), numbers.end(), mine.data<int64_t>());
    std::vector<int64_t> rows = rows_;
    for (int64_t& n : rows) n *= each;
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const Tensor all = mytorch::empty({total}, kInt64, group_.device());
    group_.all_gather_v(all, mine.to(group_.device()), rows);
    const std::vector<int64_t> found = all.to_vector<int64_t>();
    std::vector<std::vector<int64_t>> result;
    auto at = found.begin();
    for (const int64_t n : rows) {
      result.emplace_back(at, at + n);
      at += n;
    }
    return result;
  }

 private:
  const distributed::Group& group_;
  std::vector<int64_t> rows_;
};

// Which parts this rank is the first to have. `error` says which of the others has other elements
// than the first rank, if one does: only one rank's would be written.
std::vector<bool> mine_to_write(const std::vector<TensorPart>& parts,
                                const distributed::Group& group, std::string* error) {
  const NumbersOfRanks ranks(group, parts.size());
  std::vector<int64_t> places;
  for (const TensorPart& part : parts) {
    places.push_back(hash_of(absl::StrCat(part.name, "\n", place_text(part))));
  }
  struct Owner {
    int rank;
    size_t number;  // of its part
    bool alone = true;
  };
  std::map<int64_t, Owner> owners;  // by place
  const std::vector<std::vector<int64_t>> all = ranks.gather(places);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::vector<int64_t>& found = all[static_cast<size_t>(rank)];
    for (size_t i = 0; i < found.size(); ++i) {
      const auto [owner, is_new] = owners.try_emplace(found[i], Owner{rank, i});
      if (!is_new) owner->second.alone = false;
    }
  }
  // Parts of one name are of one tensor.
  std::vector<int64_t> named;
  for (const TensorPart& part : parts) {
    named.push_back(hash_of(part.name));
    named.push_back(hash_of(shape_str(whole_sizes(part))));
  }
  const std::vector<std::vector<int64_t>> names = ranks.gather(named, 2);
  std::map<int64_t, std::pair<int64_t, int>> first;  // the sizes of a name, and the rank
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::vector<int64_t>& found = names[static_cast<size_t>(rank)];
    for (size_t i = 0; i < found.size(); i += 2) first.try_emplace(found[i], found[i + 1], rank);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [sizes, rank] = first.at(named[2 * i]);
    if (sizes == named[2 * i + 1] || !error->empty()) continue;
    *error = absl::StrCat("[checkpoint] '", parts[i].name, "' has other sizes on rank ",
                          group.rank(), ", ", shape_str(whole_sizes(parts[i])), ", than on rank ",
                          rank, ": name tensors of different modules differently");
  }
  std::vector<int64_t> elements;
  for (size_t i = 0; i < parts.size(); ++i) {
    elements.push_back(owners.at(places[i]).alone ? 0 : hash_of(parts[i].tensor));
  }
  const std::vector<std::vector<int64_t>> of_ranks = ranks.gather(elements);
  std::vector<bool> mine;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Owner& owner = owners.at(places[i]);
    mine.push_back(owner.rank == group.rank());
    if (elements[i] == of_ranks[static_cast<size_t>(owner.rank)][owner.number]) continue;
    if (error->empty()) {
      *error = absl::StrCat(
          "[checkpoint] '", parts[i].name, "' has the same place (", place_text(parts[i]),
          ") on ranks ", owner.rank, " and ", group.rank(),
          " and other elements: say by block_of() which blocks of the tensor they are, name them "
          "differently, or, if they should be equal, broadcast them");
    }
  }
  return mine;
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

TensorPart block_of(TensorPart part, int64_t dim, int64_t begin, int64_t size) {
  if (dim < 0 || dim >= static_cast<int64_t>(part.sizes.size())) {
    fail(ErrorCode::kValue, "[block_of] dim is ", dim, ", and '", part.name, "' has shape ",
         shape_str(part.sizes), ": give one of its dimensions, from 0");
  }
  if (part.outer_sizes.empty()) part.outer_sizes = part.sizes;
  part.origin.resize(part.sizes.size());
  part.outer_sizes[static_cast<size_t>(dim)] = size;
  part.origin[static_cast<size_t>(dim)] += begin;
  check_block(part);
  return part;
}

void save_parts(const std::string& folder, const std::vector<TensorPart>& parts,
                const distributed::Group& given) {
  const NoGradGuard no_grad;
  const distributed::Group group = given.defined() ? given : distributed::world();
  const std::string fresh = folder + ".new", old = folder + ".old";
  agree(group, error_of([&] {
          check_parts(parts);
          if (group.rank() != 0) return;
          files::remove_all(fresh);
          files::create_directories(fresh);
        }),
        folder);
  std::string differs;
  const std::vector<bool> mine = mine_to_write(parts, group, &differs);
  agree(group, differs, folder);
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
    const Place to(part);
    const Tensor value = mytorch::empty(part.tensor.sizes(), part.tensor.dtype());
    int64_t copied = 0;
    for (const Piece& piece : found->second) {
      if (whole_sizes(piece.part) != whole_sizes(part)) {
        fail(ErrorCode::kShape, "[checkpoint] '", part.name, "' has shape ",
             shape_str(whole_sizes(piece.part)), " in ", folder, " and ",
             shape_str(whole_sizes(part)), " here");
      }
      const Place from(piece.part);
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
                  const optim::Optimizer* optimizer, const distributed::Group& given) {
  const distributed::Group group = given.defined() ? given : model.group();
  const int all = distributed::world().size();
  if (!given.defined() && group.size() < all) {
    fail(ErrorCode::kValue, "[save_sharded] the model's group has ", group.size(), " of the ", all,
         " ranks, and another group might write ", folder,
         " as well: pass the group of all ranks that write it, distributed::world(), or the "
         "model's group if it writes alone");
  }
  std::vector<TensorPart> parts = parts_of(model);
  if (optimizer != nullptr) {
    for (TensorPart& part : parts_of(*optimizer, model)) parts.push_back(std::move(part));
  }
  save_parts(folder, parts, group);
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
