#include "nn/parallel/checkpoint_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/device_memory.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "nn/parallel/tensor_place.h"

namespace mytorch::nn::checkpoint {
namespace {

using distributed::Group;

// Returns what each rank passes. Collective.
std::vector<std::string> gather_text(const Group& group, const std::string& mine) {
  const Tensor length = mytorch::empty({1}, kInt64);
  length.data<int64_t>()[0] = static_cast<int64_t>(mine.size());
  const Tensor lengths = mytorch::empty({group.size()}, kInt64, group.device());
  group.all_gather(lengths, length.to(group.device()));
  const std::vector<int64_t> rows = lengths.to_vector<int64_t>();
  const Tensor bytes = mytorch::empty({static_cast<int64_t>(mine.size())}, kUInt8);
  if (!mine.empty()) std::memcpy(bytes.data_ptr(), mine.data(), mine.size());
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const Tensor all = mytorch::empty({total}, kUInt8, group.device());
  group.all_gather_v(all, bytes.to(group.device()), rows);
  const Tensor host = all.to(kCPU);
  const auto* next = static_cast<const char*>(host.raw_data());
  std::vector<std::string> texts;
  for (const int64_t n : rows) {
    texts.emplace_back(next, static_cast<size_t>(n));
    next += n;
  }
  return texts;
}

void check_parts(const std::vector<TensorPart>& parts) {
  std::set<std::string> names, places;
  for (const TensorPart& part : parts) {
    check_part(part);
    if (part.name.find('\0') != std::string::npos) {
      fail(ErrorCode::kValue, "[checkpoint] the name '", part.name, "' has a zero byte");
    }
    // A rank may have several parts of a tensor.
    if (places.insert(absl::StrCat(part.name, std::string(1, '\0'), place_text(part))).second)
      continue;
    fail(ErrorCode::kValue, "[checkpoint] there are two parts named '", part.name,
         "' of the same place: name them differently");
  }
}

// A part of any rank, as the ranks tell each other.
struct Described {
  std::string name, place;
  ScalarType dtype;
};

std::string describe(const std::vector<TensorPart>& parts) {
  std::string text;
  for (const TensorPart& part : parts) {
    text += part.name + '\0';
    text += absl::StrCat(place_text(part), " ", static_cast<int>(part.tensor.dtype())) + '\0';
  }
  return text;
}

std::vector<Described> described(const std::string& text) {
  std::vector<Described> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t name = text.find('\0', at), end = text.find('\0', name + 1);
    const size_t type = text.rfind(' ', end);
    parts.push_back({text.substr(at, name - at), text.substr(name + 1, type - name - 1),
                     static_cast<ScalarType>(std::stoi(text.substr(type + 1, end - type - 1)))});
    at = end + 1;
  }
  return parts;
}

// Adds a part of a rank to what is known of its tensor. `error`, if this rank has it, says how it
// contradicts the others.
void add(std::map<std::string, PlannedTensor>* tensors, const Described& part, int rank,
         size_t number, std::string* error) {
  TensorPart place = read_place(part.place);
  place.name = part.name;
  const auto [found, is_new] =
      tensors->try_emplace(part.name, PlannedTensor{part.name, part.dtype, whole_sizes(place), {}});
  PlannedTensor& tensor = found->second;
  if (whole_sizes(place) != tensor.sizes || part.dtype != tensor.dtype) {
    if (error == nullptr || !error->empty()) return;
    const int first = tensor.pieces.front().holders.front().rank;
    const bool sizes = whole_sizes(place) != tensor.sizes;
    *error = absl::StrCat("[checkpoint] '", part.name, "' has ",
                          sizes ? "other sizes" : "another type", " on rank ", rank, ", ",
                          sizes ? shape_str(whole_sizes(place)) : dtype_name(part.dtype),
                          ", than on rank ", first,
                          sizes ? ": name tensors of different modules differently"
                                : ": convert one of them, or name them differently");
    return;
  }
  for (Piece& piece : tensor.pieces) {
    if (place_text(piece.place) != part.place) continue;
    piece.holders.push_back({rank, number});
    return;
  }
  tensor.pieces.push_back({std::move(place), {{rank, number}}});
}

int64_t hash_of(const Tensor& tensor) {
  const Tensor host = tensor.detach().to(kCPU).contiguous();
  const std::string_view bytes(static_cast<const char*>(host.raw_data()),
                               static_cast<size_t>(host.nbytes()));
  return static_cast<int64_t>(std::hash<std::string_view>()(bytes));
}

// Says which of this rank's parts has other elements than the first rank with the same part: only
// one rank's are written. Collective.
std::string difference(const std::map<std::string, PlannedTensor>& tensors,
                       const std::vector<TensorPart>& parts, const Group& group) {
  std::vector<int64_t> hashes(parts.size());
  std::string error = error_of([&] {
    for (const auto& [name, tensor] : tensors) {
      for (const Piece& piece : tensor.pieces) {
        const Piece::Holder* own = piece.holder(group.rank());
        if (own == nullptr || piece.holders.size() == 1) continue;
        hashes[own->part] = hash_of(parts[own->part].tensor);
      }
    }
  });
  const auto* bytes = reinterpret_cast<const char*>(hashes.data());
  const std::vector<std::string> all = gather_text(group, {bytes, hashes.size() * sizeof(int64_t)});
  const auto hash = [&](const Piece::Holder& holder) {
    int64_t value = 0;
    std::memcpy(&value,
                all[static_cast<size_t>(holder.rank)].data() + holder.part * sizeof(int64_t),
                sizeof(value));
    return value;
  };
  for (const auto& [name, tensor] : tensors) {
    for (const Piece& piece : tensor.pieces) {
      const Piece::Holder* own = piece.holder(group.rank());
      if (own == nullptr || !error.empty()) continue;
      const Piece::Holder& first = piece.holders.front();
      if (hash(*own) == hash(first)) continue;
      error = absl::StrCat(
          "[checkpoint] '", name, "' has the same place (", place_text(piece.place), ") on ranks ",
          first.rank, " and ", own->rank,
          " and other elements: say by block_of() which blocks of the tensor they are, name them "
          "differently, or, if they should be equal, broadcast them");
    }
  }
  return error;
}

// Leaves one piece if that is the whole tensor, and none without elements if another has some.
void simplify(PlannedTensor* tensor) {
  const int64_t numel = product(tensor->sizes);
  std::vector<Piece>& pieces = tensor->pieces;
  const auto whole = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
    return Place(piece.place).numel() == numel;
  });
  if (whole != pieces.end()) {
    pieces = {Piece(*whole)};
    return;
  }
  const auto empty = [](const Piece& piece) { return Place(piece.place).numel() == 0; };
  if (std::all_of(pieces.begin(), pieces.end(), empty)) {
    pieces.resize(1);
  } else {
    pieces.erase(std::remove_if(pieces.begin(), pieces.end(), empty), pieces.end());
  }
}

