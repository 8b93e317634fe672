// The contract between mytorch and an engine of process groups, in C11: a shared library in
// mytorch/comm that exports
//
//     int mt_comm_init(const mt_host* host, mt_comm* comm);
//
// fills in `comm` and returns MT_OK, or MT_DECLINED if it cannot serve this machine. The rules of
// mytorch/abi.h hold here, too: structs begin with `size`, NULL means "not supported", functions
// return a status and report its text by mt_host::set_error, and an engine is never unloaded.
//
// The host numbers and records calls, compares them across ranks, and names what hangs. An engine
// only moves and reduces contiguous memory.
#pragma once

#include "mytorch/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MT_COMM_MAJOR 1u
// Version 1.1 appended windows.
#define MT_COMM_MINOR 1u

// Statuses besides those of mytorch/abi.h.
enum {
  MT_COMM_TIMEOUT = 64,      // the call's deadline passed before all ranks came
  MT_COMM_ABORTED = 65,      // `abort` was called, here or on another rank
  MT_COMM_RANK_FAILED = 66,  // a rank of the group has died
  MT_COMM_PENDING = 67       // `async_error` alone: nothing has failed, and work is under way
};

// Identifies a group while its ranks meet. One rank makes it, the host hands it to the others.
typedef struct mt_comm_id {
  char bytes[128];
} mt_comm_id;

// A reduction. Elements are reduced in the order of the ranks or in any other that is fixed for a
// number of ranks. 16-bit floats are combined in float32. Of bools, SUM and MAX are the
// disjunction, PRODUCT and MIN the conjunction. AVERAGE of integers is rounded towards zero.
// Complex numbers have SUM, PRODUCT and AVERAGE. `scale` multiplies floating and complex elements
// before they are summed or averaged; it is 1 for other types and operations.
enum {
  MT_REDUCE_SUM = 0,
  MT_REDUCE_PRODUCT = 1,
  MT_REDUCE_MIN = 2,  // NaN wins
  MT_REDUCE_MAX = 3,  // NaN wins
  MT_REDUCE_AVERAGE = 4
};
typedef struct mt_reduction {
  size_t size;
  int32_t op;
  int32_t reserved;
  double scale;
} mt_reduction;

// The circumstances of a call.
typedef struct mt_comm_call {
  size_t size;
  // The device's native stream, on which the call is ordered and after whose earlier work it reads;
  // NULL on the CPU, where a call has finished when it returns.
  void* stream;
  // On the CPU: the call returns MT_COMM_TIMEOUT if it has not finished by then. 0: never. Streams
  // are watched by the host.
  int64_t timeout_ns;
} mt_comm_call;

typedef struct mt_group mt_group;    // the engine's
typedef struct mt_window mt_window;  // the engine's

