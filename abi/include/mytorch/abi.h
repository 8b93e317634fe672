// The contract between mytorch and a backend, in C11. This header includes nothing of mytorch and
// is all that the two sides share: a backend is a shared library that exports
//
//     int mt_backend_init(const mt_host* host, mt_backend* backend);
//
// fills in `backend` and returns MT_OK. These rules hold for everything below:
//
//  * Every struct that may grow begins with `size`, set by the side that creates it. A reader uses
//    only the fields within `size`; a field beyond it counts as zero. NULL means "not supported".
//  * Functions that can fail return a status: MT_OK or an error code. The error text goes to
//    `mt_ctx::set_error`, or to `mt_host::set_error` if there is no context yet.
//  * The framework never unloads a backend: pointers given to it stay valid for the process.
//  * Strings are UTF-8, zero-terminated, and live as long as their struct.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Changing anything locked increments the major version; backends of an older major version do not
// load. The first field appended after a release increments the minor version. Readers check a
// struct's `size`, not the minor version, which is informational. Version 1.1 appended graphs,
// memory statistics, pinned memory, timing events and custom operators; version 1.2 fused programs
// and regions.
#define MT_ABI_MAJOR 1u
#define MT_ABI_MINOR 2u

// ---- status ----
//
// The codes of mytorch::Error, plus MT_DECLINED: the kernel does not take this call, so the host
// asks the next one. A kernel that declines must not have written anything.
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
// Device types and dtype codes are DLPack's (DLDevice, DLDataType). Device types that DLPack does
// not define are allocated at run time, starting at MT_DEVICE_DYNAMIC.
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

// The layout of DLPack's DLTensor. `data` points to the first element (byte_offset is 0 in operands
// of kernels); strides are in elements and never NULL.
typedef struct mt_dltensor {
  void* data;
  mt_device device;
  int32_t ndim;
  mt_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} mt_dltensor;

// The state shared by all tensors on one block of memory. `version` counts writes. A cache keyed by
// (id, version) must ignore a storage flagged MT_STORAGE_ESCAPED, because writes to it can no
// longer be counted.
enum { MT_STORAGE_ESCAPED = 1u };
typedef struct mt_storage {
  uint64_t id;  // never reused in a process
  uint64_t version;
  uint32_t flags;
  uint32_t reserved;
} mt_storage;

// An operand. Always passed by pointer, so that the struct can grow.
enum {
  MT_TENSOR_HOST = 1u,  // 0-dim, with its element readable by the host at dl.data, on any device
  MT_TENSOR_CONTIGUOUS = 2u  // row-major without gaps
};
#define MT_TENSOR_DENSE MT_TENSOR_CONTIGUOUS  // the name in contract 1.0 and 1.1
typedef struct mt_tensor {
  mt_dltensor dl;
  const mt_storage* storage;  // NULL for MT_TENSOR_HOST operands made from a number
  uint32_t flags;
  uint32_t layout;  // 0 = strided; other layouts come only from explicit pack operations
} mt_tensor;

// ---- non-tensor arguments ----

