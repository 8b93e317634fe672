// Who wrote a storage last, for the message about a saved value that was overwritten.
#pragma once

#include <cstdint>

namespace mytorch::autograd {

// A recorded in-place operation `op` brought the storage to `version`.
void note_writer(uint64_t storage_id, uint64_t version, const char* op);
// The operation that brought the storage from `after` to a later version, or null if not known.
const char* find_writer(uint64_t storage_id, uint64_t after);

}  // namespace mytorch::autograd
