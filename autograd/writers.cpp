#include "autograd/writers.h"

#include <atomic>
#include <cstddef>

namespace mytorch::autograd {
namespace {

// A lossy table: a storage replaces an earlier one in the same row. Every recorded in-place
// operation writes it, so it has no locks; a row that changes during a read is at worst not
// recognized.
struct WriterRow {
  std::atomic<uint64_t> storage_id{0};
  std::atomic<uint64_t> version{0};
  std::atomic<const char*> op{nullptr};
};
constexpr size_t kRows = 4096;
WriterRow rows[kRows];

}  // namespace

void note_writer(uint64_t storage_id, uint64_t version, const char* op) {
  WriterRow& row = rows[storage_id % kRows];
  row.storage_id.store(0, std::memory_order_relaxed);
  row.op.store(op, std::memory_order_release);
  row.version.store(version, std::memory_order_release);
  row.storage_id.store(storage_id, std::memory_order_release);
}

const char* find_writer(uint64_t storage_id, uint64_t after) {
  const WriterRow& row = rows[storage_id % kRows];
  if (row.storage_id.load(std::memory_order_acquire) != storage_id) return nullptr;
  if (row.version.load(std::memory_order_acquire) <= after) return nullptr;
  const char* op = row.op.load(std::memory_order_acquire);
  return row.storage_id.load(std::memory_order_acquire) == storage_id ? op : nullptr;
}

}  // namespace mytorch::autograd