// `send` and `recv` are buffers of `count` elements, times the group's size where a rank has a part
// for each; parts follow each other in the order of the ranks. A buffer that `send` and `recv`
// share must be the same buffer, or in gathers and scatters its part; all_to_all takes two. In the
// functions ending in v, counts and offsets are in elements, one for each rank, and may differ
// between ranks. Every rank makes the calls of a group in the same order, from one thread at a
// time; different groups are independent.
typedef struct mt_comm {
  size_t size;
  uint32_t comm_major;
  uint32_t comm_minor;
  const char* name;         // "mpi"
  const char* version;      // of the library it uses
  const char* device_type;  // "cpu", "cuda": the memory that the buffers lie in
  int32_t priority;         // among the engines of a device type, the highest that serves is used
  uint32_t flags;           // MT_COMM_*
  void* self;               // passed to the functions below

  // Whether the engine can form a group of the process's ranks as they were started: NULL, or the
  // reason why not.
  const char* (*serves)(void* self, int32_t rank, int32_t ranks);

  // ---- groups ----
  // The id is NULL for an engine with MT_COMM_LAUNCHES, whose launcher has connected the ranks.
  int (*make_id)(void* self, mt_comm_id* id);
  int (*create)(void* self, const mt_comm_id* id, int32_t rank, int32_t ranks, mt_device device,
                const mt_comm_call* call, mt_group** group);
  // Collective over `group`: ranks of one color form a group, ordered by key, then by rank. A rank
  // of a negative color is in no group and receives NULL.
  int (*split)(void* self, mt_group* group, int32_t color, int32_t key, const mt_comm_call* call,
               mt_group** part);
  // Frees a group, whatever its state. Not collective.
  void (*destroy)(void* self, mt_group* group);
  // Makes calls under way on any thread, and all later ones, return MT_COMM_ABORTED.
  void (*abort)(void* self, mt_group* group);
  // MT_OK, MT_COMM_PENDING, or the status of a failure of queued work.
  int (*async_error)(void* self, mt_group* group);

  // ---- collectives ----
  int (*broadcast)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                   mt_dtype dtype, int32_t root, const mt_comm_call* call);
  int (*reduce)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                mt_dtype dtype, const mt_reduction* reduction, int32_t root,
                const mt_comm_call* call);
  int (*all_reduce)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                    mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call);
  int (*scatter)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                 mt_dtype dtype, int32_t root, const mt_comm_call* call);
  int (*gather)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                mt_dtype dtype, int32_t root, const mt_comm_call* call);
  int (*all_gather)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                    mt_dtype dtype, const mt_comm_call* call);
  int (*all_gather_v)(void* self, mt_group* group, const void* send, void* recv,
                      const int64_t* counts, const int64_t* offsets, mt_dtype dtype,
                      const mt_comm_call* call);
  int (*reduce_scatter)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                        mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call);
  // The parts of `send` follow each other without gaps.
  int (*reduce_scatter_v)(void* self, mt_group* group, const void* send, void* recv,
                          const int64_t* counts, mt_dtype dtype, const mt_reduction* reduction,
                          const mt_comm_call* call);
  int (*all_to_all)(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                    mt_dtype dtype, const mt_comm_call* call);
  int (*all_to_all_v)(void* self, mt_group* group, const void* send, const int64_t* send_counts,
                      const int64_t* send_offsets, void* recv, const int64_t* recv_counts,
                      const int64_t* recv_offsets, mt_dtype dtype, const mt_comm_call* call);
  int (*barrier)(void* self, mt_group* group, const mt_comm_call* call);

  // ---- point to point ----
  // Messages between two ranks arrive in the order in which they were sent. `send` may wait until
  // the message is received. A rank sends to itself only between `begin` and `end`.
  int (*send)(void* self, mt_group* group, const void* data, int64_t count, mt_dtype dtype,
              int32_t to, const mt_comm_call* call);
  int (*recv)(void* self, mt_group* group, void* data, int64_t count, mt_dtype dtype, int32_t from,
              const mt_comm_call* call);

  // Optional from here on.
  // Calls between `begin` and `end` on one thread proceed together, in any order; `end` has their
  // results. Without them the host refuses exchanges by send and recv.
  int (*begin)(void* self, mt_group* group);
  int (*end)(void* self, mt_group* group, const mt_comm_call* call);

  // ---- one-sided calls: all of them or none ----
  // A window is memory that the ranks of a group lend each other: `bytes` bytes of this rank, as
  // many as it likes, zero at first. Collective over the group.
  int (*window_create)(void* self, mt_group* group, int64_t bytes, const mt_comm_call* call,
                       mt_window** window);
  // Frees a window and its memory, and is collective, unless `call` is NULL. Then this rank alone
  // gives it up, whatever its state: its memory stays for the others, until the process ends at the
  // latest. The group is destroyed afterwards.
  int (*window_free)(void* self, mt_window* window, const mt_comm_call* call);
  // Write and read bytes of rank `owner`, from byte `offset` on, within its window; the owner makes
  // no call. Of one window, calls of any threads and ranks go on at the same time, beside those of
  // the group. The calls on one owner take effect one after the other, each as a whole, and have
  // done so when they return.
  int (*window_put)(void* self, mt_window* window, const void* data, int64_t bytes, int32_t owner,
                    int64_t offset, const mt_comm_call* call);
  int (*window_get)(void* self, mt_window* window, void* data, int64_t bytes, int32_t owner,
                    int64_t offset, const mt_comm_call* call);
  // Combines elements of the window with those of `data`, of which only these are scaled. `before`
  // receives what the window had, unless it is NULL. `offset` is a multiple of an element's size.
  // There is no AVERAGE.
  int (*window_accumulate)(void* self, mt_window* window, const void* data, void* before,
                           int64_t count, mt_dtype dtype, const mt_reduction* reduction,
                           int32_t owner, int64_t offset, const mt_comm_call* call);
} mt_comm;
enum {
  // The engine's own launcher connects the ranks of the processes: `create` needs no id.
  MT_COMM_LAUNCHES = 1u,
  // The ranks are threads of one process.
  MT_COMM_ONE_PROCESS = 2u,
  // Collectives, too, may be called between `begin` and `end`.
  MT_COMM_COALESCES = 4u
};

typedef int (*mt_comm_init_fn)(const mt_host*, mt_comm*);

#ifdef __cplusplus
}  // extern "C"
#endif
