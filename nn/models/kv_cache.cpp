#include "mytorch/nn/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/attention_forward.h"
#include "mytorch/ops/attention_paged.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/gt.h"
#include "mytorch/ops/index_put.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/le.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor_impl.h"
#include "nn/functional/options.h"
#include "nn/modules/lasting.h"

namespace mytorch::nn {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Tensor indices(const std::vector<int64_t>& values, Device device) {
  return tensor(values, kInt64).to(device);
}

// Whether the values are the first features of the keys, in the same memory.
bool are_part_of(const Tensor& value, const Tensor& key) {
  return value.impl()->storage == key.impl()->storage &&
         value.storage_offset() == key.storage_offset() && value.strides() == key.strides() &&
         value.size(3) <= key.size(3) && value.numel() > 0;
}

}  // namespace

KVCache::KVCache(int64_t num_layers, int64_t batch_size, int64_t capacity, KVCacheArgs options)
    : capacity_(capacity), options_(options) {
  check_at_least("KVCache", 0,
                 {{"num_layers", num_layers},
                  {"batch_size", batch_size},
                  {"block_size", options.block_size},
                  {"num_blocks", options.num_blocks}});
  check_at_least("KVCache", 1, {{"capacity", capacity}});
  for (const int64_t size : {num_layers, batch_size, capacity, options.block_size}) {
    check_index_count("KVCache", size);
  }
  if (options.num_blocks > 0 && !paged()) {
    fail(ErrorCode::kValue, "[KVCache] num_blocks is ", options.num_blocks,
         " without a block_size: give block_size too, such as 16, for a paged cache");
  }
  layers_.resize(static_cast<size_t>(num_layers));
  lengths_.resize(static_cast<size_t>(batch_size));
  if (!paged()) return;
  tables_.resize(lengths_.size());
  if (options_.num_blocks == 0) {
    options_.num_blocks = batch_size * divide_up(capacity, options_.block_size);
  }
  check_index_count("KVCache", options_.num_blocks);
  users_.resize(static_cast<size_t>(options_.num_blocks));
  free_.resize(users_.size());
  std::iota(free_.rbegin(), free_.rend(), 0);
}

KVCache::KVCache(const KVCacheOptions& options)
    : KVCache(options.apply([](auto&&... args) { return KVCache(args...); })) {}

// ---- lengths ----

std::optional<int64_t> KVCache::common_length() const {
  if (lengths_.empty()) return 0;
  const bool same =
      std::adjacent_find(lengths_.begin(), lengths_.end(), std::not_equal_to<>()) == lengths_.end();
  return same ? std::optional(lengths_[0]) : std::nullopt;
}

