// The contract between mytorch and a backend, in C11. This header includes nothing of mytorch, and
// it is the only thing that the two sides share: a backend is a shared library that exports
//
//     int mt_backend_init(const mt_host* host, mt_backend* backend);
//
// fills in `backend` and returns MT_OK. Rules that hold everywhere below:
//
//  * Every struct that may grow begins with `size`, set by whoever made it. A reader looks only at
//    the fields inside `size`; a field outside it reads as zero. NULL means "not supported".
//  * Functions that can fail return a status (MT_OK or one of the codes); the text of an error goes
//    through `mt_ctx::set_error` (or `mt_host::set_error` where there is no context yet).
//  * The framework never unloads a backend: pointers given to it stay valid for the process.
//  * Strings are UTF-8, zero-terminated, and live as long as their struct.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The major rises when something locked changes, and then nothing older loads; the minor with the
// first thing appended after a release. Whoever reads a struct asks its `size`, not the minor,
// which is there to be told: 1.1 appended graphs, memory statistics, pinned memory, timed events
// and operators from outside.
#define MT_ABI_MAJOR 1u
#define MT_ABI_MINOR 1u

// ---- status ----
//
// The codes of mytorch::Error, plus MT_DECLINED: "this kernel does not take this call", after
// which the next kernel is asked. A kernel that declines has touched nothing.
enum {
  MT_OK = 0,
  MT_DECLINED = 1,
  MT_ERROR_SHAPE = 2,
  MT_ERROR_TYPE = 3,
  MT_ERROR_DEVICE = 4,
  MT_ERROR_VALUE = 5,
  MT_ERROR_UNSUPPORTED = 6,
  MT_ERROR_OUT_OF_MEMORY = 7,
  MT_ERROR_IO = 8,
  MT_ERROR_INTERNAL = 9
};

// ---- tensors ----
//
// Device types and dtype codes are DLPack's (DLDevice, DLDataType). Types allocated at run time,
// for devices DLPack does not know, start at MT_DEVICE_DYNAMIC.
enum { MT_DEVICE_CPU = 1, MT_DEVICE_CUDA = 2, MT_DEVICE_DYNAMIC = 0x10000 };
enum { MT_INT = 0, MT_UINT = 1, MT_FLOAT = 2, MT_BFLOAT = 4, MT_COMPLEX = 5, MT_BOOL = 6 };

typedef struct mt_device {
  int32_t type;
  int32_t index;
} mt_device;

typedef struct mt_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;  // always 1
} mt_dtype;

// Exactly DLPack's DLTensor. `data` already points at the first element (byte_offset is 0 in
// operands of kernels); strides are in elements and never NULL.
typedef struct mt_dltensor {
  void* data;
  mt_device device;
  int32_t ndim;
  mt_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} mt_dltensor;

// What tensors that share memory share. `version` counts writes; a cache keyed on (id, version)
// must ignore a storage that is MT_STORAGE_ESCAPED, because writes to it can no longer be counted.
enum { MT_STORAGE_ESCAPED = 1u };
typedef struct mt_storage {
  uint64_t id;  // never reused in a process
  uint64_t version;
  uint32_t flags;
  uint32_t reserved;
} mt_storage;

// An operand. Always passed by pointer, so that it can grow.
enum {
  MT_TENSOR_HOST = 1u,  // 0-dim, its one element readable by the host at dl.data, on any device
  MT_TENSOR_CONTIGUOUS = 2u  // in row-major order, without gaps
};
#define MT_TENSOR_DENSE MT_TENSOR_CONTIGUOUS  // its name in contract 1.0 and 1.1
typedef struct mt_tensor {
  mt_dltensor dl;
  const mt_storage* storage;  // NULL for MT_TENSOR_HOST operands made from a number
  uint32_t flags;
  uint32_t layout;  // 0 = strided; others are made by explicit pack operations only
} mt_tensor;

// ---- non-tensor arguments ----

enum { MT_SCALAR_NONE = 0, MT_SCALAR_BOOL = 1, MT_SCALAR_INT = 2, MT_SCALAR_FLOAT = 3 };
typedef struct mt_scalar {
  union {
    int64_t i;  // BOOL (0 or 1) and INT
    double d;   // FLOAT
  } v;
  int32_t kind;  // MT_SCALAR_NONE is an absent `Scalar?`
  int32_t reserved;
} mt_scalar;

typedef struct mt_optional_int {
  int64_t value;
  int64_t present;
} mt_optional_int;

typedef struct mt_optional_float {
  double value;
  int64_t present;
} mt_optional_float;

typedef struct mt_int_list {
  const int64_t* data;  // NULL is an absent `int[]?`
  int64_t size;
} mt_int_list;

typedef struct mt_float_list {
  const double* data;
  int64_t size;
} mt_float_list;