// Returns how many elements of a tensor its pieces have.
int64_t covered(const PlannedTensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const Piece& piece : tensor.pieces) {
    for_runs(Place(piece.place),
             [&](int64_t, int64_t whole, int64_t n) { runs.emplace_back(whole, n); });
  }
  std::sort(runs.begin(), runs.end());
  int64_t count = 0, end = 0;
  for (const auto& [begin, n] : runs) {
    count += std::max<int64_t>(0, begin + n - std::max(begin, end));
    end = std::max(end, begin + n);
  }
  return count;
}

// Gives each tensor to one of the ranks that have some of it, so that all write about as much.
void choose_writers(std::vector<PlannedTensor>* plan, int ranks) {
  std::vector<size_t> order(plan->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*plan)[a].bytes() > (*plan)[b].bytes(); });
  std::vector<int64_t> bytes(static_cast<size_t>(ranks));
  for (const size_t i : order) {
    PlannedTensor& tensor = (*plan)[i];
    for (const Piece& piece : tensor.pieces) {
      for (const Piece::Holder& holder : piece.holders) {
        const auto load = [&](int rank) {
          return std::pair(bytes[static_cast<size_t>(rank)], rank);
        };
        if (tensor.writer < 0 || load(holder.rank) < load(tensor.writer)) {
          tensor.writer = holder.rank;
        }
      }
    }
    bytes[static_cast<size_t>(tensor.writer)] += tensor.bytes();
  }
}

