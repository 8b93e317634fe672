// Regions (mytorch/abi_region.h) for authors of graph compilers: reading nodes by name, and the
// entries.
//
//   void claim(const sdk::Region& region, std::span<int32_t> wanted) {
//     for (const sdk::RegionNode node : region.nodes()) {
//       if (node.calls<mt_args_relu>()) wanted[node.index()] = 1;
//     }
//   }
//   // Computes one region. Throws sdk::Declined{} to leave it to kernels.
//   class Compiled final : public sdk::CompiledRegion {
//    public:
//     explicit Compiled(const sdk::Region& region);
//     void run(mt_ctx& ctx, const mt_region_args& args) override;
//   };
//   constexpr mt_region_ops kRegions = sdk::region_ops<&claim, Compiled>();
//
// and in mt_backend_init: fill_backend(host, backend, {..., .regions = &kRegions}).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "mytorch/abi_region.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/kernel.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

class Region;

namespace internal {
// Returns an element of a list whose elements may be larger than this header knows.
template <class T>
const T& element(const T* list, int32_t at, uint32_t size) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(list) +
                                     static_cast<size_t>(at) * size);
}
}  // namespace internal

// A call of an operator in a region.
class RegionNode {
 public:
  RegionNode(const mt_region& region, int32_t index)
      : region_(&region),
        node_(&internal::element(region.nodes, index, region.node_size)),
        index_(index) {}

  int32_t index() const { return index_; }
  const mt_region_node& abi() const { return *node_; }
  std::string_view op() const { return node_->op; }
  // Returns whether the node calls the function of the operator whose argument struct is Args
  // (mytorch/abi_ops.h), as it was when this backend was compiled: not its in-place or out= form.
  template <class Args>
  bool calls() const {
    return node_->form == MT_REGION_FUNCTION && node_->hash == Args::kSchemaHash &&
           op() == Args::kOperator;
  }

  int32_t num_args() const { return node_->num_args; }
  const mt_region_arg& arg(int32_t at) const {
    return internal::element(node_->args, at, region_->arg_size);
  }
  // Returns the tensors of an argument: none if it is no tensor, -1 for an absent one.
  std::span<const int32_t> values_at(int32_t at) const {
    const mt_region_arg& found = arg(at);
    if (found.kind != MT_REGION_ARG_VALUES) return {};
    return {found.v.values, static_cast<size_t>(found.count)};
  }
  // Returns the argument of a name. Throws Error if the operator has none.
  const mt_region_arg& arg(std::string_view name) const {
    for (int32_t i = 0; i < num_args(); ++i) {
      if (name == arg(i).name) return arg(i);
    }
    throw Error(MT_ERROR_INTERNAL, text() + " has no argument " + std::string(name));
  }
  // Return an argument of a kind. Throw Error for an argument of another kind.
  bool has(std::string_view name) const { return arg(name).kind != MT_REGION_ARG_NONE; }
  bool is_value(std::string_view name) const {
    const mt_region_arg& found = arg(name);
    return found.kind == MT_REGION_ARG_VALUES && found.list == 0;
  }
  int32_t value(std::string_view name) const {
    if (!is_value(name))
      throw Error(MT_ERROR_INTERNAL, text() + ": no tensor " + std::string(name));
    return arg(name).v.values[0];
  }
  std::span<const int32_t> values(std::string_view name) const {
    const mt_region_arg& found = of_kind(name, MT_REGION_ARG_VALUES);
    return {found.v.values, static_cast<size_t>(found.count)};
  }
  double number(std::string_view name) const {
    return to<double>(of_kind(name, MT_REGION_ARG_NUMBER).v.number);
  }
  int64_t integer(std::string_view name) const {
    return to<int64_t>(of_kind(name, MT_REGION_ARG_NUMBER).v.number);
  }
  std::span<const int64_t> integers(std::string_view name) const {
    const mt_region_arg& found = of_kind(name, MT_REGION_ARG_INTS);
    return {found.v.ints, static_cast<size_t>(found.count)};
  }
  std::string_view string(std::string_view name) const {
    return of_kind(name, MT_REGION_ARG_STRING).v.string;
  }

  std::span<const int32_t> results() const {
    return {node_->results, static_cast<size_t>(node_->num_results)};
  }
  int32_t result() const { return node_->results[0]; }

  // Returns "[mm]", with which errors begin.
  std::string text() const { return "[" + std::string(op()) + "]"; }

 private:
  const mt_region_arg& of_kind(std::string_view name, int32_t kind) const {
    const mt_region_arg& found = arg(name);
    if (found.kind != kind) {
      throw Error(MT_ERROR_INTERNAL,
                  text() + ": " + std::string(name) + " is an argument of another kind");
    }
    return found;
  }

  const mt_region* region_;
  const mt_region_node* node_;
  int32_t index_;
};

// The nodes of a region, for loops.
class RegionNodes {
 public:
  class Iterator {
   public:
    Iterator(const mt_region& region, int32_t at) : region_(&region), at_(at) {}
    RegionNode operator*() const { return RegionNode(*region_, at_); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const mt_region* region_;
    int32_t at_;
  };
  explicit RegionNodes(const mt_region& region) : region_(&region) {}
  Iterator begin() const { return {*region_, 0}; }
  Iterator end() const { return {*region_, region_->num_nodes}; }

 private:
  const mt_region* region_;
};

class Region {
 public:
  Region(const mt_region& region) : region_(&region) {}  // NOLINT: an implicit conversion