typedef struct mt_tensor_list {
  const mt_tensor* const* data;
  int64_t size;
} mt_tensor_list;

// One random call: Philox 4x32-10 with key = seed and counter = (element / 4, call).
// Where `call_on_device` is not NULL the call number is read there, and `call` is added to it.
typedef struct mt_random {
  uint64_t seed;
  uint64_t call;
  const uint64_t* call_on_device;
} mt_random;

// How argument types of a schema appear in an op's generated argument struct (`mt_args_OP`, whose
// first member is an mt_args_header; outputs follow the inputs):
//   Tensor, Tensor?, Operand, Operand?, output   const mt_tensor*  (NULL when absent or unwanted)
//   Tensor[]                                     mt_tensor_list
//   Scalar, Scalar?                              mt_scalar
//   int, bool / int?, bool?                      int64_t / mt_optional_int
//   float / float?                               double / mt_optional_float
//   int[], int[]? / float[], float[]?            mt_int_list / mt_float_list
//   str, str?                                    const char*
//   ScalarType, ScalarType?                      mt_dtype          (bits = 0 when absent)
//   Generator?                                   mt_random
// What the host has found out about the operands of a pointwise call, so that kernels need not.
enum {
  MT_ARGS_UNIFORM = 1u  // all contiguous and of one shape, the inputs of the computation type (HOST
                        // operands aside), the outputs of the types that the program gives them
};
typedef struct mt_args_header {
  size_t size;
  mt_dtype
      compute;  // the type to compute in: what the operands promote to, before widening f16/bf16
  uint16_t
      variant;  // which of the record's bodies applies, where its arguments choose between several
  uint16_t flags;  // MT_ARGS_*
} mt_args_header;

// ---- the context of a call ----

typedef struct mt_ctx mt_ctx;
typedef struct mt_host mt_host;
typedef void (*mt_range_fn)(void* user, int64_t begin, int64_t end);

// One per (thread, device). The host owns everything reachable from it.
struct mt_ctx {
  size_t size;
  mt_device device;
  void* stream;         // the device's own stream handle; NULL on the CPU
  int32_t num_threads;  // how many threads `parallel_for` may use, at least 1
  int32_t reserved;
  const mt_host* host;
  // Runs body(user, b, e) over disjoint pieces that cover [begin, end), each at least `grain` long
  // except the last. Calls inside a body run in place. The body must not throw.
  void (*parallel_for)(mt_ctx*, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                       void* user);
  // Memory of the context's device, 64-byte aligned, valid until the kernel returns (on a stream:
  // until the work it queued has run). NULL when out of memory. Not to be called inside
  // parallel_for.
  void* (*scratch)(mt_ctx*, size_t bytes);
  // Sets the message that goes with the status returned next.
  void (*set_error)(mt_ctx*, int status, const char* message);
  // For records marked `dynamic`: makes output number `index` with this shape, and returns it.
  const mt_tensor* (*make_output)(mt_ctx*, int32_t index, const int64_t* shape, int32_t ndim);
};

// ---- kernels ----
//
// What a kernel accepts beyond contiguous, non-overlapping operands of one shape and dtype. The
// host converts operands for a kernel that does not set the flag.
enum {
  MT_TAKES_STRIDED = 1u,       // any strides, in inputs and outputs
  MT_TAKES_BROADCAST = 2u,     // inputs of pointwise ops whose shapes broadcast to the output's
  MT_TAKES_MIXED_DTYPES = 4u,  // operands whose dtypes differ from args->compute
  MT_TAKES_ALIAS = 8u          // an output that is exactly one of the inputs
};

typedef int (*mt_run_fn)(void* self, mt_ctx* ctx, const void* args);
// Returns NULL if the kernel takes this call, otherwise the reason why it does not.
typedef const char* (*mt_supports_fn)(void* self, const void* args);

// A kernel as a backend registers it. `mt_candidate` is its name in contract 1.0 and 1.1.
typedef struct mt_candidate {
  size_t size;
  const char* op;    // "add.Tensor"
  uint64_t hash;     // of the schema it was written for: MT_HASH_add_Tensor in mytorch/abi_ops.h
  const char* name;  // of the kernel, for people: "packed_gemm"
  int32_t priority;  // the highest is asked first; 0 for an ordinary kernel
  uint32_t flags;    // MT_TAKES_*
  mt_supports_fn supports;  // NULL: always
  mt_run_fn run;
  void* self;  // passed to both; the backend's own data
} mt_candidate;
typedef mt_candidate mt_kernel_entry;

// In the argument struct of an operator: its name and the hash of its schema, for C++.
#ifdef __cplusplus
#define MT_OPERATOR(name, hash)                  \
  static constexpr const char* kOperator = name; \
  static constexpr uint64_t kSchemaHash = hash;
#else
#define MT_OPERATOR(name, hash)
#endif

