// A small graph compiler for the CPU: regions of products of matrices and pointwise operators, in
// float32, become a list of loops over buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "mytorch/backend/region.h"
#include "operators.h"

namespace loops {

// Marks the nodes that a region may have.
void claim(const sdk::Region& region, std::span<int32_t> wanted);

class Compiled final : public sdk::CompiledRegion {
 public:
  explicit Compiled(const sdk::Region& region);
  uint64_t scratch_bytes() const override { return scratch_; }
  void run(mt_ctx& ctx, const mt_region_args& args) override;

 private:
  // Where the elements of a value are.
  struct Place {
    enum Kind : uint8_t { kInput, kOutput, kConstant, kScratch, kBlock };
    Kind kind = kBlock;  // kBlock: nowhere; only one loop uses it, a block at a time
    int64_t at = 0;      // the input, the output, or the offset in the scratch memory
    const void* data = nullptr;
    int64_t numel = 0;
  };
  // out = a @ b + bias, by rows. Strides are in elements.
  struct Product {
    int32_t out, a, b, bias;  // values; bias: -1 if there is none
    int64_t rows, inner, columns;
    int64_t a_row, a_inner, b_inner, b_column;
  };
  struct Instruction {
    Body body;
    int32_t out, a, b;   // values; b: -1 for a constant
    float constant = 0;  // in place of b
    float number = 1;
  };
  // Instructions over one number of elements.
  struct Loop {
    int64_t numel;
    std::vector<Instruction> body;
    std::vector<int32_t> blocks;  // the values that have no other place
  };
  using Step = std::variant<Product, Loop>;

  void add_product(const sdk::Region& region, const sdk::RegionNode& node);
  void add_pointwise(const sdk::Region& region, const sdk::RegionNode& node);
  void place_values(const sdk::Region& region);
  void run(mt_ctx& ctx, const Product& product, const std::vector<float*>& data) const;
  void run(mt_ctx& ctx, const Loop& loop, const std::vector<float*>& data) const;

  std::vector<Place> places_;  // by value
  std::vector<Step> steps_;
  uint64_t scratch_ = 0;
};

}  // namespace loops
