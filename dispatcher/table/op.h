// What the program knows about an operator. OpInfo is generated from its record; OpEntry is its row
// in the table.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/call.h"
#include "mytorch/dtype.h"
#include "mytorch/thread_state.h"

namespace mytorch {

enum class ArgType : uint8_t {
  kTensor,
  kTensorList,
  kOperand,
  kScalar,
  kInt,
  kBool,
  kFloat,
  kIntList,
  kFloatList,
  kStr,
  kScalarType,
  kDevice,
  kGenerator,
};

enum class Meaning : uint8_t { kPointwise, kReduce, kView, kComposite, kPrimitive };

// How the types of the operands give the type to compute in and the type of the result
// (docs/records.md, "promote").
enum class Promote : uint8_t { kNone, kSame, kFloat, kCompare, kWiden, kFirst };

inline constexpr uint32_t kNoField = UINT32_MAX;

// Flags of an argument.
enum ArgFlags : uint8_t {
  kOptional = 1 << 0,
  kKwOnly = 1 << 1,
  kWritten = 1 << 2,   // Tensor(a!)
  kPromotes = 1 << 3,  // takes part in promotion, and is converted to the compute type
};

struct ArgInfo {
  constexpr ArgInfo() = default;
  constexpr ArgInfo(const char* name_, ArgType type_, int flags, const char* default_,
                    uint32_t offset_)
      : name(name_),
        type(type_),
        optional((flags & kOptional) != 0),
        kw_only((flags & kKwOnly) != 0),
        written((flags & kWritten) != 0),
        promotes((flags & kPromotes) != 0),
        default_text(default_),
        offset(offset_) {}

  const char* name = nullptr;
  ArgType type = ArgType::kTensor;
  bool optional = false;
  bool kw_only = false;
  bool written = false;
  bool promotes = false;
  const char* default_text = nullptr;  // as in the schema; null if the argument must be given
  uint32_t offset = kNoField;          // of its field in the argument struct
};

struct OutputInfo {
  const char* name;
  uint32_t offset;  // kNoField where it is no output of the kernel (a view, a written argument)
  int8_t dtype;     // a fixed ScalarType, or -1: the promoted type
};

// The schema of an earlier release, for which kernels may have been built.
struct OlderSchema {
  uint64_t hash;
  uint32_t first_new;  // offset of the first field of the argument struct that it did not have
};

struct OpInfo {
  const char* name;  // "add.Tensor"
  const char* base;  // "add"
  const char* schema;
  const char* doc;
  uint64_t hash;
  Meaning meaning;
  Promote promote;
  bool has_kernel;  // kernels may be registered for it
  bool derived;     // made by differentiation of another record
  bool dynamic;
  bool differentiable;
  uint32_t input_promotes;  // pointwise: bit i, the i-th tensor argument takes part in promotion
  int16_t num_inputs;       // tensor arguments
  // Pointwise: the types, as bits, that operands of one type may have without a closer look; none
  // where an operand does not take part in promotion.
  uint16_t uniform_types;
  const uint16_t* accepts;  // of each tensor argument the types it may have, as bits; null: any
  const ArgInfo* args;
  int32_t num_args;
  const OutputInfo* outputs;
  int32_t num_outputs;
  uint32_t args_size;                 // of the argument struct
  const mt_program* const* programs;  // one per variant; null where the meaning is no program
  int32_t num_programs;
  // Calls the functional form with one boxed value per argument, in schema order. `inplace` and
  // `out` are the other forms, null where the op has none (`out` takes the outputs after the
  // arguments).
  void (*boxed)(const Value* args, std::vector<Value>* results);
  void (*boxed_inplace)(const Value* args, std::vector<Value>* results);
  void (*boxed_out)(const Value* args, std::vector<Value>* results);
  const OlderSchema* older = nullptr;
  int32_t num_older = 0;
  const struct CustomOperator* custom = nullptr;  // of an operator registered at run time
};

// A kernel, callable without looking further.
struct BoundKernel {
  mt_run_fn run;
  void* self;
};

// The forms of an operator. A record that writes lists of tensors has the first alone.
enum Form : int { kFunction, kInplace, kOut };
inline constexpr int kNumForms = 3;

struct OpState;  // kernels, owned by choice/

struct OpEntry {
  // What a call on a device of this type runs: the only kernel where it takes every call, else
  // the choice between them; a slot that declines where there is none. Never null.
  std::atomic<const BoundKernel*> slots[kMaxDeviceTypes] = {
      {&kDeclines}, {&kDeclines}, {&kDeclines}, {&kDeclines},
      {&kDeclines}, {&kDeclines}, {&kDeclines}, {&kDeclines}};
  static_assert(kMaxDeviceTypes == 8);
  // A column per layer, in the order of LayerBits: the wrapper of each form, of the form's type;
  // null if the layer ignores it.
  void* wrappers[kNumLayers][kNumForms] = {};
  const OpInfo* info = nullptr;
  std::atomic<OpState*> state{nullptr};

  constexpr explicit OpEntry(const OpInfo* info_) : info(info_) {}
  static const BoundKernel kDeclines;  // returns MT_DECLINED
};

// The generated table: every operator of ops.yaml.
struct OpTable {
  OpEntry* const* entries;
  int32_t size;
};
extern const OpTable kGeneratedOps;

// Operators by name ("add.Tensor"), those registered at run time included; null if there is none.
OpEntry* find_op(std::string_view full_name);
// All overloads of "add", in the order of the records.
std::vector<OpEntry*> find_overloads(std::string_view base);
std::vector<OpEntry*> all_ops();
// Adds an operator, for good. Throws Error(kValue) where there is one of that name.
void add_op(OpEntry& entry);
// Takes back what add_op() did, for an operator that nobody has called. It stays in memory.
void remove_op(OpEntry& entry);

}  // namespace mytorch
