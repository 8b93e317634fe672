// Regions: parts of a compiled function's graph that a backend compiles and runs as a whole
// (mt_backend::regions, docs/backends.md). The host shows a backend the nodes that it may have;
// the backend claims some; the host splits them into regions that can run as one step each, and has
// the backend compile each of them. What is not claimed, or declined, runs by kernels.
#pragma once

#include "mytorch/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

// A tensor of the graph: a type and a geometry over a memory. Several values may lie in one memory:
// a view, such as the result of `transpose.int`, has that of its operand. A memory is the host's if
// one of its values is INPUT, OUTPUT or CONSTANT, and the backend's otherwise. Strides and offsets
// are those of the host; in memory of its own, a backend may lay values out as it likes.
enum {
  MT_REGION_INPUT = 0,    // mt_region_args::inputs[index]
  MT_REGION_OUTPUT = 1,   // mt_region_args::outputs[index]: made in the region, read outside of it
  MT_REGION_INSIDE = 2,   // made in the region, or a view
  MT_REGION_CONSTANT = 3  // `data` holds its elements, which never change
};
// Flags of values: nodes of the region write to the memory of this input, and the writes are seen.
enum { MT_REGION_WRITTEN = 1u };
typedef struct mt_region_value {
  int32_t kind;    // MT_REGION_*
  int32_t index;   // of INPUT and OUTPUT
  int32_t memory;  // its number
  uint32_t flags;
  mt_dtype dtype;
  int32_t ndim;
  const int64_t* shape;
  const int64_t* strides;  // in elements
  int64_t offset;          // in elements, from where the memory begins to the first element
  const void* data;        // CONSTANT: the first element, in memory of the device
} mt_region_value;

// An argument of a node, in the order of the operator's schema.
enum {
  MT_REGION_ARG_NONE = 0,    // absent
  MT_REGION_ARG_VALUES = 1,  // v.values: `count` tensors; an absent one is -1
  MT_REGION_ARG_NUMBER = 2,  // v.number: Scalar, int, float, bool, or a number for a tensor
  MT_REGION_ARG_INTS = 3,    // v.ints
  MT_REGION_ARG_FLOATS = 4,  // v.floats
  MT_REGION_ARG_STRING = 5,  // v.string
  MT_REGION_ARG_DTYPE = 6,   // v.dtype
  MT_REGION_ARG_DEVICE = 7,  // v.device
  MT_REGION_ARG_RANDOM = 8   // v.random: the index in mt_region_args::random
};
typedef struct mt_region_arg {
  const char* name;  // in the schema
  int32_t kind;      // MT_REGION_ARG_*
  int32_t count;     // of values, ints or floats
  int32_t list;      // 1: the schema has a list of tensors
  int32_t written;   // 1: the node writes to the values
  union {
    const int32_t* values;
    mt_scalar number;
    const int64_t* ints;
    const double* floats;
    const char* string;
    mt_dtype dtype;
    mt_device device;
    int32_t random;
  } v;
} mt_region_arg;

// A call of an operator. `args` begins with the outputs in the out= form. An in-place form, an out=
// form, and some functions, write to the memory of their operands; nodes that share memory run in
// the order of the region.
enum { MT_REGION_FUNCTION = 0, MT_REGION_INPLACE = 1, MT_REGION_OUT = 2 };
typedef struct mt_region_node {
  const char* op;  // "add.Tensor", in all forms
  uint64_t hash;   // of its schema: MT_HASH_add_Tensor in mytorch/abi_ops.h
  int32_t form;    // MT_REGION_FUNCTION, ...
  int32_t num_args;
  int32_t num_results;
  int32_t reserved;
  const mt_region_arg* args;
  const int32_t* results;  // values, those of lists one after the other; -1: not wanted
} mt_region_node;

// With MT_REGION_EXACT, results must have the bits that the kernels give which would run otherwise.
enum { MT_REGION_EXACT = 1u };
typedef struct mt_region {
  size_t size;
  const char* name;  // for messages and profiles
  uint32_t flags;    // MT_REGION_EXACT
  mt_device device;
  int32_t num_nodes;
  int32_t num_values;
  int32_t num_memories;
  int32_t num_inputs;
  int32_t num_outputs;
  int32_t num_random;   // random calls
  uint32_t node_size;   // sizeof(mt_region_node), mt_region_value and mt_region_arg of the host,
  uint32_t value_size;  // which later versions may append to
  uint32_t arg_size;
  const mt_region_node* nodes;  // in an order in which they can run
  const mt_region_value* values;
  const uint64_t* memory_bytes;  // of each memory
  const int32_t* inputs;         // the values of mt_region_args::inputs and outputs
  const int32_t* outputs;
} mt_region;

// Operands have the types and geometries of their values. The memory of an output is no other
// operand's.
typedef struct mt_region_args {
  size_t size;
  const mt_tensor* const* inputs;
  const mt_tensor* const* outputs;
  const mt_random* random;
  void* scratch;  // mt_compiled_region::scratch_bytes, 64-byte aligned, of the context's device
} mt_region_args;

// Flags of a compiled region: `run` only queues work on the context's stream, with the addresses
// that it is given, so a device graph may hold it. A region without the flag keeps its plan from
// becoming a device graph.
enum { MT_REGION_CAPTURABLE = 1u };
typedef struct mt_compiled_region {
  size_t size;  // set by the host
  uint32_t flags;
  uint64_t scratch_bytes;  // memory of no lasting content that a run needs
  // Computes the region. Calls with one `self` do not overlap, and may come from any thread. Does
  // not decline.
  int (*run)(void* self, mt_ctx* ctx, const mt_region_args* args);
  void (*destroy)(void* self);  // may be NULL
  void* self;
} mt_compiled_region;

// Flags of a backend's regions: compiles regions that have MT_REGION_EXACT. Others are not shown to
// a backend without the flag. Both functions may be called from any thread.
enum { MT_REGIONS_EXACT = 1u };
typedef struct mt_region_ops {
  size_t size;
  uint32_t flags;  // MT_REGIONS_*
  // Marks the nodes that the backend wants in `wanted`, one number for each node, which are 0 at
  // first. Nodes with the same positive number become one region, or several if what one of them
  // computes would be needed by another one only after a node outside of the region has used it.
  // `region` has all nodes that the backend may have, and is valid during the call.
  int (*claim)(void* self, const mt_region* region, int32_t* wanted);
  // Compiles a region, which is valid during the call (the data of constants: until `destroy`).
  // Returns MT_DECLINED, or an error, to leave it to kernels.
  int (*compile)(void* self, const mt_region* region, mt_compiled_region* compiled);
} mt_region_ops;

#ifdef __cplusplus
}  // extern "C"
#endif
