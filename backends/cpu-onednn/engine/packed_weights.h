// A cache of weights in the layout that a primitive prefers.
//
// A cached copy is valid because its key contains the storage's id, which is never reused; the
// version, which the host increments with every write to that storage through any view; and the
// address and layout of the operand. Another tensor at the address of a freed one has another id.
// The host cannot count writes through pointers that it has handed out: it marks such a storage as
// escaped for good, and the storage is never cached. Writing while a kernel reads is the caller's
// error, with or without a cache.
//
// A copy is cached when its layout is requested for the second time for one version, so training,
// which writes the weights in each step, caches nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>

#include "backends/cpu-onednn/engine/dnnl.h"
#include "mytorch/abi.h"

namespace mytorch::onednn {

class PackedWeights {
 public:
  // Holds at most `most_bytes` of copies and `most_entries` keys, and evicts the least recently
  // used.
  PackedWeights(size_t most_bytes, size_t most_entries)
      : most_bytes_(most_bytes), most_entries_(most_entries) {}

  using Pack = std::function<void(const dnnl::memory& to)>;
  // Returns the cached copy, which the handle keeps alive. An empty handle means that the caller
  // packs the weights for this call alone.
  dnnl::memory find_or_pack(const mt_storage& storage, const void* data, const Desc& given,
                            const Desc& wanted, const Pack& pack);

  size_t bytes() const;
  size_t entries() const;

 private:
  struct Entry {
    uint64_t storage, version;
    const void* data;
    Desc given, wanted;
    dnnl::memory packed;  // empty until the second request
    size_t bytes;
  };
  using Entries = std::list<Entry>;  // most recently used first

  Entries::iterator find(uint64_t storage, const void* data, const Desc& given, const Desc& wanted);
  void drop_copy(Entry& entry);
  void drop_oldest();

  const size_t most_bytes_, most_entries_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_multimap<uint64_t, Entries::iterator> index_;  // by storage
  size_t bytes_ = 0;
};

// The cache of this process.
PackedWeights& packed_weights();

}  // namespace mytorch::onednn