int64_t KVCache::max_length() const {
  return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

int64_t KVCache::free_blocks() const { return static_cast<int64_t>(free_.size()); }

size_t KVCache::checked_sequence(int64_t sequence) const {
  if (sequence < 0 || sequence >= batch_size()) {
    fail(ErrorCode::kValue, "[KVCache] there is no sequence ", sequence, " among ", batch_size());
  }
  return static_cast<size_t>(sequence);
}

void KVCache::set_counts(IntList counts) {
  if (counts.size() != lengths_.size()) {
    fail(ErrorCode::kShape, "[KVCache] set_counts has ", counts.size(), " counts for ",
         lengths_.size(), " sequences");
  }
  for (const int64_t count : counts) check_at_least("KVCache", 0, {{"a count", count}});
  counts_ = counts.vec();
  last_.clear();
  for (const int64_t count : counts) last_.push_back(std::max<int64_t>(count - 1, 0));
  next_layer_ = 0;
}

int64_t KVCache::real(size_t sequence, int64_t count) const {
  return counts_.empty() ? count : counts_[sequence];
}

void KVCache::truncate(IntList lengths) {
  if (lengths.size() != lengths_.size()) {
    fail(ErrorCode::kShape, "[KVCache] truncate has ", lengths.size(), " lengths for ",
         lengths_.size(), " sequences");
  }
  for (size_t n = 0; n < lengths_.size(); ++n) {
    if (lengths[n] < 0 || lengths[n] > lengths_[n]) {
      fail(ErrorCode::kValue, "[KVCache] truncate to length ", lengths[n], ": sequence ", n,
           " has ", lengths_[n], " tokens");
    }
  }
  lengths_ = lengths.vec();
  for (size_t n = 0; n < tables_.size(); ++n) {
    release_blocks(n, divide_up(lengths_[n], options_.block_size));
  }
  counts_.clear();
  last_.clear();
  next_layer_ = 0;
}

void KVCache::reset() { truncate(std::vector<int64_t>(lengths_.size())); }

void KVCache::reset(int64_t sequence) {
  std::vector<int64_t> lengths = lengths_;
  lengths[checked_sequence(sequence)] = 0;
  truncate(lengths);
}

void KVCache::reorder(IntList sources) {
  for (const int64_t source : sources) checked_sequence(source);
  const std::vector<int64_t> lengths = lengths_;
  lengths_.clear();
  for (const int64_t source : sources) lengths_.push_back(lengths[static_cast<size_t>(source)]);
  counts_.clear();
  last_.clear();
  next_layer_ = 0;
  if (paged()) {
    const auto tables = std::move(tables_);
    tables_.clear();
    for (const int64_t source : sources) {
      tables_.push_back(tables[static_cast<size_t>(source)]);
      for (const int64_t block : tables_.back()) ++users_[static_cast<size_t>(block)];
    }
    for (const auto& table : tables) {
      for (const int64_t block : table) {
        if (--users_[static_cast<size_t>(block)] == 0) free_.push_back(block);
      }
    }
    return;
  }
  const NoGradGuard no_grad;
  const LastingTensors lasting;
  const int64_t used = max_length();
  for_each_memory([&](Tensor& memory) {
    const Tensor chosen =
        memory.narrow(2, 0, used).index_select(0, indices(sources.vec(), memory.device()));
    Tensor made = zeros({batch_size(), memory.size(1), capacity_, memory.size(3)}, memory.dtype(),
                        memory.device());
    made.narrow(2, 0, used).copy_(chosen);
    memory = std::move(made);
  });
}

template <class Function>
void KVCache::for_each_memory(const Function& function) {
  for (Layer& layer : layers_) {
    if (!layer.keys.defined()) continue;
    function(layer.keys);
    if (shared_) {
      layer.values = layer.keys.narrow(3, 0, layer.values.size(3));
    } else {
      function(layer.values);
    }
  }
}

// ---- what queries see ----

Tensor KVCache::positions(int64_t count, Device device) const {
  check_at_least("KVCache", 0, {{"count", count}});
  return add(indices(lengths_, device).unsqueeze(1), arange(count, kInt64, device));
}

int64_t KVCache::longest(int64_t count) const {
  int64_t longest = 0;
  for (size_t n = 0; n < lengths_.size(); ++n) {
    longest = std::max(longest, lengths_[n] + real(n, count));
  }
  return longest;
}

Tensor KVCache::mask(int64_t count, Device device, int64_t window) const {
  check_at_least("KVCache", 0, {{"window", window}});
  const Tensor rows = positions(count, device).unsqueeze(1).unsqueeze(-1);
  const Tensor columns = arange(longest(count), kInt64, device);
  const Tensor causal = le(columns, rows);
  return window == 0 ? causal : logical_and(causal, gt(columns, sub(rows, window)));
}

Tensor KVCache::last(const Tensor& output) const {
  if (output.dim() != 3 || output.size(0) != batch_size()) {
    fail(ErrorCode::kShape, "[KVCache] last takes an output of shape (", batch_size(),
         ", length, features), not ", shape_str(output.sizes()));
  }
  const int64_t length = output.size(1);
  const bool all = std::all_of(last_.begin(), last_.end(), [&](int64_t i) {
    if (i >= length) {
      fail(ErrorCode::kShape, "[KVCache] last takes the output of a forward of ", i + 1,
           " tokens, not of ", length);
    }
    return i == length - 1;
  });
  if (length == 0) return output;
  if (all) return output.narrow(1, length - 1, 1);
  const Tensor index = indices(last_, output.device()).unsqueeze(-1).unsqueeze(-1);
  return gather(output, 1, index.expand({batch_size(), 1, output.size(2)}));
}

// ---- blocks ----

void KVCache::release_blocks(size_t sequence, int64_t keep) {
  std::vector<int64_t>& table = tables_[sequence];
  while (static_cast<int64_t>(table.size()) > keep) {
    if (--users_[static_cast<size_t>(table.back())] == 0) free_.push_back(table.back());
    table.pop_back();
  }
}

// Gives each sequence blocks of its own for its next tokens.
void KVCache::reserve_blocks(int64_t count) {
  const int64_t size = options_.block_size;
  const auto shared = [&](int64_t block) { return users_[static_cast<size_t>(block)] > 1; };
  const auto needed = [&](size_t n) { return divide_up(lengths_[n] + real(n, count), size); };
  // A sequence writes at most one block that exists already: the one that its tokens end in.
  const auto writes_shared = [&](size_t n) {
    const size_t end = static_cast<size_t>(lengths_[n] / size);
    return real(n, count) > 0 && end < tables_[n].size() && shared(tables_[n][end]);
  };
  int64_t wanted = 0;
  for (size_t n = 0; n < tables_.size(); ++n) {
    release_blocks(n, divide_up(lengths_[n], size));  // those of a forward that failed
    wanted += needed(n) - static_cast<int64_t>(tables_[n].size()) + (writes_shared(n) ? 1 : 0);
  }
  if (wanted > free_blocks()) {
    fail(
        ErrorCode::kValue, "[KVCache] the next tokens need ", wanted, " blocks of ", size,
        " tokens, and ", free_blocks(), " of ", options_.num_blocks,
        " are free: reset the sequences that are finished, or make the cache with more num_blocks");
  }
  const auto take = [&] {
    const int64_t block = free_.back();
    free_.pop_back();
    users_[static_cast<size_t>(block)] = 1;
    return block;
  };
  for (size_t n = 0; n < tables_.size(); ++n) {
    if (writes_shared(n)) {
      int64_t& block = tables_[n][static_cast<size_t>(lengths_[n] / size)];
      const int64_t own = take();
      for_each_memory([&](Tensor& pool) { pool.select(0, own).copy_(pool.select(0, block)); });
      --users_[static_cast<size_t>(block)];
      block = own;
    }
    while (static_cast<int64_t>(tables_[n].size()) < needed(n)) tables_[n].push_back(take());
  }
}

// ---- a forward ----

void KVCache::allocate(const Tensor& key, const Tensor& value) {
  const LastingTensors lasting;
  const auto memory = [&](const Tensor& like) {
    // Zeros, since attention multiplies what it masks by a weight of 0, and 0 * NaN is NaN.
    return paged() ? zeros({options_.num_blocks, options_.block_size, like.size(1), like.size(3)},
                           like.dtype(), like.device())
                   : zeros({batch_size(), like.size(1), capacity_, like.size(3)}, like.dtype(),
                           like.device());
  };
  shared_ = are_part_of(value, key);
  for (Layer& layer : layers_) {
    layer.keys = memory(key);
    layer.values = shared_ ? layer.keys.narrow(3, 0, value.size(3)) : memory(value);
  }
}

// Throws unless the layer may append these keys and values now.
void KVCache::check_append(int64_t layer, const Tensor& key, const Tensor& value) const {
  if (layer < 0 || layer >= num_layers()) {
    fail(ErrorCode::kValue, "[KVCache] there is no layer ", layer, " among ", num_layers());
  }
  if (key.dim() != 4 || value.dim() != 4 || key.size(0) != batch_size() ||
      value.size(0) != key.size(0) || value.size(1) != key.size(1) ||
      value.size(2) != key.size(2)) {
    fail(ErrorCode::kShape, "[KVCache] key ", shape_str(key.sizes()), " and value ",
         shape_str(value.sizes()),
         " are not (N, heads, L, D) and (N, heads, L, V) for N = ", batch_size(), " sequences");
  }
  if (value.dtype() != key.dtype() || !(value.device() == key.device())) {
    fail(ErrorCode::kType,
         "[KVCache] key and value differ in type or device: ", dtype_name(key.dtype()), " on ",
         key.device().str(), " and ", dtype_name(value.dtype()), " on ", value.device().str());
  }
  if (grad_enabled() && (key.requires_grad() || value.requires_grad())) {
    fail(ErrorCode::kValue,
         "[KVCache] the key or value requires a gradient, which a cache does not record: call the "
         "model within a NoGradGuard or InferenceMode, or train it without a cache");
  }
  if (layer == 0) return;
  if (layer != next_layer_) {
    fail(ErrorCode::kValue, "[KVCache] layer ", layer, " follows ",
         next_layer_ == 0 ? "a complete forward" : absl::StrCat("layer ", next_layer_ - 1),
         ": each forward appends once to every layer, in order");
  }
  if (key.size(2) != step_.count) {
    fail(ErrorCode::kShape, "[KVCache] layer ", layer, " appends ", key.size(2),
         " tokens, and the layers before it ", step_.count);
  }
}

// Allocates the memory of all layers, unless this layer's fits the keys and values.
void KVCache::fit_memory(int64_t layer, const Tensor& key, const Tensor& value) {
  const Layer& stored = layers_[static_cast<size_t>(layer)];
  const auto fits = [&](const Tensor& x, const Tensor& memory) {
    return memory.defined() && memory.dtype() == x.dtype() && memory.device() == x.device() &&
           memory.size(paged() ? 2 : 1) == x.size(1) && memory.size(3) == x.size(3);
  };
  if (fits(key, stored.keys) && fits(value, stored.values) &&
      (!shared_ || value.numel() == 0 || are_part_of(value, key)) &&
      (paged() || stored.keys.size(0) == batch_size())) {
    return;
  }
  if (stored.keys.defined() && (layer != 0 || max_length() > 0)) {
    const auto describe = [&](const Tensor& x, int64_t heads) {
      return absl::StrCat(heads, " heads of width ", x.size(3), ", ", dtype_name(x.dtype()), " on ",
                          x.device().str());
    };
    fail(ErrorCode::kShape, "[KVCache] layer ", layer, " appends keys of ",
         describe(key, key.size(1)), " and values of width ", value.size(3),
         "; the cache holds keys of ", describe(stored.keys, stored.keys.size(paged() ? 2 : 1)),
         " and values of width ", stored.values.size(3), shared_ ? ", a part of the keys" : "",
         ", as first appended: reset it first");
  }
  allocate(key, value);
}

void KVCache::check_room(int64_t count) const {
  for (size_t n = 0; n < lengths_.size(); ++n) {
    if (real(n, count) > count) {
      fail(ErrorCode::kValue, "[KVCache] set_counts gives sequence ", n, " ", counts_[n],
           " tokens, and the forward has ", count);
    }
    if (lengths_[n] + real(n, count) > capacity_) {
      fail(ErrorCode::kValue, "[KVCache] sequence ", n, " has ", lengths_[n], " tokens and gets ",
           real(n, count), ", more than the capacity of ", capacity_,
           ": make the cache with a larger capacity, or truncate it");
    }
  }
}

// Sets the places of all tokens but padding, as rows and columns of the memory.
void KVCache::place_tokens(Device device) {
  const int64_t count = step_.count;
  std::vector<int64_t> rows, columns, sources;
  for (size_t n = 0; n < lengths_.size(); ++n) {
    for (int64_t i = 0; i < real(n, count); ++i) {
      const int64_t position = lengths_[n] + i;
      sources.push_back(static_cast<int64_t>(n) * count + i);
      if (paged()) {
        rows.push_back(tables_[n][static_cast<size_t>(position / options_.block_size)]);
        columns.push_back(position % options_.block_size);
      } else {
        rows.push_back(static_cast<int64_t>(n));
        columns.push_back(position);
      }
    }
  }
  step_.rows = indices(rows, device);
  step_.columns = indices(columns, device);
  if (static_cast<int64_t>(sources.size()) != batch_size() * count) {
    step_.sources = indices(sources, device);
  }
}

void KVCache::list_blocks(Device device) {
  // The padding of the longest sequence may pass its table. Its rows read block 0, for nothing.
  const int64_t width = divide_up(max_length() + step_.count, options_.block_size);
  std::vector<int64_t> blocks;
  for (const auto& table : tables_) {
    for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
      blocks.push_back(i < table.size() ? table[i] : 0);
    }
  }
  step_.blocks = indices(blocks, device).view({batch_size(), width});
  step_.ends = add(indices(lengths_, device), step_.count);
}

