// The threads of CPU kernels: one pool for all callers of the process.
//
// A loop is a number of pieces, which its caller fixes. Each idle worker is offered one, the same
// one in equal loops, so that its data are in that processor's caches. The caller runs the first
// piece and then all that no worker has begun, so it waits only for pieces that are running: a
// worker that gets no processor, because other programs run, costs little more than its absence.
//
// An idle worker spins until the next loop or, after a while, sleeps. Spinning starts a loop in a
// microsecond. It also takes a processor from programs that have work to do, and the system then
// takes it from the loop in return. So when a thread was kept from running for long, all of them
// spin for microseconds only, for a while. Loops are timed then: one that ends no earlier than its
// caller would have without workers is the caller's alone for a while.
#pragma once

#include <cstdint>

namespace mytorch::workers {

using Piece = void (*)(void* user, int64_t piece);

// Calls run(user, i) for each i in [0, pieces) and returns when all are done. `kind` is the same
// number for loops of about the same duration. Not to be called inside a piece.
void run_pieces(int64_t pieces, uintptr_t kind, Piece run, void* user);

// Runs all pieces at the same time, each on a thread of its own, so that they may wait for each
// other. `pieces` must not exceed ensure(pieces).
void run_together(int64_t pieces, Piece run, void* user);

// Creates the threads that a loop of `threads` pieces needs. Returns how many it may have: fewer
// if the system refuses to create them.
int64_t ensure(int64_t threads);

// Of this process so far.
struct WorkerStats {
  int64_t threads = 0;  // that the pool has created
  uint64_t begun = 0;   // pieces that the pool's threads ran
  uint64_t stolen = 0;  // pieces that were offered to one thread and run by another
};
WorkerStats stats();

// Makes idle threads sleep at once for `milliseconds`, as if one had lost its processor. For tests.
void pretend_busy(int64_t milliseconds);

}  // namespace mytorch::workers