// ---- programs ----
//
// The body of a pointwise or reduce record, in static single assignment. Node k computes value k
// from values before it. `op` is the name of a node operation (docs/records.md lists them; each is
// itself an operator of the same name) or one of
//   "input"   tensor argument;  `offset` of its field in the argument struct
//   "scalar"  number argument;  `offset` likewise (mt_scalar, int64_t or double by `field`)
//   "const"   `value`
//   "cast"    a[0] converted to `type`
//   "count"   reduce bodies: the number of elements reduced
//   "state"   reduce bodies: component `component` of the reduced state ("0": its first)
enum { MT_TYPE_COMPUTE = 0, MT_TYPE_BOOL = 1, MT_TYPE_INDEX = 2 };
enum { MT_FIELD_SCALAR = 0, MT_FIELD_INT = 1, MT_FIELD_FLOAT = 2 };
typedef struct mt_node {
  const char* op;
  int32_t type;  // MT_TYPE_*: the computation type of the call, bool, or int64
  int32_t a[3];  // operands, -1 where absent
  int32_t field;
  int32_t component;
  uint32_t offset;
  uint32_t reserved;
  double value;
} mt_node;

typedef struct mt_program_output {
  int32_t node;
  uint32_t offset;  // of the output's field in the argument struct; the field may be NULL
} mt_program_output;

// A reduction folds, over the reduced dimensions, the value of node `step` into a state of kind
// `fold`: "sum", "prod", "max", "min", "argmax", "argmin", "all", "any", "welford" (count, mean,
// m2) or "logsumexp" (max, sum). argmax and argmin have the state (index, value); ties take the
// first index; NaN wins. The outputs' nodes then read the state. `fold` is NULL for pointwise
// programs.
typedef struct mt_program {
  size_t size;
  const char* name;  // the op
  uint32_t variant;  // of the op's bodies; matches mt_args_header::variant
  uint32_t reserved;
  uint64_t hash;  // of everything below
  const mt_node* nodes;
  int32_t num_nodes;
  int32_t num_outputs;
  const mt_program_output* outputs;
  const char* fold;
  int32_t step;         // reduce: the node folded
  uint32_t dim_offset;  // reduce: field of the reduced dims: mt_int_list (absent = all) or int64_t
  int32_t dim_field;    // MT_DIM_*
  uint32_t keepdim_offset;  // reduce: field of keepdim (int64_t); 0 when the op has none
} mt_program;
enum { MT_DIM_LIST = 0, MT_DIM_INT = 1, MT_DIM_OPTIONAL_INT = 2, MT_DIM_ALL = 3 };

// ---- a device ----
//
// What a backend that brings a device must supply. A backend for an existing device leaves
// `mt_backend::device` NULL. All functions may be called from any thread.
enum { MT_COPY_TO_DEVICE = 0, MT_COPY_TO_HOST = 1, MT_COPY_ON_DEVICE = 2 };
typedef struct mt_memory_stats {
  size_t size;         // set by the caller
  uint64_t allocated;  // bytes handed out, as the allocator rounds them
  uint64_t allocated_peak;
  uint64_t reserved;  // bytes taken from the driver
  uint64_t reserved_peak;
  uint64_t largest_free;  // the largest free block
  uint64_t blocks;        // handed out
  uint64_t segments;      // held
  uint64_t retries;       // how often a request found memory only after caches were given back
  uint64_t failures;      // and how often not even then
} mt_memory_stats;
typedef struct mt_device_ops {
  size_t size;
  int32_t type;             // a DLPack code; 0 asks the host for a run-time type
  int32_t host_accessible;  // 1 when host code may read device pointers
  int (*device_count)(void* self);
  void* (*allocate)(void* self, int32_t index, size_t bytes, void* stream);  // NULL: out of memory
  void (*release)(void* self, int32_t index, void* data, size_t bytes, void* stream);
  // Contiguous bytes; ordered on `stream`, may return before it is done.
  int (*copy)(void* self, int32_t index, int32_t kind, void* to, const void* from, size_t bytes,
              void* stream);
  void* (*create_stream)(void* self, int32_t index, int32_t priority);
  int (*synchronize)(void* self, int32_t index, void* stream);
  void* (*record_event)(void* self, int32_t index, void* stream);
  int (*wait_event)(void* self, int32_t index, void* stream, void* event);  // stream NULL: the host
  int (*query_event)(void* self, void* event);  // 1 done, 0 not yet, negative: error
  void (*destroy_event)(void* self, void* event);
  // Optional from here.
  void (*destroy_stream)(void* self, int32_t index, void* stream);
  int (*memory_info)(void* self, int32_t index, uint64_t* free_bytes, uint64_t* total_bytes);
  int (*device_name)(void* self, int32_t index, char* buffer, size_t bytes);
  int (*copy_peer)(void* self, int32_t to_index, void* to, int32_t from_index, const void* from,
                   size_t bytes, void* stream);
  // Graphs, all four or none. From begin_graph to end_graph the work that anybody queues on
  // `stream` is noted and not run; launch_graph queues all of it at once on a stream, as often as
  // wanted. What `allocate` gives for the stream meanwhile is the graph's until destroy_graph:
  // released, it serves the same recording only. end_graph returns NULL where what was queued makes
  // no graph; the recording is over then, too.
  int (*begin_graph)(void* self, int32_t index, void* stream);
  void* (*end_graph)(void* self, int32_t index, void* stream);
  int (*launch_graph)(void* self, int32_t index, void* graph, void* stream);
  void (*destroy_graph)(void* self, int32_t index, void* graph);
  // What the device's allocator holds; a text for people, cut to `bytes` with its final zero, of
  // which the whole length without it is returned; giving back what is cached; peaks begin anew.
  int (*memory_stats)(void* self, int32_t index, mt_memory_stats* stats);
  int64_t (*memory_summary)(void* self, int32_t index, char* buffer, size_t bytes);
  int (*empty_cache)(void* self, int32_t index);
  int (*reset_peaks)(void* self, int32_t index);
  // Host memory that devices of this type copy from and to while the host goes on: `copy` returns
  // before it is done. Released memory is not given out again before those copies are done.
  void* (*allocate_pinned)(void* self, size_t bytes);  // NULL: out of memory
  void (*release_pinned)(void* self, void* data, size_t bytes);
  // Both or none: an event that knows when the stream came to it, otherwise like others; and the
  // seconds from one such to another on the same device, both of which have come.
  void* (*record_timed_event)(void* self, int32_t index, void* stream);
  int (*event_elapsed)(void* self, void* begin, void* end, double* seconds);
} mt_device_ops;