KVCache::Step& KVCache::begin(int64_t layer, const Tensor& key, const Tensor& value) {
  check_append(layer, key, value);
  fit_memory(layer, key, value);
  if (layer != 0) return step_;
  const int64_t count = key.size(2);
  check_room(count);
  if (counts_.empty()) last_.clear();
  step_ = {};
  step_.count = count;
  if (paged()) reserve_blocks(count);
  if (paged() || !common_length().has_value()) place_tokens(key.device());
  if (paged()) list_blocks(key.device());
  return step_;
}

const KVCache::Layer& KVCache::write(int64_t layer, const Tensor& key, const Tensor& value) {
  const Step& step = begin(layer, key, value);
  const NoGradGuard no_grad;
  const auto put = [&](const Tensor& memory, const Tensor& x) {
    if (!step.rows.defined()) {
      const int64_t begin = *common_length();
      // Padding that does not fit is left out.
      const int64_t written = std::min(step.count, capacity_ - begin);
      memory.narrow(2, begin, written).copy_(x.narrow(2, 0, written));
      return;
    }
    Tensor tokens = x.transpose(1, 2).flatten(0, 1);  // (N * L, H, D)
    if (step.sources.defined()) tokens = tokens.index_select(0, step.sources);
    index_put_(paged() ? memory : memory.transpose(1, 2), {step.rows, step.columns}, tokens);
  };
  const Layer& stored = layers_[static_cast<size_t>(layer)];
  put(stored.keys, key);
  if (!shared_) put(stored.values, value);
  return stored;
}