  const mt_region& abi() const { return *region_; }
  bool is_exact() const { return (region_->flags & MT_REGION_EXACT) != 0; }
  RegionNode node(int32_t at) const { return RegionNode(*region_, at); }
  // Returns a range of RegionNode.
  RegionNodes nodes() const { return RegionNodes(*region_); }

  int32_t num_values() const { return region_->num_values; }
  const mt_region_value& value(int32_t id) const {
    return internal::element(region_->values, id, region_->value_size);
  }
  std::span<const int64_t> shape(int32_t id) const {
    return {value(id).shape, static_cast<size_t>(value(id).ndim)};
  }
  std::span<const int64_t> strides(int32_t id) const {
    return {value(id).strides, static_cast<size_t>(value(id).ndim)};
  }
  int64_t numel(int32_t id) const { return product(shape(id)); }
  bool is_contiguous(int32_t id) const {
    int64_t expected = 1;
    bool contiguous = true;
    for (int32_t d = value(id).ndim - 1; d >= 0; --d) {
      const int64_t size = value(id).shape[d];
      if (size == 0) return true;
      if (size != 1 && value(id).strides[d] != expected) contiguous = false;
      expected *= size;
    }
    return contiguous;
  }
  std::span<const int32_t> inputs() const {
    return {region_->inputs, static_cast<size_t>(region_->num_inputs)};
  }
  std::span<const int32_t> outputs() const {
    return {region_->outputs, static_cast<size_t>(region_->num_outputs)};
  }
  // Returns a value of the host that lies in the memory of a value: an input, an output or a
  // constant. Nothing if the memory is the backend's own.
  std::optional<int32_t> host_value(int32_t id) const {
    if (value(id).kind != MT_REGION_INSIDE) return id;
    for (int32_t other = 0; other < num_values(); ++other) {
      const bool inside = value(other).kind == MT_REGION_INSIDE;
      if (!inside && value(other).memory == value(id).memory) return other;
    }
    return std::nullopt;
  }

 private:
  const mt_region* region_;
};

// Returns the first element of a value in memory of the host. `host` is host_value(id).
inline void* region_data(const Region& region, const mt_region_args& args, int32_t id,
                         int32_t host) {
  const mt_region_value& of = region.value(host);
  const void* data = of.kind == MT_REGION_CONSTANT ? of.data
                     : of.kind == MT_REGION_INPUT  ? TensorView(args.inputs[of.index]).raw()
                                                   : TensorView(args.outputs[of.index]).raw();
  return static_cast<char*>(const_cast<void*>(data)) +
         region.value(id).offset * itemsize(region.value(id).dtype) -
         of.offset * itemsize(of.dtype);
}

// A region that a backend has compiled.
class CompiledRegion {
 public:
  CompiledRegion() = default;
  virtual ~CompiledRegion() = default;
  CompiledRegion(const CompiledRegion&) = delete;
  CompiledRegion& operator=(const CompiledRegion&) = delete;

  // The scratch memory that a run needs, in bytes.
  virtual uint64_t scratch_bytes() const { return 0; }
  // MT_REGION_CAPTURABLE, if it holds.
  virtual uint32_t flags() const { return 0; }
  virtual void run(mt_ctx& ctx, const mt_region_args& args) = 0;
};

namespace internal {

inline void report_to_host(int status, const char* message) {
  if (host() != nullptr && host()->set_error != nullptr) host()->set_error(status, message);
}

// Returns the arguments, of which the fields that an older host does not know are zero.
inline mt_region_args full_args(const mt_region_args& given) {
  mt_region_args full{};
  std::memcpy(&full, &given, std::min(given.size, sizeof(full)));
  return full;
}

inline int run_region(void* self, mt_ctx* ctx, const mt_region_args* args) noexcept {
  return guarded(ctx, [&] { static_cast<CompiledRegion*>(self)->run(*ctx, full_args(*args)); });
}
inline void destroy_region(void* self) noexcept { delete static_cast<CompiledRegion*>(self); }

template <auto claim_fn>
int claim_entry(void* /*self*/, const mt_region* region, int32_t* wanted) noexcept {
  return status_of(
      [&] { claim_fn(Region(*region), std::span(wanted, static_cast<size_t>(region->num_nodes))); },
      report_to_host);
}

template <class Compiled>
int compile_region_entry(void* /*self*/, const mt_region* region,
                         mt_compiled_region* compiled) noexcept {
  return status_of(
      [&] {
        std::unique_ptr<CompiledRegion> made = std::make_unique<Compiled>(Region(*region));
        mt_compiled_region filled{};
        filled.size = compiled->size;
        filled.flags = made->flags();
        filled.scratch_bytes = made->scratch_bytes();
        filled.run = &run_region;
        filled.destroy = &destroy_region;
        filled.self = made.release();
        std::memcpy(compiled, &filled, std::min(compiled->size, sizeof(filled)));
      },
      report_to_host);
}

}  // namespace internal

// Returns the entries of a backend: `void claim(const Region&, std::span<int32_t> wanted)`, and a
// CompiledRegion that is made from a Region. `flags` are MT_REGIONS_*.
template <auto claim_fn, class Compiled>
constexpr mt_region_ops region_ops(uint32_t flags = 0) {
  return {sizeof(mt_region_ops), flags, &internal::claim_entry<claim_fn>,
          &internal::compile_region_entry<Compiled>};
}

}  // namespace v1
}  // namespace mytorch::sdk