// ---- a backend ----

struct mt_host {
  size_t size;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* version;  // of mytorch
  // For init and device functions, which have no context.
  void (*set_error)(int status, const char* message);
  void (*log)(int level, const char* message);  // 0 info, 1 warning
};

// An operator of the backend's own, which the framework then calls, differentiates and lists as it
// does its own. Kernels for it are registered like others, also by other backends; their `hash` may
// be 0. Its argument struct has the arguments in the schema's order, then the results, as the table
// above says.
enum { MT_MAX_DIMS = 64 };
typedef struct mt_result {
  int32_t ndim;
  mt_dtype dtype;
  int64_t shape[MT_MAX_DIMS];
} mt_result;
typedef struct mt_operator {
  size_t size;
  const char* schema;    // "library::name(Tensor x, *, float beta=1) -> Tensor"
  const char* doc;       // may be NULL
  const char* gradient;  // "none", or the operator that computes it: see mytorch/operator.h
  // Shape and type of each result, from the argument struct, in which results are NULL. Fails with
  // a status and mt_host::set_error.
  int (*infer)(void* self, const void* args, mt_result* results);
  void* self;
} mt_operator;

typedef struct mt_backend {
  size_t size;
  uint32_t abi_major;
  uint32_t abi_minor;
  const char* name;  // "cpu-openmp"
  const char* version;
  const char* device_type;  // "cpu", "cuda", "npu": the name in mytorch::Device
  void* self;               // passed to the functions below and to the device's
  const mt_device_ops* device;
  // The second names are those of contract 1.0 and 1.1.
  union {
    const mt_kernel_entry* kernels;
    const mt_kernel_entry* candidates;
  };
  union {
    int64_t num_kernels;
    int64_t num_candidates;
  };
  // Optional: makes a kernel of a program for given types. `compute` is the computation type,
  // `types` those of the program's inputs in node order and then of its outputs. Fills `kernel`
  // (its op, hash and priority are the caller's) or returns MT_DECLINED. The kernel lives forever.
  int (*compile)(void* self, const mt_program* program, mt_dtype compute, const mt_dtype* types,
                 int32_t num_types, mt_kernel_entry* kernel);
  int32_t compile_priority;
  uint32_t flags;  // MT_BACKEND_*
  const char* (*describe)(
      void* self);               // for `mytorch info`: instruction sets, driver versions, ...
  const mt_operator* operators;  // a gradient's operator before the one that it serves
  int64_t num_operators;
} mt_backend;
enum {
  MT_BACKEND_REFERENCE = 1u  // never chosen unless pinned, or as the fallback that the user allowed
};
#define MT_BACKEND_ORACLE MT_BACKEND_REFERENCE  // its name in contract 1.0 and 1.1

#if defined(_WIN32)
#define MT_EXPORT __declspec(dllexport)
#else
#define MT_EXPORT __attribute__((visibility("default")))
#endif

typedef int (*mt_backend_init_fn)(const mt_host*, mt_backend*);

#ifdef __cplusplus
}  // extern "C"
#endif