// Returns the tokens of a contiguous cache, or copies those of a paged one.
Tensor KVCache::all(const Tensor& memory) const {
  const int64_t total = longest(step_.count);
  if (!paged()) return memory.narrow(2, 0, total);
  return memory.index_select(0, step_.blocks.flatten())
      .view({batch_size(), step_.blocks.size(1) * options_.block_size, memory.size(2),
             memory.size(3)})
      .narrow(1, 0, total)
      .transpose(1, 2);
}

void KVCache::finish(int64_t layer) {
  next_layer_ = layer + 1;
  if (next_layer_ < num_layers()) return;
  next_layer_ = 0;
  for (size_t n = 0; n < lengths_.size(); ++n) lengths_[n] += real(n, step_.count);
  counts_.clear();
}

std::pair<Tensor, Tensor> KVCache::append(int64_t layer, const Tensor& key, const Tensor& value) {
  const Layer& stored = write(layer, key, value);
  std::pair<Tensor, Tensor> both{all(stored.keys), all(stored.values)};
  finish(layer);
  return both;
}

Tensor KVCache::attend(int64_t layer, const Tensor& query, const Tensor& key, const Tensor& value,
                       const CachedAttentionArgs& options) {
  check_at_least("KVCache", 0, {{"window", options.window}});
  if (query.dim() != 4 || key.dim() != 4 || query.size(0) != key.size(0) ||
      query.size(2) != key.size(2) || query.size(3) != key.size(3) || key.size(1) == 0 ||
      query.size(1) % key.size(1) != 0) {
    fail(ErrorCode::kShape, "[KVCache] query ", shape_str(query.sizes()), " and key ",
         shape_str(key.sizes()), " are not (N, Q, L, D) and (N, H, L, D) with Q a multiple of H");
  }
  const Layer& stored = write(layer, key, value);
  const int64_t left = options.window == 0 ? -1 : options.window - 1;
  const double scale = options.scale.value_or(
      1 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(3), 1))));
  Tensor result;
  if (paged()) {
    result =
        std::get<0>(attention_paged(query, stored.keys, stored.values, step_.blocks, step_.ends,
                                    options.slopes, left, 0, options.softcap, scale));
  } else {
    const bool band = common_length().has_value();
    Tensor visible;
    if (!band) {
      if (!step_.key_mask.defined() || step_.key_mask_window != options.window) {
        step_.key_mask = mask(step_.count, query.device(), options.window);
        step_.key_mask_window = options.window;
      }
      visible = step_.key_mask;
    }
    // Slopes subtract a multiple of the distance i + max_length() - j. In shorter sequences it is
    // too large by the same number for all keys, which the softmax ignores.
    result = std::get<0>(attention_forward(query, all(stored.keys), all(stored.values), visible,
                                           options.slopes, band ? left : -1, band ? 0 : -1,
                                           max_length(), options.softcap, scale, 0));
  }
  finish(layer);
  return result;
}

}  // namespace mytorch::nn
