// A set of a graph's nodes as a backend sees it (mytorch/abi_region.h).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/types/dims.h"
#include "graph/ir/flow.h"
#include "mytorch/abi_region.h"
#include "mytorch/compile_mode.h"
#include "mytorch/generator.h"

namespace mytorch::graph {

// Returns whether a region can hold a node: all its arguments have a form in the contract, none is
// complex, and it fills the memory that it makes.
bool fits_region(const Flow& flow, int32_t node);

class GraphRegion {
 public:
  // The nodes are in order, fit, and lie on one device. `constants[b]` is the memory of buffer b if
  // its elements never change, and null otherwise.
  GraphRegion(const Flow& flow, const std::vector<int32_t>& nodes,
              const std::vector<const void*>& constants, CompileMode mode);
  GraphRegion(const GraphRegion&) = delete;
  GraphRegion& operator=(const GraphRegion&) = delete;

  const mt_region& abi() const { return abi_; }
  // The values that the graph gives it and takes from it, in the order of mt_region_args.
  const std::vector<ValueId>& inputs() const { return input_ids_; }
  const std::vector<ValueId>& outputs() const { return output_ids_; }
  bool writes(size_t input) const {
    return (values_[inputs_[input]].flags & MT_REGION_WRITTEN) != 0;
  }
  bool has_constants() const;
  const std::vector<Generator>& generators() const { return generators_; }  // of random calls
  const std::string& name() const { return name_; }                         // "region_mm_relu"
  // Returns the names of the operators, "mm, relu".
  std::string operators() const;

 private:
  int32_t value(ValueId id);
  void add_node(const GraphNode& node);
  mt_region_arg argument(const GraphNode& node, size_t at);
  template <class T>
  const T* keep(const std::vector<T>& list);
  void classify(const std::vector<const void*>& constants);
  bool is_used_outside(const MemoryFlow& memory) const;

  const Flow& flow_;
  const std::vector<int32_t> members_;
  absl::flat_hash_map<ValueId, int32_t> numbers_;   // of the values
  absl::flat_hash_map<int32_t, int32_t> memories_;  // numbers of the memories
  std::vector<ValueId> ids_;                        // of each value
  std::vector<bool> made_;                          // whether a node has the value as its result
  std::vector<mt_region_value> values_;
  std::vector<mt_region_node> nodes_;
  std::vector<uint64_t> bytes_;
  std::vector<int32_t> inputs_, outputs_;
  std::vector<ValueId> input_ids_, output_ids_;
  std::vector<Generator> generators_;
  std::string name_;
  // What the structs point to.
  std::deque<std::vector<int32_t>> number_lists_;
  std::deque<std::vector<mt_region_arg>> args_;
  mt_region abi_{};
};

}  // namespace mytorch::graph
