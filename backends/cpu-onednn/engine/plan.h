// A plan: a compiled primitive, and the reorders of operands before and after it. It is immutable
// and shared between threads.
//
// If the primitive chose another layout for an operand than the given one, the plan has a reorder
// between the two. Reordered weights may be cached (packed_weights.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "backends/cpu-onednn/engine/dnnl.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {

// A call's data for an operand of a plan.
struct Data {
  Data(void* memory) : pointer(memory) {}  // NOLINT: implicit
  Data(const sdk::TensorView& tensor)      // NOLINT: implicit; the tensor may be absent
      : pointer(tensor ? tensor.raw() : nullptr),
        storage(tensor ? tensor.get()->storage : nullptr) {}
  Data(const mt_tensor* tensor) : Data(sdk::TensorView(tensor)) {}  // NOLINT

  void* pointer;
  const mt_storage* storage = nullptr;
};

// Attributes of all primitives: the caller provides scratch memory, so that any thread may run any
// plan.
Attr attributes();

class Plan {
 public:
  // Throws Declined if oneDNN only has its reference implementation.
  explicit Plan(const Description& description);

  // Add the operands, in the order of a call's data. `given` is the operand's layout; an empty one
  // means that the operand is absent. A plan has at most one operand of weights.
  void input(int argument, const Desc& given) { add(argument, given, Role::kInput); }
  void weights(int argument, const Desc& given) { add(argument, given, Role::kWeights); }
  void output(int argument, const Desc& given) { add(argument, given, Role::kOutput); }

  // Returns the number of operands that are reordered; for tests.
  int conversions() const;

 private:
  friend class BoundPlan;
  enum class Role { kInput, kWeights, kOutput };
  struct Operand {
    int argument;
    Role role;
    Desc given, wanted;
    dnnl::primitive reorder;  // empty if the two are equal
    Desc reorder_scratchpad;
  };

  void add(int argument, const Desc& given, Role role);

  Description description_;
  dnnl::primitive primitive_;
  Desc scratchpad_;
  std::vector<Operand> operands_;
};

// A plan bound to one thread. It owns oneDNN's memory objects, and sets their pointers to each
// call's data instead of creating them again.
class BoundPlan {
 public:
  explicit BoundPlan(const Plan& plan);
  void run(mt_ctx& ctx, std::span<const Data> data);

 private:
  struct Operand {
    dnnl::memory given, wanted;
    size_t place = 0;    // index in `arguments_`
    size_t scratch = 0;  // offset of the converted operand in scratch memory
  };
  dnnl::memory converted(char* scratch, size_t i, const Data& data);

  const Plan& plan_;
  std::vector<Operand> operands_;
  dnnl::memory scratchpad_;
  std::vector<dnnl_exec_arg_t> arguments_;
  size_t scratchpad_at_ = 0, reorders_at_ = 0;  // offsets in scratch memory
  size_t scratch_bytes_ = 0;
};

}  // namespace mytorch::onednn