// Tensors in host memory.
class HostCopies {
 public:
  explicit HostCopies(bool copies) : copies_(copies) {}
  // Returns a contiguous host tensor, whose elements are there after finish().
  Tensor take(const Tensor& tensor) {
    if (tensor.device().is_cpu()) {
      return copies_ && tensor.is_contiguous() ? tensor.clone() : tensor.contiguous();
    }
    if (copies_ && pins_) {
      try {
        Tensor pinned = empty_pinned(tensor.sizes(), tensor.dtype(), tensor.device());
        pinned.copy_(tensor, /*non_blocking=*/true);
        device_ = tensor.device();
        return pinned;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnsupported) throw;
        pins_ = false;
      }
    }
    return tensor.to(kCPU).contiguous();
  }
  void finish() {
    if (device_.has_value()) synchronize(*device_);
    device_.reset();
  }

 private:
  bool copies_, pins_ = true;
  std::optional<Device> device_;  // that still copies
};

// A piece that its holder sends to the writer of its tensor.
struct Move {
  size_t tensor;
  const Piece* piece;
  int from, to;
  int64_t bytes;
};

class Gathering {
 public:
  Gathering(const std::vector<PlannedTensor>& plan, const std::vector<TensorPart>& parts,
            const Group& group, bool copies)
      : plan_(plan), parts_(parts), group_(group), copies_(copies) {}

  std::vector<std::pair<size_t, Tensor>> run() {
    // Few bytes at a time, for each rank.
    const int64_t limit = int64_t{64 << 20} * group_.size();
    std::vector<Move> moves;
    int64_t bytes = 0;
    size_t begin = 0;
    for (size_t i = 0; i < plan_.size(); ++i) {
      const PlannedTensor& tensor = plan_[i];
      for (const Piece& piece : tensor.pieces) {
        const int from = tensor.source(piece).rank;
        const int64_t size = Place(piece.place).numel() * element_size(tensor.dtype);
        if (from == tensor.writer || size == 0) continue;
        moves.push_back({i, &piece, from, tensor.writer, size});
        bytes += size;
      }
      if (bytes < limit && i + 1 < plan_.size()) continue;
      assemble(begin, i + 1, exchange(moves), moves);
      moves.clear();
      bytes = 0;
      begin = i + 1;
    }
    host_.finish();
    return std::move(found_);
  }

 private:
  // Returns what this rank receives, in host memory, by sender and then in the order of the moves.
  Tensor exchange(const std::vector<Move>& moves) {
    if (moves.empty()) return {};
    std::vector<int64_t> sent(static_cast<size_t>(group_.size())), received = sent;
    for (const Move& move : moves) {
      if (move.from == group_.rank()) sent[static_cast<size_t>(move.to)] += move.bytes;
      if (move.to == group_.rank()) received[static_cast<size_t>(move.from)] += move.bytes;
    }
    const auto buffer = [&](const std::vector<int64_t>& rows) {
      const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
      return mytorch::empty({total}, kUInt8, group_.device());
    };
    const Tensor out = buffer(sent), in = buffer(received);
    int64_t at = 0;
    for (int to = 0; to < group_.size(); ++to) {
      for (const Move& move : moves) {
        if (move.from != group_.rank() || move.to != to) continue;
        const Tensor& part = parts_[plan_[move.tensor].source(*move.piece).part].tensor;
        const Tensor elements = part.detach().contiguous().flatten().view(kUInt8);
        out.narrow(0, at, move.bytes).copy_(elements.to(group_.device()));
        at += move.bytes;
      }
    }
    group_.all_to_all_v(in, out, received, sent);
    HostCopies host(/*copies=*/!group_.device().is_cpu());
    Tensor bytes = host.take(in);
    host.finish();
    return bytes;
  }

