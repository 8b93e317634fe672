#include "tests/backends/cuda/record_programs.h"

#include <cstdio>
#include <cstdlib>

#include "dispatcher/table/op.h"

namespace mytorch::testing {

const std::vector<RecordPrograms>& record_programs() {
  static const auto* const programs = [] {
    auto* list = new std::vector<RecordPrograms>;
    for (const OpEntry* entry : all_ops()) {
      const OpInfo& op = *entry->info;
      if (!op.has_kernel || op.num_programs == 0) continue;
      list->push_back({op.name, {op.programs, static_cast<size_t>(op.num_programs)}});
    }
    return list;
  }();
  return *programs;
}

const mt_program* program_of(const std::string& op, size_t variant) {
  for (const RecordPrograms& known : record_programs()) {
    if (known.op == op && variant < known.variants.size()) return known.variants[variant];
  }
  std::fprintf(stderr, "%s has no program %zu\n", op.c_str(), variant);
  std::abort();
}

}  // namespace mytorch::testing
