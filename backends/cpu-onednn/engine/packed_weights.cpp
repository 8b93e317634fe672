#include "backends/cpu-onednn/engine/packed_weights.h"

#include <utility>

namespace mytorch::onednn {

PackedWeights& packed_weights() {
  static auto* const instance = new PackedWeights(size_t{256} << 20, 4096);
  return *instance;
}

PackedWeights::Entries::iterator PackedWeights::find(uint64_t storage, const void* data,
                                                     const Desc& given, const Desc& wanted) {
  const auto [begin, end] = index_.equal_range(storage);
  for (auto it = begin; it != end; ++it) {
    const Entry& e = *it->second;
    if (e.data == data && e.wanted == wanted && e.given == given) {
      return it->second;
    }
  }
  return entries_.end();
}

void PackedWeights::drop_copy(Entry& entry) {
  if (entry.packed.get(true) == nullptr) return;
  entry.packed = {};
  bytes_ -= entry.bytes;
}

void PackedWeights::drop_oldest() {
  const auto last = std::prev(entries_.end());
  drop_copy(*last);
  const auto [begin, end] = index_.equal_range(last->storage);
  for (auto it = begin; it != end; ++it) {
    if (it->second == last) {
      index_.erase(it);
      break;
    }
  }
  entries_.erase(last);
}

dnnl::memory PackedWeights::find_or_pack(const mt_storage& storage, const void* data,
                                         const Desc& given, const Desc& wanted, const Pack& pack) {
  if ((storage.flags & MT_STORAGE_ESCAPED) != 0) return {};
  const uint64_t version = storage.version;
  const size_t bytes = wanted.get_size();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = find(storage.id, data, given, wanted);
    if (found == entries_.end()) {
      if (entries_.size() >= most_entries_) drop_oldest();
      entries_.push_front({storage.id, version, data, given, wanted, {}, bytes});
      index_.emplace(storage.id, entries_.begin());
      return {};
    }
    entries_.splice(entries_.begin(), entries_, found);
    if (found->version != version) {
      found->version = version;
      drop_copy(*found);
      return {};
    }
    if (found->packed.get(true) != nullptr) return found->packed;
    if (bytes > most_bytes_) return {};
  }
  // Without the lock, because packing takes long and other threads use other weights.
  const dnnl::memory packed(wanted, engine());
  pack(packed);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = find(storage.id, data, given, wanted);
  if (found != entries_.end() && found->version == version && found->packed.get(true) == nullptr) {
    found->packed = packed;
    bytes_ += bytes;
    // The entry itself is far from the end: it was moved to the front above.
    while (bytes_ > most_bytes_ && entries_.size() > 1) drop_oldest();
  }
  return packed;
}

size_t PackedWeights::bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

size_t PackedWeights::entries() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

}  // namespace mytorch::onednn