  // Makes this rank's tensors among [begin, end).
  void assemble(size_t begin, size_t end, const Tensor& received, const std::vector<Move>& moves) {
    std::map<const Piece*, const char*> sources;
    if (received.defined()) {
      const auto* next = static_cast<const char*>(received.raw_data());
      for (int from = 0; from < group_.size(); ++from) {
        for (const Move& move : moves) {
          if (move.from != from || move.to != group_.rank()) continue;
          sources[move.piece] = next;
          next += move.bytes;
        }
      }
    }
    for (size_t i = begin; i < end; ++i) {
      const PlannedTensor& tensor = plan_[i];
      if (tensor.writer != group_.rank()) continue;
      if (tensor.pieces.size() == 1) {
        const Piece::Holder& own = tensor.source(tensor.pieces.front());
        const Tensor host = host_.take(parts_[own.part].tensor.detach());
        found_.emplace_back(i, host.view(tensor.sizes));
        continue;
      }
      const Tensor whole = mytorch::empty(tensor.sizes, tensor.dtype);
      auto* target = static_cast<char*>(whole.data_ptr());
      const int64_t width = whole.itemsize();
      for (const Piece& piece : tensor.pieces) {
        Tensor own;
        const auto source = sources.find(&piece);
        if (source == sources.end()) {
          const size_t part = tensor.source(piece).part;
          own = parts_[part].tensor.detach().to(kCPU).contiguous();
        }
        const auto* from =
            source == sources.end() ? static_cast<const char*>(own.raw_data()) : source->second;
        const Place place(piece.place);
        for_runs(place, [&](int64_t position, int64_t in_whole, int64_t n) {
          std::memcpy(target + in_whole * width, from + (position - place.begin()) * width,
                      static_cast<size_t>(n * width));
        });
      }
      found_.emplace_back(i, whole);
    }
  }

  const std::vector<PlannedTensor>& plan_;
  const std::vector<TensorPart>& parts_;
  const Group& group_;
  const bool copies_;
  HostCopies host_{copies_};
  std::vector<std::pair<size_t, Tensor>> found_;
};

}  // namespace

void agree(const Group& group, const std::string& error, const std::string& folder) {
  const std::vector<std::string> errors = gather_text(group, error);
  if (!error.empty()) throw Error(ErrorCode::kIo, error);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& other = errors[static_cast<size_t>(rank)];
    if (other.empty()) continue;
    fail(ErrorCode::kIo, "[checkpoint] rank ", rank, " could not write its part of ", folder,
         ", so nothing was saved: ", other);
  }
}

int64_t PlannedTensor::bytes() const { return product(sizes) * element_size(dtype); }

std::vector<PlannedTensor> plan_tensors(const std::vector<TensorPart>& parts, const Group& group,
                                        const std::string& folder) {
  agree(group, error_of([&] { check_parts(parts); }), folder);
  std::map<std::string, PlannedTensor> tensors;
  std::string error;
  const std::vector<std::string> texts = gather_text(group, describe(parts));
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::vector<Described> all = described(texts[static_cast<size_t>(rank)]);
    for (size_t i = 0; i < all.size(); ++i) {
      add(&tensors, all[i], rank, i, rank == group.rank() ? &error : nullptr);
    }
  }
  agree(group, error, folder);
  agree(group, difference(tensors, parts, group), folder);
  std::vector<PlannedTensor> plan;
  for (auto& [name, tensor] : tensors) {
    plan.push_back(std::move(tensor));
    simplify(&plan.back());
  }
  choose_writers(&plan, group.size());
  for (const PlannedTensor& tensor : plan) {
    const int64_t numel = product(tensor.sizes);
    if (tensor.writer != group.rank() || !error.empty()) continue;
    const int64_t found =
        tensor.pieces.size() == 1 ? Place(tensor.pieces[0].place).numel() : covered(tensor);
    if (found == numel) continue;
    error = absl::StrCat("[checkpoint] the ranks' parts of '", tensor.name, "' have ", found,
                         " of its ", numel, " elements: the parts of all ranks make the tensor");
  }
  agree(group, error, folder);
  return plan;
}

std::vector<std::pair<size_t, Tensor>> gather_tensors(const std::vector<PlannedTensor>& plan,
                                                      const std::vector<TensorPart>& parts,
                                                      const Group& group, bool copies) {
  return Gathering(plan, parts, group, copies).run();
}

}  // namespace mytorch::nn::checkpoint
