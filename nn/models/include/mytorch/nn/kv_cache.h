// Caches of attention keys and values, for generating text.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "mytorch/device.h"
#include "mytorch/list.h"
#include "mytorch/nn/options.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

struct KVCacheArgs {
  // Tokens of a block, for a paged cache: sequences take blocks from a pool as they grow (Kwon et
  // al., "Efficient memory management for large language model serving with PagedAttention", SOSP
  // 2023), and `reorder` shares them. 0 reserves memory for `capacity` tokens of each sequence.
  int64_t block_size = 0;
  // Blocks of the pool of each layer. 0 stands for as many as all sequences can fill.
  int64_t num_blocks = 0;
};
using KVCacheOptions = Options<KVCacheArgs, int64_t, int64_t, int64_t>;

struct CachedAttentionArgs {
  std::optional<double> scale = {};  // 1 / sqrt(D) by default
  double softcap = 0;                // limits scores to +-softcap; 0 does not
  int64_t window = 0;                // number of latest keys that each query sees; 0 for all
  Tensor slopes = {};                // ALiBi slopes, (H)
};

// The keys and values of all layers of a model for a batch of sequences, each with its own length.
// A model calls `attend` once in every layer, the last layer last, which completes the forward:
//
//   nn::KVCache cache(num_layers, batch_size, /*capacity=*/1024);
//   ...
//   q = rotary(q, &cache);                    // positions continue those of the cache
//   k = rotary(k, &cache);
//   y = cache.attend(layer, q, k, v);         // causal attention over all tokens so far
//
// The first `append` determines the number and width of heads, the type and the device. Tokens are
// stored without their gradients. A forward that throws leaves the lengths unchanged.
class KVCache {
 public:
  // `capacity` is the largest number of tokens of a sequence.
  KVCache(int64_t num_layers, int64_t batch_size, int64_t capacity, KVCacheArgs options = {});
  KVCache(const KVCacheOptions& options);  // NOLINT: KVCache cache(KVCacheOptions(2, 1, 64))
  KVCache(KVCache&&) noexcept = default;
  KVCache& operator=(KVCache&&) noexcept = default;

  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  int64_t batch_size() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  bool paged() const { return options_.block_size > 0; }
  // The number of tokens of each sequence, without those of an incomplete forward.
  const std::vector<int64_t>& lengths() const { return lengths_; }
  // Their common length, unless the lengths differ.
  std::optional<int64_t> common_length() const;
  int64_t max_length() const;
  int64_t free_blocks() const;  // of a paged cache

  // -- for models --
  // Returns the positions of the next `count` tokens of each sequence, (N, count), int64.
  Tensor positions(int64_t count, Device device = kCPU) const;
  // Appends keys (N, H, L, D) and values (N, H, L, V) to the cache of a layer, and attends to all
  // keys that each query (N, Q, L, D) may see: those of its sequence, up to its own token. Q is a
  // multiple of H. Returns (N, Q, L, V). Values that are the first features of the keys, `value =
  // key.narrow(-1, 0, V)`, are stored once. Throws Error(kValue) if a sequence exceeds the capacity
  // or the pool has no free block.
  Tensor attend(int64_t layer, const Tensor& query, const Tensor& key, const Tensor& value,
                const CachedAttentionArgs& options = {});
  // Appends without attending. Returns the keys (N, H, S, D) and values (N, H, S, V) of the layer,
  // where S is the largest length: views of the memory, or copies of a paged cache. Elements past
  // the length of a sequence are undefined; `mask` excludes them.
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& key, const Tensor& value);
  // Returns a bool mask (N, 1, count, S), true for the keys of the next `append` that each of the
  // next `count` tokens sees: those of its sequence, up to its own token, the last `window` of them
  // unless it is 0.
  Tensor mask(int64_t count, Device device = kCPU, int64_t window = 0) const;
  // Returns the last token of each sequence in the output (N, L, E) of the current forward, as (N,
  // 1, E): padding follows the tokens if `set_counts` says so. The head of a language model need
  // not compute the logits of the others.
  Tensor last(const Tensor& output) const;

  // -- for callers of models --
  // Declares how many of the L tokens of each sequence in the next forward are real; those after
  // them are padding, which the cache forgets when the forward completes. All are by default.
  void set_counts(IntList counts);
  // Forgets the tokens after the first lengths[n] of sequence n.
  void truncate(IntList lengths);
  // Forgets all tokens, or those of one sequence.
  void reset();
  void reset(int64_t sequence);
  // Replaces sequence n by a copy of sequence sources[n], as beam search does, for all n at once.
  // The batch takes the size of `sources`. A paged cache shares blocks until a sequence writes
  // them.
  void reorder(IntList sources);

 private:
  struct Layer {
    Tensor keys;    // (N, H, capacity, D), or the pool (blocks, block_size, H, D)
    Tensor values;  // a view of the keys if `shared_`
  };
  // State that all layers of a forward share.
  struct Step {
    int64_t count = 0;     // tokens of each sequence, with padding
    Tensor rows, columns;  // of the memory, for each token if the lengths differ or in blocks
    Tensor sources;        // of these tokens, if there is padding
    Tensor blocks, ends;   // (N, blocks) and (N): the blocks and lengths after the forward
    Tensor key_mask;       // which keys are seen, if the lengths differ
    int64_t key_mask_window = 0;
  };
  Step& begin(int64_t layer, const Tensor& key, const Tensor& value);
  void check_append(int64_t layer, const Tensor& key, const Tensor& value) const;
  void fit_memory(int64_t layer, const Tensor& key, const Tensor& value);
  void check_room(int64_t count) const;
  void place_tokens(Device device);
  void list_blocks(Device device);
  void allocate(const Tensor& key, const Tensor& value);
  // Calls `function` with the memory of every layer.
  template <class Function>
  void for_each_memory(const Function& function);
  void reserve_blocks(int64_t count);
  void release_blocks(size_t sequence, int64_t keep);
  const Layer& write(int64_t layer, const Tensor& key, const Tensor& value);
  Tensor all(const Tensor& memory) const;
  void finish(int64_t layer);
  int64_t real(size_t sequence, int64_t count) const;
  int64_t longest(int64_t count) const;
  size_t checked_sequence(int64_t sequence) const;

  int64_t capacity_ = 0;
  KVCacheArgs options_;
  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> counts_;               // of set_counts
  std::vector<std::vector<int64_t>> tables_;  // blocks of each sequence
  std::vector<int64_t> users_, free_;         // of each block; the blocks without any
  bool shared_ = false;                       // whether values are the first features of keys
  int64_t next_layer_ = 0;                    // of the current forward
  std::vector<int64_t> last_;                 // index of the last real token of each sequence
  Step step_;
};

}  // namespace mytorch::nn
