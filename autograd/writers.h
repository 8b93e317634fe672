// The last operation that wrote a storage, for the error about an overwritten saved value.
#pragma once

#include <cstdint>

namespace mytorch::autograd {

// Notes that the recorded in-place operation `op` brought the storage to `version`.
void note_writer(uint64_t storage_id, uint64_t version, const char* op);
// Returns the operation that brought the storage from `after` to a later version; null if unknown.
const char* find_writer(uint64_t storage_id, uint64_t after);

}  // namespace mytorch::autograd