enum {
  MT_SCALAR_NONE = 0,
  MT_SCALAR_BOOL = 1,
  MT_SCALAR_INT = 2,
  MT_SCALAR_FLOAT = 3,
  MT_SCALAR_COMPLEX = 4  // only in calls that have complex operands or a complex compute type
};
typedef struct mt_scalar {
  union {
    int64_t i;        // BOOL (0 or 1) and INT
    double d;         // FLOAT
    const double* z;  // COMPLEX: the real and the imaginary part, valid during the call
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

// One random call: Philox 4x32-10 with key = seed and counter = (element / 4, call). If
// `call_on_device` is not NULL, it points to device memory, and the call number is `*call_on_device
// + call`.
typedef struct mt_random {
  uint64_t seed;
  uint64_t call;
  const uint64_t* call_on_device;
} mt_random;

// The types of a schema's arguments determine the fields of the operator's generated argument
// struct (`mt_args_OP`, whose first member is an mt_args_header; outputs follow inputs):
//   Tensor, Tensor?, Operand, Operand?, output   const mt_tensor*  (NULL when absent or unwanted)
//   Tensor[]                                     mt_tensor_list
//   Scalar, Scalar?                              mt_scalar
//   int, bool / int?, bool?                      int64_t / mt_optional_int
//   float / float?                               double / mt_optional_float
//   int[], int[]? / float[], float[]?            mt_int_list / mt_float_list
//   str, str?                                    const char*
//   ScalarType, ScalarType?                      mt_dtype          (bits = 0 when absent)
//   Generator?                                   mt_random
// Facts about the operands of a pointwise call that the host has established, so that kernels need
// not check them.
enum {
  // All operands are contiguous and of one shape, the inputs have the compute type (except HOST
  // operands), and the outputs have the types that the program gives them.
  MT_ARGS_UNIFORM = 1u
};
typedef struct mt_args_header {
  size_t size;
  mt_dtype compute;  // the compute type: the promoted type, before f16 and bf16 are widened
  uint16_t variant;  // which of the record's bodies applies, if its arguments select one
  uint16_t flags;    // MT_ARGS_*
} mt_args_header;

// ---- the context of a call ----

typedef struct mt_ctx mt_ctx;
typedef struct mt_host mt_host;
typedef void (*mt_range_fn)(void* user, int64_t begin, int64_t end);

// One per thread and device. The host owns everything reachable from it.
struct mt_ctx {
  size_t size;
  mt_device device;
  void* stream;         // the device's native stream handle; NULL on the CPU
  int32_t num_threads;  // number of threads that `parallel_for` may use, at least 1
  int32_t reserved;
  const mt_host* host;
  // Runs body(user, b, e) over disjoint ranges that cover [begin, end). Each range except the last
  // has at least `grain` elements. Nested calls run serially. The body must not throw.
  void (*parallel_for)(mt_ctx*, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                       void* user);
  // Returns memory of the context's device, 64-byte aligned, valid until the kernel returns (on a
  // stream: until the work that the kernel queued has run). Returns NULL when out of memory. Must
  // not be called inside parallel_for.
  void* (*scratch)(mt_ctx*, size_t bytes);
  // Sets the message for the status that the kernel is about to return.
  void (*set_error)(mt_ctx*, int status, const char* message);
  // For records marked `dynamic`: creates output number `index` with the given shape and returns
  // it.
  const mt_tensor* (*make_output)(mt_ctx*, int32_t index, const int64_t* shape, int32_t ndim);
};

// ---- kernels ----
//
// Properties of a call that a kernel accepts beyond contiguous, non-overlapping operands of one
// shape and dtype. For a kernel without a flag, the host converts the operands.
enum {
  MT_TAKES_STRIDED = 1u,       // any strides, in inputs and outputs
  MT_TAKES_BROADCAST = 2u,     // inputs of pointwise ops whose shapes broadcast to the output's
  MT_TAKES_MIXED_DTYPES = 4u,  // operands whose dtypes differ from args->compute
  MT_TAKES_ALIAS = 8u,         // an output that is exactly one of the inputs
  // Complex operands (DLPack's code 5, two floats). A kernel without this flag never sees them, so
  // a backend that knows nothing of complex numbers is correct.
  MT_TAKES_COMPLEX = 16u
};

typedef int (*mt_run_fn)(void* self, mt_ctx* ctx, const void* args);
// Returns NULL if the kernel takes this call, otherwise the reason why not.
typedef const char* (*mt_supports_fn)(void* self, const void* args);

// A kernel, as a backend registers it. `mt_candidate` is the name in contract 1.0 and 1.1.
typedef struct mt_candidate {
  size_t size;
  const char* op;    // "add.Tensor"
  uint64_t hash;     // of the schema that it implements: MT_HASH_add_Tensor in mytorch/abi_ops.h
  const char* name;  // the kernel's name in messages: "packed_gemm"
  int32_t priority;  // the highest is asked first; 0 for an ordinary kernel
  uint32_t flags;    // MT_TAKES_*
  mt_supports_fn supports;  // NULL: takes every call
  mt_run_fn run;
  void* self;  // the backend's data, passed to both functions
} mt_candidate;
typedef mt_candidate mt_kernel_entry;

// Declares, in an operator's argument struct, its name and the hash of its schema. C++ only.
#ifdef __cplusplus
#define MT_OPERATOR(name, hash)                  \
  static constexpr const char* kOperator = name; \
  static constexpr uint64_t kSchemaHash = hash;
#else
#define MT_OPERATOR(name, hash)
#endif

// ---- programs ----
//
// The body of a pointwise or reduce record in static single assignment form. Node k computes value
// k from earlier values. `op` is the name of a node operation (docs/records.md lists them; each is
// also an operator of the same name) or one of
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
  int32_t type;  // MT_TYPE_*: the call's compute type, bool, or int64
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

// A reduction folds the value of node `step` over the reduced dimensions into a state of kind
// `fold`: "sum", "prod", "max", "min", "argmax", "argmin", "all", "any", "welford" (count, mean,
// m2) or "logsumexp" (max, sum). The state of argmax and argmin is (index, value); ties take the
// first index; NaN wins. The nodes of the outputs then read the state. `fold` is NULL for pointwise
// programs.
typedef struct mt_program {
  size_t size;
  const char* name;  // the operator's
  uint32_t variant;  // which of the operator's bodies; matches mt_args_header::variant
  uint32_t reserved;
  uint64_t hash;  // of all fields below
  const mt_node* nodes;
  int32_t num_nodes;
  int32_t num_outputs;
  const mt_program_output* outputs;
  const char* fold;
  int32_t step;         // reduce: the node to fold
  uint32_t dim_offset;  // reduce: field of the reduced dims: mt_int_list (absent = all) or int64_t
  int32_t dim_field;    // MT_DIM_*
  uint32_t keepdim_offset;  // reduce: field of keepdim (int64_t); 0 when the op has none
} mt_program;
enum { MT_DIM_LIST = 0, MT_DIM_INT = 1, MT_DIM_OPTIONAL_INT = 2, MT_DIM_ALL = 3 };

// ---- a device ----
//
// The functions that a backend supplies for a device of its own. A backend for an existing device
// leaves `mt_backend::device` NULL. All functions may be called from any thread.
enum { MT_COPY_TO_DEVICE = 0, MT_COPY_TO_HOST = 1, MT_COPY_ON_DEVICE = 2 };
typedef struct mt_memory_stats {
  size_t size;         // set by the caller
  uint64_t allocated;  // bytes in use, including the allocator's rounding
  uint64_t allocated_peak;
  uint64_t reserved;  // bytes obtained from the driver
  uint64_t reserved_peak;
  uint64_t largest_free;  // size of the largest free block
  uint64_t blocks;        // number of blocks in use
  uint64_t segments;      // number of segments obtained from the driver
  uint64_t retries;       // allocations that succeeded only after cached memory was returned
  uint64_t failures;      // allocations that failed even then
} mt_memory_stats;
typedef struct mt_device_ops {
  size_t size;
  int32_t type;             // a DLPack code, or 0 to request a run-time type from the host
  int32_t host_accessible;  // 1 if host code may read device pointers
  int (*device_count)(void* self);
  void* (*allocate)(void* self, int32_t index, size_t bytes, void* stream);  // NULL: out of memory
  void (*release)(void* self, int32_t index, void* data, size_t bytes, void* stream);
  // Copies contiguous bytes. Ordered on `stream`; may return before the copy is done.
  int (*copy)(void* self, int32_t index, int32_t kind, void* to, const void* from, size_t bytes,
              void* stream);
  void* (*create_stream)(void* self, int32_t index, int32_t priority);
  int (*synchronize)(void* self, int32_t index, void* stream);
  void* (*record_event)(void* self, int32_t index, void* stream);
  int (*wait_event)(void* self, int32_t index, void* stream, void* event);  // stream NULL: the host
  int (*query_event)(void* self, void* event);  // 1 done, 0 not yet, negative: error
  void (*destroy_event)(void* self, void* event);
  // Optional from here on.
  void (*destroy_stream)(void* self, int32_t index, void* stream);
  int (*memory_info)(void* self, int32_t index, uint64_t* free_bytes, uint64_t* total_bytes);
  int (*device_name)(void* self, int32_t index, char* buffer, size_t bytes);
  int (*copy_peer)(void* self, int32_t to_index, void* to, int32_t from_index, const void* from,
                   size_t bytes, void* stream);
  // Graphs; all four functions or none. Between begin_graph and end_graph, work queued on `stream`
  // by any thread is captured instead of executed; launch_graph queues all of it at once on a
  // stream and may be called repeatedly. Memory that `allocate` returns for the stream during
  // capture belongs to the graph until destroy_graph: once released, it is reused only within the
  // same capture. end_graph ends the capture in any case, and returns NULL if the captured work
  // cannot form a graph.
  int (*begin_graph)(void* self, int32_t index, void* stream);
  void* (*end_graph)(void* self, int32_t index, void* stream);
  int (*launch_graph)(void* self, int32_t index, void* graph, void* stream);
  void (*destroy_graph)(void* self, int32_t index, void* graph);
  // Statistics of the device's allocator. memory_summary writes a report, truncated to `bytes`
  // including its terminating zero, and returns the length of the full text without the zero.
  // empty_cache returns cached memory to the driver. reset_peaks sets the peaks to the current
  // values.
  int (*memory_stats)(void* self, int32_t index, mt_memory_stats* stats);
  int64_t (*memory_summary)(void* self, int32_t index, char* buffer, size_t bytes);
  int (*empty_cache)(void* self, int32_t index);
  int (*reset_peaks)(void* self, int32_t index);
  // Pinned host memory, which devices of this type copy from and to asynchronously: `copy` returns
  // before the copy is done. Released memory is not reused before pending copies are done.
  void* (*allocate_pinned)(void* self, size_t bytes);  // NULL: out of memory
  void (*release_pinned)(void* self, void* data, size_t bytes);
  // Timing events; both functions or none. event_elapsed writes the seconds from `begin` to `end`,
  // two timing events of the same device that have both completed. In all other respects they are
  // ordinary events.
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

// An operator defined by a backend. The framework calls, differentiates and lists it like its own.
// Any backend may register kernels for it, in the usual way; their `hash` may be 0. Its argument
// struct holds the arguments in schema order, then the results, with fields as in the table above.
enum { MT_MAX_DIMS = 64 };
struct mt_fused_program;
struct mt_region_ops;

typedef struct mt_result {
  int32_t ndim;
  mt_dtype dtype;
  int64_t shape[MT_MAX_DIMS];
} mt_result;
typedef struct mt_operator {
  size_t size;
  const char* schema;    // "library::name(Tensor x, *, float beta=1) -> Tensor"
  const char* doc;       // may be NULL
  const char* gradient;  // "none", or the operator that computes it; see mytorch/operator.h
  // Computes the shape and dtype of each result from the argument struct, whose results are NULL.
  // Reports failure by its status and mt_host::set_error.
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
  void* self;               // passed to the functions below and to the device's functions
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
  // Optional: makes a kernel from a program for given types. `compute` is the compute type; `types`
  // holds the types of the program's inputs in node order, followed by those of its outputs. Fills
  // `kernel` (the caller sets op, hash and priority) or returns MT_DECLINED. The kernel is valid
  // for the process.
  int (*compile)(void* self, const mt_program* program, mt_dtype compute, const mt_dtype* types,
                 int32_t num_types, mt_kernel_entry* kernel);
  int32_t compile_priority;
  uint32_t flags;  // MT_BACKEND_*
  // Text for `mytorch info`: instruction sets, driver versions, ...
  const char* (*describe)(void* self);
  const mt_operator*
      operators;  // an operator that computes a gradient precedes the operator that it serves
  int64_t num_operators;
  // Optional: makes a kernel from a fused program (mytorch/abi_fused.h). Fills `kernel` (the caller
  // sets op, hash and priority) or returns MT_DECLINED. The kernel is valid for the process; its
  // `supports` may decline calls.
  int (*compile_fused)(void* self, const struct mt_fused_program* program, mt_kernel_entry* kernel);
  // Optional: takes parts of compiled functions as a whole (mytorch/abi_region.h).
  const struct mt_region_ops* regions;
} mt_backend;
enum {
  // Chosen only if pinned, or as the fallback if the user allowed that.
  MT_BACKEND_REFERENCE = 1u,
  // `compile` is also asked for complex compute types. The nodes of a program then compute with
  // complex values; docs/records.md says what each of them means.
  MT_BACKEND_COMPLEX = 2u
};
#define MT_BACKEND_ORACLE MT_BACKEND_REFERENCE  // the name in contract 1.0 and 1.1

#if defined(_WIN32)
#define MT_EXPORT __declspec(dllexport)
#else
#define MT_EXPORT __attribute__((visibility("default")))
#endif

typedef int (*mt_backend_init_fn)(const mt_host*, mt_backend*);

#ifdef __cplusplus
}  // extern "C"
#endif
