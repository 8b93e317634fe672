// Weights in the layout that a primitive prefers, kept from call to call.
//
// When is a kept copy the same as packing anew? It is found under the storage's id, which is never
// given out twice, the version, which the host counts up with every write to that storage through
// any view, and the address and layout of the operand within the storage. Memory of another tensor
// that happens to lie where a freed one did has another id. Writes that the host cannot count come
// through pointers it gave away; such a storage is marked as escaped, for good, and nothing of it
// is kept. A write while a kernel reads is the caller's error, with or without a cache.
//
// Memory is spent only where it pays: a layout is kept from the second time on that it is wanted of
// one version, so training, where each step writes the weights, keeps nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>

#include "backends/cpu-onednn/dnnl.h"
#include "mytorch/abi.h"

namespace mytorch::onednn {

class PackedWeights {
 public:
  // At most so many bytes of copies, and so many tensors and layouts remembered; those used longest
  // ago go first.
  PackedWeights(size_t most_bytes, size_t most_entries)
      : most_bytes_(most_bytes), most_entries_(most_entries) {}

  using Pack = std::function<void(const dnnl::memory& to)>;
  // An empty handle: pack it for this call alone. Whoever has a handle keeps its memory alive.
  dnnl::memory find_or_pack(const mt_storage& storage, const void* data, const Desc& given,
                            const Desc& wanted, const Pack& pack);

  size_t bytes() const;
  size_t entries() const;

 private:
  struct Entry {
    uint64_t storage, version;
    const void* data;
    Desc given, wanted;
    dnnl::memory packed;  // empty until wanted again
    size_t bytes;
  };
  using Entries = std::list<Entry>;  // the last used first

  Entries::iterator find(uint64_t storage, const void* data, const Desc& given, const Desc& wanted);
  void drop_copy(Entry& entry);
  void drop_oldest();

  const size_t most_bytes_, most_entries_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_multimap<uint64_t, Entries::iterator> index_;  // by storage
  size_t bytes_ = 0;
};

// Of the process.
PackedWeights& packed_weights();

}  // namespace mytorch::onednn
